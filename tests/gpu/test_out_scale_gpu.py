"""D in 8 bits with scales that the product finds, on the GPU: bit by bit what `quantize` makes of D in float32."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cleave  # noqa: E402
from cleave import _core  # noqa: E402

E4M3 = torch.float8_e4m3fn
OPERANDS = ("bfloat16", "rows", "fast rows", "blocks", "columns of blocks", "int8")
MODES = ("auto", "none", "serial", "parallel", "stream_k")


def exact(*shape: int) -> torch.Tensor:
    """Small multiples of 1/4: sums are exact and equal however K is cut."""
    return torch.randint(-3, 4, shape, device="cuda").float() / 4


def powers(*shape: int) -> torch.Tensor:
    return 2.0 ** torch.randint(-1, 2, shape, device="cuda")


def operands(kind: str, m: int, n: int, k: int, groups: int | None) -> tuple[Any, Any, dict[str, Any]]:
    batch = () if groups is None else (groups,)
    a, b = exact(m, k), exact(*batch, n, k)
    if kind == "bfloat16":
        return a.bfloat16(), b.bfloat16().mT, {}
    if kind == "int8":
        a, b = a * 4, b * 4
    dtype = torch.int8 if kind == "int8" else E4M3
    blocks = -(-k // 128)
    if "blocks" in kind:
        columns = n if kind == "columns of blocks" else -(-n // 128)
        scales = {"scale_a": powers(m, blocks), "scale_b": powers(*batch, columns, blocks).mT}
    else:
        scales = {"scale_a": powers(m), "scale_b": powers(*batch, n)}
    if kind == "fast rows":
        scales["use_fast_accum"] = True
    return a.to(dtype), b.to(dtype).mT, scales


def multiply(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None, options: dict[str, Any]) -> Any:
    if offs is not None:
        return cleave.grouped_gemm(a, b, offs, **options)
    if a.itemsize > 1:
        return cleave.gemm(a, b, **options)
    scales = options.pop("scale_a"), options.pop("scale_b")
    return cleave.scaled_gemm(a, b, *scales, **options)


def spread(scale: torch.Tensor, n: int) -> torch.Tensor:
    """A scale for each element of its 128 columns."""
    return scale.repeat_interleave(128, 1)[:, :n]


# By the bits of float64, since a GPU's log2 of a power of two need not be a whole number. For x > 0.
MANTISSA = 2**52 - 1


def power_below(x: torch.Tensor) -> torch.Tensor:
    """The greatest power of two that is not above x."""
    return (x.double().view(torch.int64) & ~MANTISSA).view(torch.float64)


def power_above(x: torch.Tensor) -> torch.Tensor:
    """The least power of two that is not below x."""
    return ((x.double().view(torch.int64) + MANTISSA) & ~MANTISSA).view(torch.float64)


def check_rounding(d: torch.Tensor, scale: torch.Tensor, wide: torch.Tensor, ue8m0: bool) -> None:
    """`wide`: D of another kernel, whose exp and division may differ in their last bits: by 2^-18 where it matters, as
    what exp makes of a gate below -32 is far below half of e4m3's smallest value."""
    apart, n = 2.0**-18, wide.shape[1]
    padded = torch.nn.functional.pad(wide.double().abs(), (0, -n % 128))
    ideal = padded.view(wide.shape[0], -1, 128).amax(2) / 448
    if ue8m0:
        found = scale[scale > 0].double()
        assert torch.equal(found, power_above(found))
        assert (ideal * (1 - apart) <= scale).all() and (scale / 2 <= ideal * (1 + apart)).all()
    else:
        torch.testing.assert_close(scale.double(), ideal, rtol=apart, atol=0)
    stored = (wide / spread(scale.where(scale > 0, 1), n).double()).clamp(-448, 448)
    half_unit = power_below(stored.abs().clamp(min=2.0**-6)) / 16  # e4m3's mantissa has 3 bits
    assert ((d.double() - stored).abs() <= half_unit + apart * stored.abs()).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", OPERANDS)
