"""cleave.grouped_gemm on the GPU: every grouping, bounds, mode and kernel, exactly.

Operands hold small integers, so that sums are exact in whatever order they are made. What belongs
to no group is NaN in the operands and a canary in D.
"""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")

from products import ALL_DTYPES, CANARY, framed  # noqa: E402
from served import skip_unless_served  # noqa: E402
from test_gemm_gpu import MODES, split  # noqa: E402

import cleave  # noqa: E402

BOUNDS = ("ends", "indptr", "starts", "aligned_ends", "counts")
KERNELS = (pytest.param("auto"), pytest.param("portable"))
SIZES = {
    "uniform": [96] * 8,
    "ragged": [0, 1, 130, 0, 77, 256, 3, 64, 0],
    "one": [300],
    "skewed": [700, *([2] * 20), 0],
    "empty": [0, 0, 0],
}


class Groups:
    """Groups of `sizes` elements in a dimension of `extent`, on the GPU."""

    def __init__(self, sizes: list[int], bounds: str = "ends", wide: bool = False, slack: int = 8):
        dtype = torch.int64 if wide else torch.int32

        def values(v):
            return torch.tensor(list(v), dtype=dtype, device="cuda")

        spacing = 1
        if bounds == "aligned_ends":
            spacing = 128
        elif bounds == "counts":
            spacing = max(*sizes, 8) + 8
        begin, self.ranges = slack if bounds in ("indptr", "starts") else 0, []
        for g, size in enumerate(sizes):
            begin = g * spacing if bounds == "counts" else -(-begin // spacing) * spacing
            self.ranges.append((begin, begin + size))
            begin += size + (slack if bounds == "starts" else 0)
        if bounds == "starts":  # in no order
            order = random.Random(1).sample(self.ranges, len(self.ranges))
            self.ranges = order
        ends = [end for _, end in self.ranges]
        self.extent = max(ends) + slack
        if bounds == "counts":
            self.extent = spacing * len(sizes)
        self.rest = torch.ones(self.extent, dtype=torch.bool, device="cuda")
        for begin, end in self.ranges:
            self.rest[begin:end] = False
        self.count = len(sizes)
        match bounds:
            case "ends":
                self.keywords = {"offs": values(ends)}
            case "indptr":
                self.keywords = {"indptr": values([slack, *ends])}
            case "starts":
                sizes = [end - begin for begin, end in self.ranges]
                self.keywords = {
                    "starts": values(b for b, _ in self.ranges),
                    "sizes": values(sizes),
                }
            case "aligned_ends":
                self.keywords = {"offs": values(ends), "alignment": spacing}
            case "counts":
                self.keywords = {"counts": values(sizes), "alignment": spacing}


def poison(x: torch.Tensor, where: torch.Tensor, dim: int) -> None:
    if x.dtype.is_floating_point:
        bits = x.view(torch.uint8) if x.dtype.itemsize == 1 else x
        value = 0x7F if x.dtype.itemsize == 1 else float("nan")
        bits[where if dim == 0 else (slice(None), where)] = value


def integers(shape, dtype: torch.dtype, row_major: bool) -> torch.Tensor:
    lines, length = shape[-2:] if row_major else shape[-1:-3:-1]
    length += -length % (16 // dtype.itemsize)
    x = torch.randint(-2, 3, (*shape[:-2], lines, length), device="cuda").float().to(dtype)
    return x[..., : shape[-1]] if row_major else x[..., : shape[-2]].mT


class Case:
    """A grouped product; `run` it, then `check` D and everything around it."""

    def __init__(self, form, groups, m=64, n=72, k=128, dtype="bfloat16", out_dtype=None, **given):
        self.form, self.groups = form, groups
        kind, self.out_kind = ALL_DTYPES[dtype], ALL_DTYPES[out_dtype or dtype]
        a_major, b_major = given.pop("majors", (True, False))
        size = {"m": m, "n": n, "k": k} | {form: groups.extent}
        m, n, k = size["m"], size["n"], size["k"]
        self.activation = given.get("activation", "none")
        columns = n * (2 if self.activation == "swiglu" else 1)
        lead = (groups.count,)
        self.a = integers((*(lead if form == "n" else ()), m, k), kind, a_major)
        self.b = integers((*(lead if form == "m" else ()), k, columns), kind, b_major)
        poison(self.a, groups.rest, {"m": 0, "k": 1}.get(form, 0)) if form != "n" else None
        poison(self.b, groups.rest, {"n": 1, "k": 0}.get(form, 0)) if form != "m" else None
        shape = (*(lead if form == "k" else ()), m, n)
        self.out, self.buffer = framed(shape, self.out_kind, CANARY, False, 8, "cuda")
        self.bias = None
        if given.pop("bias", False):
            bias_size = columns if form != "n" else m
            self.bias = torch.randint(-2, 3, (groups.count, bias_size), device="cuda").float()
        self.c = None
        if given.get("beta"):
            self.c = integers(shape, self.out_kind, True)
        self.given = given

    def run(self, **more):
        return cleave.grouped_gemm(
            self.a,
            self.b,
            out=self.out,
            bias=self.bias,
            c=self.c,
            **self.groups.keywords,
            **self.given,
            **more,
        )

    def expected(self) -> torch.Tensor:
        d = torch.full_like(self.out, CANARY, dtype=torch.float64)
        if self.given.get("zero_rest"):
            d.zero_()
        a, b = self.a.double(), self.b.double()
        for g, (begin, end) in enumerate(self.groups.ranges):
            part = slice(begin, end)
            match self.form:
                case "m":
                    at, x, y = (part,), a[part], b[g]
                case "n":
                    at, x, y = (slice(None), part), a[g], b[:, part]
                case "k":
                    at, x, y = (g,), a[:, part], b[part]
            value = x @ y
            if self.c is not None:
                value += self.given["beta"] * self.c[at].double()
            if self.bias is not None:
                bias = self.bias[g].double()
                value += bias[:, None] if self.form == "n" else bias[None]
            if self.activation == "swiglu":
                gate, up = value.chunk(2, dim=-1)
                value = torch.nn.functional.silu(gate) * up
            d[at] = value
        return d

    def check(self) -> None:
        expected = self.expected()
        if self.activation == "none":
            assert torch.equal(self.out.double(), expected.to(self.out_kind).double())
        else:
            torch.testing.assert_close(self.out.double(), expected, rtol=1e-2, atol=1e-2)
        frame = self.buffer.numel() - self.out.numel()
        inside = (self.out == CANARY).sum()
        assert (self.buffer == CANARY).sum() - inside == frame, "D's frame was written to"


def run(*args, **given) -> None:
    case = Case(*args, **given)
    case.run()
    case.check()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("form", "mnk")
@pytest.mark.parametrize("sizes", SIZES)
def test_bounds(form, bounds, sizes, kernel):
    for wide in (False, True):
        groups = Groups(SIZES[sizes], bounds, wide)
        run(form, groups, kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("form", "mnk")
def test_layouts_and_dtypes(form, dtype, kernel):
    for majors in ((True, True), (True, False), (False, True), (False, False)):
        for out in {dtype, "float32"}:
            groups = Groups(SIZES["ragged"], slack=5)
            run(form, groups, 72, 130, 200, dtype, out, majors=majors, kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", "mnk")
def test_split_k(form, mode, kernel):
    skip_unless_served(kernel, mode)
    options = {"kernel": kernel, **split(mode)}
    for sizes in ("ragged", "skewed"):
        case = Case(form, Groups(SIZES[sizes]), 200, 264, 2064, out_dtype="float32", **options)
        case.run()
        case.check()
        first = case.buffer.clone()
        case.run()
        assert torch.equal(first, case.buffer), "two runs differ"


@pytest.mark.parametrize("form", "mnk")
@pytest.mark.parametrize("given", [{"bias": True}, {"beta": 2.0}, {"zero_rest": True}], ids=str)
def test_epilogue(form, given):
    if form == "k" and "zero_rest" in given:
        pytest.skip("groups of K leave nothing of D out")
    for bounds in BOUNDS:
        run(form, Groups(SIZES["ragged"], bounds), 136, 264, 128, **given)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("majors", [(True, True), (True, False)])
def test_swiglu(majors, kernel):
    for bias in (False, True):
        groups = Groups(SIZES["ragged"])
        run("m", groups, n=264, k=72, activation="swiglu", majors=majors, bias=bias, kernel=kernel)


@pytest.mark.parametrize("majors", [(True, True), (True, False)])
def test_swiglu_whose_ups_begin_beside_a_multiple_of_16_bytes(majors):
    """B's lines do begin at such."""
    run("m", Groups(SIZES["ragged"]), n=260, k=72, activation="swiglu", majors=majors)


@pytest.mark.parametrize("count", [1, 31, 33, 256, 1024])
@pytest.mark.parametrize("form", "mnk")
def test_many_groups(form, count):
    draw = random.Random(count)
    sizes = [draw.choice([0, 1, 2, 5, 70]) for _ in range(count)]
    run(form, Groups(sizes), 64, 64, 64)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize("form", "mnk")
def test_row_scales(form, dtype):
    skip_unless_served("auto", dtype=dtype)
    groups = Groups(SIZES["ragged"], "aligned_ends")
    case = Case(form, groups, 128, 256, 256, dtype, "bfloat16")
    m, n, count = case.out.shape[-2], case.out.shape[-1], groups.count

    def scales(grouped: bool, size: int) -> torch.Tensor:
        shape = (size,) if grouped else (count, size)
        return 2.0 ** torch.randint(-2, 3, shape, device="cuda")

    scale_a, scale_b = scales(form == "m", m), scales(form == "n", n)
    case.run(scale_a=scale_a, scale_b=scale_b)
    result = case.out.double()
    case.given = {}
    plain = case.expected()
    for g, (begin, end) in enumerate(groups.ranges):
        part = slice(begin, end)
        rows = scale_a[part] if form == "m" else scale_a[g]
        columns = scale_b[part] if form == "n" else scale_b[g]
        at = {"m": (part,), "n": (slice(None), part), "k": (g,)}[form]
        want = plain[at] * rows.double()[:, None] * columns.double()[None]
        assert torch.equal(result[at], want.to(torch.bfloat16).double())


@pytest.mark.parametrize("mode", ["none", "stream_k"])
@pytest.mark.parametrize("form", "mk")
def test_block_scales(form, mode):
    skip_unless_served("auto", dtype="float8_e4m3fn")
    groups = Groups(SIZES["ragged"], "aligned_ends", slack=128)
    extent = groups.extent + -groups.extent % 128
    groups.extent = extent
    groups.rest = torch.cat([groups.rest, groups.rest.new_ones(extent - len(groups.rest))])
    case = Case(form, groups, 128, 256, 2176, "float8_e4m3fn", "bfloat16", **split(mode))
    m, k = case.a.shape
    n = case.out.shape[-1]
    scale_a = 2.0 ** torch.randint(-2, 3, (-(-k // 128), m), device="cuda")
    if form == "m":
        scale_b = 2.0 ** torch.randint(-2, 3, (groups.count, k // 128, -(-n // 128)), device="cuda")
    else:
        scale_b = 2.0 ** torch.randint(-2, 3, (k // 128, n), device="cuda")
    case.run(scale_a=scale_a.T, scale_b=scale_b)
    result = case.out.double()
    spread_a = scale_a.T.double().repeat_interleave(128, 1)[:, :k]
    a = case.a.double() * spread_a
    b = case.b.double()
    b *= (
        scale_b.double().repeat_interleave(128, -2) * 1.0
        if form == "k"
        else (scale_b.double().repeat_interleave(128, -2).repeat_interleave(128, -1)[..., :n])
    )
    for g, (begin, end) in enumerate(groups.ranges):
        part = slice(begin, end)
        want = a[part] @ b[g] if form == "m" else a[:, part] @ b[part]
        got = result[part] if form == "m" else result[g]
        assert torch.equal(got, want.to(torch.bfloat16).double())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", "mnk")
def test_wrong_offsets_stay_inside(form, mode, kernel):
    """Garbage in, garbage out, but only into D."""
    skip_unless_served(kernel, mode)
    options = {"kernel": kernel, **split(mode)}
    groups = Groups([64] * 12)
    groups.rest[:] = False
    draw = torch.Generator().manual_seed(0)
    for _ in range(4):
        wrong = torch.randint(-(2**31), 2**31 - 1, (12,), generator=draw).int()
        overlapping = torch.tensor([768, 0] * 6).int()
        for offs in (wrong, wrong % 900, overlapping):
            case = Case(form, groups, 64, 72, 64, **options)
            groups.keywords["offs"] = offs.cuda()
            case.run()
            torch.cuda.synchronize()
            frame = case.buffer.numel() - case.out.numel()
            outside = (case.buffer == CANARY).sum() - (case.out == CANARY).sum()
            assert outside == frame


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_last_groups_are_empty_and_k_ends_anywhere(kernel):
    """The zeros of an empty group are loaded from where TMA may load, not from the end of K."""
    ends, rows = [202, 424, 513, 513, 513], [(0, 202), (208, 424), (424, 513)]
    a = torch.randn(283, 520, device="cuda", dtype=torch.half)[:, :513]
    b = torch.randn(40, 520, device="cuda", dtype=torch.half)[:, :513].T
    offs = torch.tensor(ends, dtype=torch.int32, device="cuda")
    out = cleave.grouped_gemm(a, b, offs=offs, alignment=8, kernel=kernel)
    for got, (begin, end) in zip(out, rows, strict=False):
        want = a[:, begin:end].double() @ b[begin:end].double()
        torch.testing.assert_close(got.double(), want, rtol=2e-3, atol=2e-2)
    assert not out[3:].any()


@pytest.mark.parametrize("form", "mk")
def test_a_captured_graph_follows_new_offsets(form):
    groups = Groups([100, 20, 0, 200], slack=120)
    case = Case(form, groups, 128, 256, 256)
    offs = groups.keywords["offs"]
    case.a.nan_to_num_(0)
    case.b.nan_to_num_(0)
    case.run()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        case.run()
        with torch.cuda.graph(graph, stream=stream):
            case.run()
    for ends in ([1, 2, 3, 4], [440, 440, 440, 440], [0, 0, 0, 300], [10, 130, 131, 320]):
        case.buffer.fill_(CANARY)
        offs.copy_(torch.tensor(ends))
        groups.ranges = list(zip([0, *ends], ends, strict=False))
        graph.replay()
        torch.cuda.synchronize()
        case.check()


def test_accumulation_into_main_grad():
    groups = Groups(SIZES["skewed"])
    dy = integers((groups.extent, 192), torch.bfloat16, True)
    x = integers((groups.extent, 136), torch.bfloat16, True)
    grad = torch.ones(groups.count, 192, 136, device="cuda")
    for step in range(2):
        cleave.grouped_gemm_wgrad(dy, x, out=grad, accumulate=True, **groups.keywords)
        for g, (begin, end) in enumerate(groups.ranges):
            want = 1 + (step + 1) * dy[begin:end].double().T @ x[begin:end].double()
            assert torch.equal(grad[g].double(), want)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", ["none", "parallel", "stream_k"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
def test_groups_of_k_that_lie_apart(dtype, mode, kernel):
    """In one launch, of sizes that the GPU alone knows and that change between replays."""
    skip_unless_served(kernel, mode, str(dtype).removeprefix("torch."))
    room, m, n = 2048, 320, 264
    scaled = dtype.itemsize == 1

    def apart(x, ranges):  # what rows have room for beyond the group's size is NaN
        lines = torch.full((x.shape[0] * room,), float("nan"), device="cuda").to(dtype)
        for begin, end in ranges:
            own = -(-(end - begin) // 128) * 128
            part = lines[begin * x.shape[0] : (begin + own) * x.shape[0]].view(torch.uint8 if scaled else dtype)
            part.view(x.shape[0], own)[:, : end - begin] = x[:, begin:end].view(part.dtype)
        return lines

    a, b = (integers((rows, room), dtype, True) for rows in (m, n))
    scale_a, scale_b = (2.0 ** torch.randint(-2, 3, (rows, room // 128), device="cuda") for rows in (m, n))
    scales = {"scale_a": scale_a, "scale_b": scale_b.T} if scaled else {}
    offs = torch.zeros(6, dtype=torch.int32, device="cuda")
    flat_a, flat_b = apart(a, []), apart(b, [])
    d = torch.empty(6, m, n, device="cuda")

    def run():
        cleave.grouped_gemm(flat_a, flat_b, offs, alignment=128, out=d, kernel=kernel, split_k_mode=mode, **scales)

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    wide_a, wide_b = a.double(), b.double()
    if scaled:
        wide_a, wide_b = (
            x * scale.double().repeat_interleave(128, 1) for x, scale in ((wide_a, scale_a), (wide_b, scale_b))
        )
    for sizes in ([128, 0, 384, 256, 640, 128], [0, 0, 2048, 0, 0, 0], [1, 127, 129, 600, 0, 300], [0] * 6):
        begin, ranges = 0, []
        for size in sizes:
            begin = -(-begin // 128) * 128
            ranges.append((begin, begin + size))
            begin += size
        offs.copy_(torch.tensor([end for _, end in ranges]))
        flat_a.copy_(apart(a, ranges))
        flat_b.copy_(apart(b, ranges))
        for call in (run, graph.replay):
            d.fill_(CANARY)
            call()
            for own, (first, end) in zip(d, ranges, strict=True):
                assert torch.equal(own.double(), wide_a[:, first:end] @ wide_b[:, first:end].T)


def test_results_repeat_bitwise():
    groups = Groups([500, 3, 900, 64, 0, 257])
    dy = torch.randn(groups.extent, 512, device="cuda").bfloat16()
    x = torch.randn(groups.extent, 384, device="cuda").bfloat16()
    first = cleave.grouped_gemm_wgrad(dy, x, **groups.keywords)
    for _ in range(50):
        again = cleave.grouped_gemm_wgrad(dy, x, **groups.keywords)
        assert torch.equal(first, again)
