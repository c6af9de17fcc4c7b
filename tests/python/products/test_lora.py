"""Low-rank adapters: grouped products with an N or a K of 8 to 64, and cleave.torch.lora, which is made of two."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import Any

import pytest
from doc_snippets import ROOT, python_snippets

import cleave
from cleave.testing.group_sizes import ranges_of, spread_over
from cleave.testing.grouped_case import GroupedCase

torch = pytest.importorskip("torch", minversion="2.10")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import cleave.torch  # noqa: E402

RANKS = (8, 16, 32, 64)
FEATURES, OUTPUTS = 200, 136
SIZES = {
    "one adapter": (33,),
    "some without rows": (0, 5, 0, 0, 17, 0),
    "one row": (1, 0, 1, 1),
    "skewed": (150, *[1] * 20, 0),
    "256 adapters": spread_over(256, 300, "zipf"),
    "no rows": (0, 0),
}
REST = 3  # rows that no adapter has

ranks = pytest.mark.parametrize("rank", RANKS)
dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


class Adapters:
    def __init__(self, sizes: tuple[int, ...], rank: int, dtype: torch.dtype) -> None:
        torch.manual_seed(rank)
        rows = sum(sizes) + REST
        self.ranges = ranges_of(sizes)
        self.x = torch.randn(rows, FEATURES).to(dtype)
        self.a = (torch.randn(len(sizes), rank, FEATURES) / FEATURES**0.5).to(dtype)
        self.b = (torch.randn(len(sizes), OUTPUTS, rank) / rank**0.5).to(dtype)
        self.y = torch.randn(rows, OUTPUTS).to(dtype)
        self.offs = torch.tensor([end for _, end in self.ranges], dtype=torch.int32)

    def arguments(self, scale: float = 1.0) -> tuple[Any, ...]:
        return self.x, self.a, self.b, self.offs, scale, self.y

    def expected(self, scale: float) -> torch.Tensor:
        y = self.y.double()
        for (begin, end), a, b in zip(self.ranges, self.a, self.b, strict=True):
            hidden = (self.x[begin:end].double() @ a.double().mT).to(self.x.dtype).double()
            y[begin:end] += scale * hidden @ b.double().mT
        return y


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@ranks
@dtypes
def test_every_row_gets_its_adapter(sizes: tuple[int, ...], rank: int, dtype: torch.dtype) -> None:
    of = Adapters(sizes, rank, dtype)
    y = cleave.torch.lora(*of.arguments(0.5))
    assert y.dtype == dtype
    expected = of.expected(0.5)
    # Two roundings: of the hidden row, whose sums may be rounded to a neighbour, and of y.
    tolerance = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=2 * tolerance)
    assert torch.equal(y[-REST:], of.y[-REST:])


@dtypes
def test_in_place_and_elsewhere_are_the_same(dtype: torch.dtype) -> None:
    of = Adapters(SIZES["some without rows"], 16, dtype)
    y = cleave.torch.lora(*of.arguments(2.0))
    before = of.y.clone()
    elsewhere = torch.full_like(y, float("nan"))
    assert cleave.torch.lora(*of.arguments(2.0), out=elsewhere) is elsewhere
    assert torch.equal(elsewhere, y) and torch.equal(of.y, before)
    assert cleave.torch.lora(*of.arguments(2.0), out=of.y) is of.y
    assert torch.equal(of.y, y)


def test_without_a_residual_what_no_adapter_has_is_zero() -> None:
    of = Adapters(SIZES["some without rows"], 8, torch.bfloat16)
    x, a, b, offs, scale, _ = of.arguments(3.0)
    made = cleave.torch.lora(x, a, b, offs, scale)
    out = torch.full_like(made, float("nan"))
    cleave.torch.lora(x, a, b, offs, scale, out=out)
    assert torch.equal(made, out) and not made[-REST:].any()
    of.y.zero_()
    torch.testing.assert_close(made.double(), of.expected(3.0), rtol=0.02, atol=0.03)


def test_a_residual_in_float32_is_added_to_as_it_is() -> None:
    of = Adapters(SIZES["one row"], 8, torch.bfloat16)
    of.y = of.y.float() + 1 / 3
    y = cleave.torch.lora(*of.arguments())
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), of.expected(1.0), rtol=0, atol=0.02)
    assert torch.equal(y[-REST:], of.y[-REST:])


@ranks
def test_gradients(rank: int) -> None:
    of = Adapters(SIZES["some without rows"], rank, torch.float32)
    leaves = [each.requires_grad_() for each in (of.x, of.a, of.b, of.y)]
    weight = torch.randn(of.y.shape)
    (cleave.torch.lora(*of.arguments(0.5)) * weight).sum().backward()
    of_ours = [each.grad for each in leaves]
    expected = torch.autograd.grad((of.expected(0.5) * weight).sum(), leaves)
    for ours, theirs in zip(of_ours, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_compiled() -> None:
    of = Adapters(SIZES["skewed"], 16, torch.bfloat16)
    compiled = torch.compile(cleave.torch.lora, fullgraph=True)
    assert torch.equal(compiled(*of.arguments()), cleave.torch.lora(*of.arguments()))


@pytest.mark.parametrize("rank", [3, 8, 64])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@dtypes
def test_the_kernels_operator(sizes: tuple[int, ...], rank: int, dtype: torch.dtype) -> None:
    """On the host, as on a GPU: two roundings, of the hidden row and of y."""
    of = Adapters(sizes, rank, dtype)
    x, a, b, offs, scale, y = of.arguments(0.5)
    expected, kept = of.expected(scale), y.clone()
    assert torch.ops.cleave.lora.out(x, a, b, offs.long(), scale, out=y) is None
    tolerance = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=2 * tolerance)
    assert torch.equal(y[-REST:], kept[-REST:])


class Called(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names += [func._opname] if func.namespace == "cleave" else []
        return func(*args, **kwargs or {})


def test_rows_that_must_not_depend_on_the_batch_take_two_products() -> None:
    with FakeTensorMode(), Called() as called:
        x, a, b = (torch.empty(*shape, device="cuda").bfloat16() for shape in ((9, 64), (2, 16, 64), (2, 48, 16)))
        arguments = x, a, b, torch.empty(2, dtype=torch.int32, device="cuda")
        cleave.torch.lora(*arguments)
        with cleave.batch_invariant():
            cleave.torch.lora(*arguments)
    assert called.names == ["lora", "grouped_gemm", "grouped_gemm"]


def test_what_the_kernels_operator_refuses() -> None:
    of = Adapters((2, 3), 8, torch.bfloat16)
    x, a, b, offs, _, y = of.arguments()
    wide = Adapters((2, 3), 72, torch.bfloat16)
    for arguments, message in (
        ((x, a, b.mT, offs), r"b is \(2, 8, 136\) and a is \(2, 8, 200\)"),
        ((x[:, :8], a, b, offs), r"a is \(2, 8, 200\) and x is \(8, 8\); a row of each"),
        ((x, a, b, offs[:1]), r"offs is \(1,\) and a is \(2, 8, 200\)"),
        ((x[1:], a, b, offs), r"out is \(8, 136\); it must be \(7, 136\)"),
        ((x, a.half(), b, offs), r"a is float16 and x is bfloat16; convert one"),
        ((x, wide.a, wide.b, offs), r"rank is 72; it must be from 1 to 64"),
        ((x, a.mT.contiguous().mT, b, offs), r"a has strides .* rows must be contiguous"),
        ((x, a, b, offs.float()), r"offs is float32; it must be int32 or int64"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.cleave.lora.out(*arguments, out=y)


def test_out_may_be_a_view_of_what_is_read() -> None:
    of = Adapters((2, 3), 8, torch.bfloat16)
    x, a, b, offs, scale, y = of.arguments()
    expected = cleave.torch.lora(x, a, b, offs, scale, y)
    for others in ("x", "b"):
        moved = {"x": torch.cat((x, x), 1), "b": torch.cat((b.flatten(), x.new_zeros(len(x) * OUTPUTS)))}
        given = moved["x"][:, :FEATURES], moved["b"][: b.numel()].view(b.shape)
        view = moved["x"][:, 8 : 8 + OUTPUTS] if others == "x" else moved["b"][4 : 4 + y.numel()].view(y.shape)
        out = cleave.torch.lora(given[0], a, given[1], offs, scale, y, out=view)
        assert out is view and torch.equal(out, expected), others


@pytest.mark.parametrize("read", ["x", "b"])
def test_out_may_be_a_residual_that_is_a_view_of_what_is_read(read: str) -> None:
    of = Adapters((2, 3), 8, torch.bfloat16)
    x, a, b, offs, scale, _ = of.arguments()
    kept = (x if read == "x" else b).clone()
    view = kept[:, 4 : 4 + OUTPUTS] if read == "x" else kept.flatten()[: len(x) * OUTPUTS].view(len(x), OUTPUTS)
    given = (kept, b) if read == "x" else (x, kept)
    expected = cleave.torch.lora(given[0], a, given[1], offs, scale, view.clone())
    assert cleave.torch.lora(given[0], a, given[1], offs, scale, view, out=view) is view
    assert torch.equal(view, expected)


def test_what_does_not_fit_is_refused() -> None:
    of = Adapters((2, 3), 8, torch.bfloat16)
    x, a, b, offs, scale, y = of.arguments()
    with pytest.raises(ValueError, match=r"a is \[2, 200, 8\] and b is \[2, 136, 8\]; .* a stack of lora_A.weight"):
        cleave.torch.lora(x, a.mT, b, offs)
    for arguments, exception, words in (
        ((x, a, b, offs, scale, y[:, :8]), ValueError, r"residual is \[\d+, 8\]; it must be \[\d+, 136\]"),
        ((x[:, :8], a, b, offs), ValueError, r"x is \[\d+, 8\]; it must be \[rows, 200\]"),
        ((x, a, b, offs[:1]), ValueError, r"offs is \[1\]; it must be \[2\]"),
        ((x, a.float(), b, offs), TypeError, r"x is torch.bfloat16, a torch.float32 and b torch.bfloat16"),
    ):
        with pytest.raises(exception, match=words):
            cleave.torch.lora(*arguments)
    with pytest.raises(ValueError, match="out is x, which is read while out is written"):
        cleave.torch.lora(x, torch.ones(2, 8, 200).bfloat16(), torch.ones(2, 200, 8).bfloat16(), offs, out=x)
    a.requires_grad_()
    kept = y.clone()
    with pytest.raises(ValueError, match="out is given where gradients are wanted"):
        cleave.torch.lora(x, a, b, offs, scale, y, out=y)
    assert torch.equal(y, kept)


def test_the_page_of_the_documentation_runs() -> None:
    """Both ways to sort agree, says an assertion of its own; a row without an adapter has what the layer gives."""
    program: dict[str, Any] = {}
    for source in python_snippets(ROOT / "docs" / "lora.md"):
        exec(compile(source, "docs/lora.md", "exec"), program)
    x, y, adapter = (program[name] for name in ("x", "y", "adapter"))
    without = adapter[:, 0] < 0
    assert without.any() and torch.equal(y[without], torch.ops.cleave.gemm(x, program["weight"].t())[without])


# --- which kernels serve such products ---


def h200_plan(case: GroupedCase) -> cleave.GemmPlan:
    groups = {"batch": case.groups, "grouping": "k" if case.form == "wgrad" else "m"}
    return cleave.plan_problem(**asdict(case.product) | groups, device="h200")


@ranks
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("adapters", [1, 8, 64, 256])
def test_hopper_kernels_serve_every_rank(rank: int, dtype: str, adapters: int) -> None:
    """A K of 8 is 16 bytes, which TMA fetches, and tiles of the shrinking product are no wider than it has use for."""
    for features, tokens in itertools.product((2048, 4096, 8192), (64, 512, 4096)):
        shrink, expand = (
            [GroupedCase(adapters, tokens, n, k, dtype=dtype, form=form) for form in ("forward", "dgrad", "wgrad")]
            for n, k in ((rank, features), (features, rank))
        )
        for case in (*shrink, *expand):
            assert h200_plan(case).kernel_name.startswith("sm90 "), case.title
        _, tile, *rest = h200_plan(shrink[0]).kernel_name.split()
        rows, columns = map(int, tile.split("x"))
        # Transposed, ranks lie along an instruction's 64 rows, and an adapter's few tokens along its columns.
        assert rows <= 64 if "transposed" in rest else columns <= max(rank, 16), shrink[0].title


@pytest.mark.parametrize("adapters", [1, 8])
def test_where_a_tile_waits_for_the_residual_two_take_turns(adapters: int) -> None:
    """With one k block nothing else hides it; and one column of tiles shares no loads."""
    groups = f"x{adapters} tn bfloat16 bfloat16 grouped m"
    expand = cleave._core.plan_text(f"4096x4096x64{groups} c bfloat16", "h200")
    assert "pingpong" in expand.kernel_name
    shrink = cleave._core.plan_text(f"4096x64x4096{groups}", "h200")
    assert "multicast" not in shrink.kernel_name