@pytest.mark.parametrize("activation", ["none", "relu", "swiglu"])
@pytest.mark.parametrize("grouped", [False, True])
def test_equals_quantize_of_float32(kind: str, activation: str, mode: str, grouped: bool) -> None:
    unserved = "parallel", "stream_k" if kind == "columns of blocks" else None
    if grouped and activation == "swiglu" and mode in unserved:
        pytest.skip("gates of groups that become 8 bits leave no registers for it")
    torch.manual_seed(0)
    for m, n, k in [(16, 384, 1024), (130, 640, 256)]:
        groups = 3 if grouped else None
        columns = 2 * n if activation == "swiglu" else n
        a, b, scales = operands(kind, m, columns, k, groups)
        offs = torch.tensor([m // 3, m // 3, m - 5], dtype=torch.int32, device="cuda") if grouped else None
        options = {"activation": activation, "bias": exact(columns), "split_k_mode": mode, **scales}
        if mode in ("serial", "parallel"):
            options["split_k_slices"] = 2
        wide = multiply(a, b, offs, {**options, "out_dtype": torch.float32})
        found = {"out_dtype": E4M3, "out_scale": "block_1x128"}
        # Powers of two are kernels of their own: where K is not split, and where parts of tiles are dealt.
        forms = {"none": (("k", False), ("mn", True)), "parallel": (("mn", True),)}.get(mode, (("mn", False),))
        for major, ue8m0 in forms:
            d, scale = multiply(a, b, offs, {**options, **found, "scale_major": major, "use_ue8m0": ue8m0})
            if activation == "swiglu":
                check_rounding(d, scale, wide, ue8m0)
                continue
            q, expected = cleave.quantize(wide, E4M3, "block_1x128")
            if ue8m0:
                expected = torch.where(expected > 0, power_above(expected), 0).float()
                q = (wide / spread(expected.where(expected > 0, 1), n)).to(E4M3)
            assert torch.equal(scale, expected)
            assert torch.equal(d.view(torch.uint8), q.view(torch.uint8))


def in_form(plan: Any, words: str) -> Any:
    """The plan as the best of its candidates whose last words these are."""
    ends = [
        each["kernel"]
        for each in plan.candidates
        if set(each["kernel"].split()) & {"apart", "halves"} == {*words.split()}
    ]
    return _core.plan_as(plan, ends[0])


@pytest.mark.parametrize("kind", OPERANDS)
@pytest.mark.parametrize("activation", ["none", "swiglu"])
def test_quantised_apart(kind: str, activation: str) -> None:
    """In two launches, captured or not, D has the bits that it has in one, whosever the workspace is."""
    torch.manual_seed(1)
    m, n, k = 70, 640, 512
    columns = 2 * n if activation == "swiglu" else n
    a, b, scales = operands(kind, m, columns, k, None)
    fast = {"use_fast_accum": True} if scales.pop("use_fast_accum", False) else {}
    arrays = {"bias": exact(columns), **scales}
    options = {"activation": activation, "out_dtype": E4M3, "out_scale": "block_1x128", "use_ue8m0": kind == "int8"}
    plan_of = cleave.plan_scaled_gemm if scales else cleave.plan_gemm
    planned = plan_of(a, b, **arrays, **options, **fast)
    d, scale = in_form(planned, "").run(a, b, **arrays)
    for words in ("apart", "apart halves")[: 2 if activation == "swiglu" else 1]:
        plan = in_form(planned, words)
        assert plan.workspace_size >= 4 * m * n
        graph = torch.cuda.CUDAGraph()
        again = plan.run(a, b, **arrays)
        with torch.cuda.graph(graph):
            captured = plan.run(a, b, **arrays)
        for result in captured:
            result.view(torch.uint8).fill_(0x55)
        graph.replay()
        given = torch.zeros(plan.workspace_size, dtype=torch.uint8, device="cuda")
        for made in (again, captured, plan.run(a, b, workspace=given, **arrays)):
            assert torch.equal(made[1], scale) and torch.equal(made[0].view(torch.uint8), d.view(torch.uint8))


# Tiles of 64 columns of D: for int8 those that leave it registers, and three warpgroups for sums that are added apart.
PAIRED = ["64x128", "64x128 pingpong", "128x128"]
WIDER = [*PAIRED, "128x128 pingpong", "256x128"]
TILES = {"bfloat16": WIDER, "fast rows": WIDER, "blocks": [*WIDER, "192x128"], "int8": PAIRED}


@pytest.mark.parametrize(("kind", "tile"), [(kind, tile) for kind, tiles in TILES.items() for tile in tiles])
def test_scales_of_two_ctas(kind: str, tile: str) -> None:
    """Half of a scale's columns each, in tiles that follow each other; the last one's neighbour may have none."""
    torch.manual_seed(2)
    for m, n in [(2000, 1280), (70, 384)] + [(2000, 1300), (70, 300)] * (kind != "blocks"):
        a, b, scales = operands(kind, m, 2 * n, 512, None)
        fast = {"use_fast_accum": True} if scales.pop("use_fast_accum", False) else {}
        options = {"activation": "swiglu", "out_dtype": E4M3, "out_scale": "block_1x128"}
        planned = (cleave.plan_scaled_gemm if scales else cleave.plan_gemm)(a, b, **scales, **options, **fast)
        d, scale = _core.plan_as(planned, f"sm90 {tile} multicast 1x2").run(a, b, **scales)
        names = [candidate["kernel"] for candidate in planned.candidates]
        alone = next(name for name in names if not {"1x2", "apart"}.intersection(name.split()))
        expected = _core.plan_as(planned, alone).run(a, b, **scales)
        assert torch.equal(scale, expected[1]) and torch.equal(d.view(torch.uint8), expected[0].view(torch.uint8))


@pytest.mark.parametrize("mode", ["cluster", "serial"])
@pytest.mark.parametrize("n", [128, 200, 300])
def test_other_modes_and_odd_widths(mode: str, n: int) -> None:
    a, b = exact(70, 1024).bfloat16(), exact(n, 1024).bfloat16().t()
    options = {"split_k_mode": mode, "split_k_slices": 4}
    d, scale = cleave.gemm(a, b, out_dtype=E4M3, out_scale="block_1x128", **options)
    q, expected = cleave.quantize(cleave.gemm(a, b, out_dtype=torch.float32, **options), E4M3, "block_1x128")
    assert torch.equal(scale, expected) and torch.equal(d.view(torch.uint8), q.view(torch.uint8))


def test_portable_kernel_and_any_alignment() -> None:
    a, b = exact(70, 131).bfloat16(), exact(300, 131).bfloat16().t()
    out = torch.empty(70, 333, dtype=torch.int8, device="cuda")[:, 3:303]
    _, scale = cleave.gemm(a, b, out=out, out_scale="block_1x128", kernel="portable")
    q, expected = cleave.quantize(cleave.gemm(a, b, out_dtype=torch.float32), torch.int8, "block_1x128")
    assert torch.equal(scale, expected) and torch.equal(out, q)


@pytest.mark.parametrize("mode", ["none", "serial"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
def test_gates_by_the_portable_kernel(kind: str, grouped: bool, mode: str) -> None:
    """The one kernel of GPUs before Hopper: a gate, its up and all columns that share a scale are one warp's."""
    torch.manual_seed(3)
    for m, n, k in [(70, 300, 512), (16, 128, 256)]:
        a, b, scales = operands(kind, m, 2 * n, k, 3 if grouped else None)
        offs = torch.tensor([m // 3, m // 3, m - 5], dtype=torch.int32, device="cuda") if grouped else None
        options = {"activation": "swiglu", "bias": exact(2 * n), "split_k_mode": mode, "kernel": "portable", **scales}
        if mode == "serial":
            options["split_k_slices"] = 2
        wide = multiply(a, b, offs, {**options, "out_dtype": torch.float32})
        for _ in range(2):  # the second meets the counters that the first leaves
            d, scale = multiply(a, b, offs, {**options, "out_dtype": E4M3, "out_scale": "block_1x128"})
            check_rounding(d, scale, wide, False)


@pytest.mark.parametrize("mode", ["auto", "none", "serial", "parallel", "cluster", "stream_k"])
def test_weight_gradients_and_groups_of_columns(mode: str) -> None:
    torch.manual_seed(4)
    options: dict[str, Any] = {"split_k_mode": mode}
    if mode in ("serial", "parallel", "cluster"):
        options["split_k_slices"] = 2
    offs = torch.tensor([100, 100, 420], dtype=torch.int32, device="cuda")
    dy, x = exact(500, 192).bfloat16(), exact(500, 384).bfloat16()
    a, b = exact(3, 70, 256).bfloat16(), exact(256, 500).bfloat16()
    for function, arguments in ((cleave.grouped_gemm_wgrad, (dy, x, offs)), (cleave.grouped_gemm, (a, b, offs))):
        wide = function(*arguments, out_dtype=torch.float32, **options)
        d, scale = function(*arguments, out_dtype=E4M3, out_scale="block_1x128", **options)
        q, expected = cleave.quantize(wide.view(-1, wide.shape[-1]), E4M3, "block_1x128")
        assert torch.equal(scale.view(expected.shape), expected)
        assert torch.equal(d.view(q.shape).view(torch.uint8), q.view(torch.uint8))


@pytest.mark.parametrize("granularity", ["block_1x128", "row", "tensor"])
@pytest.mark.parametrize("kind", ["conv2d", "scaled_conv2d", "conv2d_dgrad", "conv_transpose2d"])
@pytest.mark.parametrize("mode", ["auto", "serial", "parallel"])
def test_convolutions(mode: str, kind: str, granularity: str) -> None:
    torch.manual_seed(5)
    dtype = E4M3 if kind == "scaled_conv2d" else torch.bfloat16
    x, w = (exact(*shape).to(dtype).movedim(-1, 1) for shape in ((2, 15, 14, 64), (64, 3, 3, 64)))
    function = getattr(cleave, kind)
    scales = (torch.rand((), device="cuda") + 0.5, torch.rand(64, device="cuda") + 0.5)
    arguments = {
        "scaled_conv2d": (x, w, *scales),
        "conv2d": (x, w),
        "conv2d_dgrad": ((2, 64, 29, 28), w, x),
        "conv_transpose2d": (x, w),
    }[kind]
    options: dict[str, Any] = {"stride": 2, "padding": 1, "split_k_mode": mode}
    if mode != "auto":
        options["split_k_slices"] = 3
    between = torch.float32 if granularity == "block_1x128" else torch.bfloat16
    wide = function(*arguments, out_dtype=between, **options)
    y, scale = function(*arguments, out_dtype=E4M3, out_scale=granularity, **options)
    rows = wide.movedim(1, -1).flatten(0, -2)
    q, expected = cleave.quantize(rows, E4M3, granularity)
    assert torch.equal(scale.movedim(1, -1).reshape(expected.shape), expected)
    assert torch.equal(y.movedim(1, -1).reshape(q.shape).view(torch.uint8), q.view(torch.uint8))
