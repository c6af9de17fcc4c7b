"""cleave.grouped_gemm(gather=) on the GPU, beside copies of the rows that the list names.

Operands hold small integers and scales powers of two, so that sums are exact in whatever order they are made. Tokens
lie in a buffer full of NaNs, and so does what the list must not name; D lies in one full of a canary.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from products import ALL_DTYPES, CANARY, framed  # noqa: E402
from served import skip_unless_served  # noqa: E402
from test_gemm_gpu import MODES, split  # noqa: E402
from test_grouped_gpu import SIZES, Groups, integers  # noqa: E402

import cleave  # noqa: E402

KERNELS = ("auto", "portable")
OUTSIDE = (-1, -(2**31), 2**31 - 1)


class Case:
    """Tokens `a`, a list of rows of `groups`, and what the rows would be if they were copied."""

    def __init__(self, groups: Groups, tokens: int = 50, n: int = 72, k: int = 128, dtype: str = "bfloat16", top_k=3):
        kind = ALL_DTYPES[dtype]
        self.groups, self.top_k = groups, top_k
        poisoned = torch.full((tokens + 2, k + 16), 101 if dtype == "int8" else float("nan"), device="cuda").to(kind)
        self.a = poisoned[1:-1, :k]
        self.a.copy_(integers((tokens, k), kind, True))
        self.b = integers((groups.count, k, n), kind, False)
        self.list = torch.randint(0, tokens * top_k, (groups.extent,), device="cuda", dtype=torch.int32)
        self.list[::13] = torch.tensor([*OUTSIDE, tokens * top_k], device="cuda", dtype=torch.int32)[
            torch.randint(0, 4, self.list[::13].shape, device="cuda")
        ]
        out_dtype = torch.int32 if dtype == "int8" else torch.float32
        self.out, self.buffer = framed((groups.extent, n), out_dtype, CANARY, False, 8, "cuda")

    def named(self, x: torch.Tensor) -> torch.Tensor:
        """Its rows, or zeros."""
        row = self.list // self.top_k
        exists = (self.list >= 0) & (row < len(x))
        rows = x[torch.where(exists, row, 0)].float()
        return (rows * exists[:, None]).to(x.dtype)

    def run(self, **given: Any) -> None:
        cleave.grouped_gemm(
            self.a, self.b, out=self.out, gather=self.list, top_k=self.top_k, **self.groups.keywords, **given
        )

    def check(self, a: torch.Tensor, b: torch.Tensor) -> None:
        """a: the rows, b: the weights, in float64."""
        expected = torch.full_like(self.out, CANARY, dtype=torch.float64)
        for g, (begin, end) in enumerate(self.groups.ranges):
            expected[begin:end] = a[begin:end] @ b[g]
        assert torch.equal(self.out.double(), expected)
        assert (self.buffer == CANARY).sum() - (self.out == CANARY).sum() == self.buffer.numel() - self.out.numel()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8", "float8_e4m3fn"])
def test_rows_are_those_that_the_list_names(dtype: str, sizes: str, kernel: str) -> None:
    skip_unless_served(kernel, dtype=dtype)
    for bounds in ("ends", "indptr", "starts", "aligned_ends"):
        for n, k in ((72, 128), (256, 464), (512, 32)):
            case = Case(Groups(SIZES[sizes], bounds), n=n, k=k, dtype=dtype)
            case.run(kernel=kernel)
            case.check(case.named(case.a).double(), case.b.double())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_mode(mode: str, kernel: str) -> None:
    skip_unless_served(kernel, mode)
    for tokens, sizes in ((7, [5, 0, 8, 1]), (300, [400, 7, 600])):
        case = Case(Groups(sizes), tokens=tokens, n=200, k=1000)
        case.run(kernel=kernel, **split(mode))
        case.check(case.named(case.a).double(), case.b.double())


@pytest.mark.parametrize("k", [8, 24, 100, 4096])
@pytest.mark.parametrize("top_k", [1, 8])
def test_lines_of_any_length(k: int, top_k: int) -> None:
    """TMA could read some of them, threads of the portable kernel have to read others."""
    case = Case(Groups([3, 200, 0, 65]), tokens=500, k=k, top_k=top_k)
    case.run()
    case.check(case.named(case.a).double(), case.b.double())


def scales(rows: int, columns: int, by_row: bool) -> torch.Tensor:
    s = 2.0 ** torch.randint(-2, 3, (rows, columns), device="cuda")
    return s if by_row else s.t().contiguous().t()


@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_scales_lie_as_the_rows_do(dtype: str, kernel: str, blocks: bool, by_row: bool) -> None:
    skip_unless_served(kernel, dtype=dtype)
    for sizes, n in (([3, 0, 40], 128), ([700, 64, 0, 129], 512)):
        case = Case(Groups(sizes), n=n, k=384, dtype=dtype)
        columns = 3 if blocks else 1
        scale_a = scales(50, columns, by_row)
        scale_b = 2.0 ** torch.randint(-2, 3, (len(sizes), 3, n // 128) if blocks else (len(sizes), n), device="cuda")
        out, _ = framed((case.groups.extent, n), torch.float32, CANARY, False, 8, "cuda")
        case.out, case.buffer = out, _
        case.run(scale_a=scale_a if blocks else scale_a.flatten(), scale_b=scale_b, kernel=kernel)
        full_a = (scale_a.repeat_interleave(128, 1) if blocks else scale_a).double()
        full_b = scale_b.repeat_interleave(128, 1).repeat_interleave(128, 2) if blocks else scale_b[:, None]
        rows = case.named(case.a).double() * full_a[torch.where(case.list >= 0, case.list // 3, 0).clamp(max=49)]
        case.check(rows, case.b.double() * full_b.double())


@pytest.mark.parametrize("sizes", [[3, 0, 40, 1], [700, 64, 0, 129]])
@pytest.mark.parametrize("blocks", [True, False])
def test_a_gate_and_scales_that_are_found(blocks: bool, sizes: list[int]) -> None:
    """Bit by bit what the product of copied rows makes."""
    skip_unless_served("sm90", dtype="float8_e4m3fn")
    tokens, k, n, top_k = 200, 512, 384, 4
    x = torch.randn(tokens, k, device="cuda").bfloat16()
    w = torch.randn(len(sizes), 2 * n, k, device="cuda").bfloat16()
    q, scale = cleave.quantize(x, "float8_e4m3fn", "block_1x128" if blocks else "row")
    experts = [cleave.quantize(e, "float8_e4m3fn", "block_128x128" if blocks else "row") for e in w]
    wq, ws = (torch.stack(parts) for parts in zip(*experts, strict=True))
    given: dict[str, Any] = {"scale_b": ws.mT if blocks else ws.squeeze(-1), "use_fast_accum": not blocks}
    offs = torch.tensor(sizes, device="cuda").cumsum(0).int()
    slots = torch.randint(0, tokens * top_k, (sum(sizes) + 5,), device="cuda", dtype=torch.int32)
    rows, row_scales = q.view(torch.uint8)[slots // top_k].view(q.dtype), scale[slots // top_k]
    flat = (lambda s: s) if blocks else (lambda s: s.flatten())
    forms: list[dict[str, Any]] = [{"out_dtype": torch.bfloat16}, {"out_dtype": torch.float32}]
    forms += [{"out_dtype": torch.float8_e4m3fn, "out_scale": "block_1x128", "scale_major": m} for m in ("k", "mn")]
    for form in forms:
        options = given | form | {"activation": "swiglu", "split_k_mode": "none"}  # the same sums in any tile
        listed = cleave.grouped_gemm(q, wq.mT, offs, scale_a=flat(scale), gather=slots, top_k=top_k, **options)
        copied = cleave.grouped_gemm(rows, wq.mT, offs, scale_a=flat(row_scales), **options)
        again = cleave.grouped_gemm(q, wq.mT, offs, scale_a=flat(scale), gather=slots, top_k=top_k, **options)
        for results in zip(*(r if isinstance(r, tuple) else (r,) for r in (listed, copied, again)), strict=True):
            own, other, second = (t.view(torch.uint8) if t.itemsize == 1 else t for t in results)
            assert torch.equal(own[: sum(sizes)], other[: sum(sizes)])
            assert torch.equal(own, second)


def test_a_graph_follows_its_list() -> None:
    tokens, experts, top_k = 64, 8, 4
    x = torch.randint(-2, 3, (tokens, 256), device="cuda").bfloat16()
    w = torch.randint(-2, 3, (experts, 64, 256), device="cuda").bfloat16()
    ids = torch.zeros(tokens, top_k, device="cuda", dtype=torch.int32)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def layer() -> torch.Tensor:
        offs, indices = cleave.moe.sort_tokens(ids, experts)
        return cleave.moe.unpermute(cleave.grouped_gemm(x, w.mT, offs, gather=indices, top_k=top_k), indices, weights)

    weights = torch.ones(tokens, top_k, device="cuda")
    with torch.cuda.stream(stream):
        layer()
        with torch.cuda.graph(graph, stream=stream):
            y = layer()
    for seed in range(3):
        torch.manual_seed(seed)
        ids.copy_(torch.randint(-1, experts + 1, ids.shape, device="cuda"))
        graph.replay()
        torch.cuda.synchronize()
        expected = torch.zeros(tokens, 64, device="cuda", dtype=torch.float64)
        for choice in ids.T:
            valid = (choice >= 0) & (choice < experts)
            own = w[torch.where(valid, choice, 0).long()].double()
            part = (own @ x.double()[:, :, None]).squeeze(-1).float().bfloat16().double()
            expected += torch.where(valid[:, None], part, 0)
        torch.testing.assert_close(y.double(), expected, rtol=1e-2, atol=0.5)
