"""cleave.quantize with a norm on the GPU: what the CPU backend gives, the same among any rows, in place, in graphs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from products import allocates, framed  # noqa: E402

import cleave  # noqa: E402

INPUTS = (torch.float16, torch.bfloat16, torch.float32)
OUTPUTS = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
GRANULARITIES = ("tensor", "row", "block_1x128")
NORMS = {"rms_norm": cleave.rms_norm, "layer_norm": cleave.layer_norm}
# Short and long, in registers as a whole and longer, aligned and not.
SHAPES = ((1, 1, 0), (3, 8, 8), (64, 4096, 0), (300, 128, 16), (257, 130, 3), (17, 2050, 0), (9, 4097, 1),
          (5, 16384, 0), (3, 20000, 0), (2, 33001, 0))  # fmt: skip
# What a q may differ by, where rounding was close: a step of the largest.
STEPS = {torch.int8: 1.0, torch.float8_e4m3fn: 32.0, torch.float8_e5m2: 8192.0}


def values(rows: int, cols: int, dtype: torch.dtype, padding: int = 0) -> torch.Tensor:
    x, _ = framed((rows, cols), dtype, float("nan"), False, padding, "cuda")
    x.copy_(torch.randn(rows, cols, device="cuda") * torch.randn(rows, 1, device="cuda").exp2() + 0.5)
    return x


def host(value: Any) -> Any:
    if isinstance(value, cleave.Norm):
        return cleave.Norm(value.kind, host(value.weight), host(value.bias), value.eps, value.zero_centered)
    return value.cpu() if torch.is_tensor(value) else value


def check(x: torch.Tensor, dtype: torch.dtype, granularity: str, given: bool = True, **options: Any) -> None:
    """Results are those of the CPU, but for what another order of the sums does to them."""
    if granularity == "tensor" and given:
        options["scale"] = torch.full((1,), 0.03 if dtype == torch.int8 else 0.01, device="cuda")
    expected = cleave.quantize(x.cpu(), dtype, granularity, **{name: host(value) for name, value in options.items()})
    made = cleave.quantize(x, dtype, granularity, **options)
    assert len(made) == len(expected)
    for i, (one, other) in enumerate(zip(made, expected, strict=True)):
        one = one.cpu()
        assert one.shape == other.shape and one.dtype == other.dtype
        if i == 0 or one.dtype == torch.int32:
            differ = (one.float() - other.float()).abs()
            assert differ.max() <= STEPS.get(one.dtype, 1.0) and (differ > 0).float().mean() < 0.01 + 2 / differ.numel()
        elif "residual" in options and one.shape == x.shape and i == 2:
            assert torch.equal(one, other)
        else:
            torch.testing.assert_close(one, other, rtol=4e-6 if one.dtype == torch.float32 else 1e-2, atol=2e-5)


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("source", INPUTS, ids=str)
def test_agrees_with_the_cpu(source: torch.dtype, granularity: str, kind: str) -> None:
    torch.manual_seed(0)
    for rows, cols, padding in SHAPES:
        x, residual = values(rows, cols, source, padding), values(rows, cols, source)
        weight = torch.randn(cols, device="cuda").to(source)
        check(x, torch.float8_e4m3fn, granularity, norm=NORMS[kind](weight))
        check(x, torch.int8, granularity, norm=NORMS[kind](weight), residual=residual)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("source", INPUTS, ids=str)
def test_a_scale_found_for_all_norms(source: torch.dtype, kind: str, symmetric: bool) -> None:
    """The second of two launches reads the sum that the first one wrote, where the residual or x was."""
    torch.manual_seed(2)
    for rows, cols, padding in SHAPES:
        x, residual = values(rows, cols, source, padding), values(rows, cols, torch.bfloat16)
        weight = torch.randn(cols, device="cuda").to(source)
        options: dict[str, Any] = {"given": False, "norm": NORMS[kind](weight), "symmetric": symmetric}
        check(x, torch.int8, "tensor", **options)
        check(x, torch.int8, "tensor", residual=residual, normed_out=torch.empty_like(x), **options)
        call = partial(cleave.quantize, x, "int8", "tensor", norm=options["norm"], symmetric=symmetric)
        expected = call(residual=residual.clone())
        in_place = call(residual=residual, residual_out=residual)
        assert in_place[-1] is residual and all(map(torch.equal, in_place, expected))


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("output", OUTPUTS, ids=str)
def test_powers_of_two(output: torch.dtype, granularity: str) -> None:
    for cols in (96, 4096, 20000):
        x = values(33, cols, torch.bfloat16)
        check(x, output, granularity, given=False, norm=cleave.rms_norm(), use_ue8m0=True)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("output", OUTPUTS, ids=str)
def test_options(output: torch.dtype, granularity: str) -> None:
    """Other types beside x's, no weight, a bias, weights less 1, zero points, 16-bit norms."""
    torch.manual_seed(1)
    for cols in (96, 4096, 5000, 20000):
        x, residual = values(33, cols, torch.bfloat16), values(33, cols, torch.float32)
        weight, bias = torch.randn(cols, device="cuda"), torch.randn(cols, device="cuda")
        check(x, output, granularity, norm=cleave.rms_norm(), normed_out=torch.empty_like(x))
        check(x, output, granularity, norm=cleave.rms_norm(weight.half(), 1e-5, zero_centered=True), residual=residual)
        norm = cleave.layer_norm(weight, bias)
        check(x, output, granularity, norm=norm, residual=residual, normed_out=torch.empty_like(x))
        if output == torch.int8 and granularity == "row":
            check(x, output, granularity, norm=norm, symmetric=False)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_row_is_the_same_among_any_rows(granularity: str) -> None:
    options = {"scale": torch.full((1,), 0.01, device="cuda")} if granularity == "tensor" else {}
    for cols in (512, 4096, 20000):
        x, residual = values(3000, cols, torch.bfloat16), values(3000, cols, torch.bfloat16)
        norm = cleave.rms_norm(torch.randn(cols, device="cuda").bfloat16())
        all_rows = cleave.quantize(x, "int8", granularity, norm=norm, residual=residual, **options)
        for rows in (1, 7, 200):
            some = cleave.quantize(x[:rows], "int8", granularity, norm=norm, residual=residual[:rows], **options)
            for one, other in zip(some, all_rows, strict=True):
                assert torch.equal(one, other[: one.shape[0]])


def test_in_place() -> None:
    for cols in (96, 4096, 20000, 20001):
        for granularity in ("row", "block_1x128"):
            x, residual = values(40, cols, torch.bfloat16), values(40, cols, torch.bfloat16)
            norm = cleave.rms_norm(torch.randn(cols, device="cuda").bfloat16())
            expected = cleave.quantize(
                x, "int8", granularity, norm=norm, residual=residual, normed_out=torch.empty_like(x)
            )
            made = cleave.quantize(
                x, "int8", granularity, norm=norm, residual=residual, residual_out=residual, normed_out=x
            )
            assert made[2] is residual and made[3] is x
            for one, other in zip(made, expected, strict=True):
                assert torch.equal(one, other)


def test_writes_nothing_else() -> None:
    for rows, cols in ((130, 257), (64, 1024), (3, 8), (2, 20000)):
        x = values(rows, cols, torch.bfloat16, 8)
        sums, sums_frame = framed((rows, cols), torch.bfloat16, 77, False, 8, "cuda")
        out, out_frame = framed((rows, cols), torch.int8, 77, False, 3, "cuda")
        cleave.quantize(x, norm=cleave.rms_norm(), residual=x, residual_out=sums, out=out)
        assert torch.equal(sums, (x.float() * 2).bfloat16())
        sums.fill_(77), out.fill_(77)
        assert (sums_frame == 77).all() and (out_frame == 77).all()


def test_a_chain_in_one_graph() -> None:
    """norm, product, norm, product: each kernel may start before the one before it has ended. The weight of the norm is
    written by the graph, too."""
    x, residual = values(64, 4096, torch.bfloat16), values(64, 4096, torch.bfloat16)
    w, scale_w = cleave.quantize(values(4096, 4096, torch.bfloat16) * 0.02, "float8_e4m3fn")
    base, gain = torch.ones(4096, device="cuda").bfloat16(), torch.randn(4096, device="cuda").bfloat16()

    def forward() -> torch.Tensor:
        norm = cleave.rms_norm(base * gain)
        h, sums = x, residual
        for _ in range(4):
            q, scale, sums = cleave.quantize(h, "float8_e4m3fn", norm=norm, residual=sums)
            h = cleave.scaled_gemm(q, w.T, scale, scale_w.T)
        return h

    expected = forward()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = forward()
    for _ in range(50):
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, expected)
    gain.copy_(torch.randn(4096))
    expected = forward()
    graph.replay()
    assert torch.equal(out, expected)


def test_runs_with_memory_of_their_own_allocate_nothing() -> None:
    x = values(64, 4096, torch.bfloat16)
    residual, norm = torch.zeros_like(x), cleave.rms_norm(x[0].clone())
    q, scale, _ = cleave.quantize(x, norm=norm, residual=residual)
    options = {"residual": residual, "residual_out": residual, "out": q, "scale_out": scale}
    assert not allocates(lambda: cleave.quantize(x, norm=norm, **options))
