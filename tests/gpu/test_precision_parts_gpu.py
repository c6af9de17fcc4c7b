"""float32 multiplied in parts: exact where sums are, else within what parts explain; infinities and NaNs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import conv_cases as conv  # noqa: E402
import float32_errors  # noqa: E402
import test_grouped_gpu as grouped  # noqa: E402
from one_tap import one_tap  # noqa: E402
from products import Product  # noqa: E402
from served import skip_unless_served  # noqa: E402
from test_gemm_gpu import LAYOUTS, MODES, SHAPES, split  # noqa: E402

import cleave  # noqa: E402

PARTS = ("tf32x3", "bf16x3")
pytestmark = pytest.mark.parametrize("precision", PARTS)


# --- whole numbers, which are their high parts ---


@pytest.mark.parametrize("mode", MODES)
def test_modes_and_layouts(mode: str, precision: str) -> None:
    skip_unless_served("portable", mode)
    for layout in LAYOUTS:
        for m, n, k in SHAPES:
            product = Product(
                m, n, k, dtype="float32", layout=layout, padding=7,
                options={"precision": precision} | split(mode),
            )  # fmt: skip
            product.run()
            product.check()


@pytest.mark.parametrize("form", "mnk")
def test_groups(form: str, precision: str) -> None:
    for majors in ((True, True), (False, False)):
        groups = grouped.Groups(grouped.SIZES["ragged"], slack=5)
        grouped.run(form, groups, 72, 130, 200, "float32", majors=majors, precision=precision)


@pytest.mark.parametrize("kind", conv.KINDS)
def test_convolutions(kind: str, precision: str) -> None:
    for name in conv.CASES:
        conv.Case(kind, conv.CASES[name], "float32", options={"precision": precision}).check()


# --- random numbers, whose low parts count ---


def assert_in_parts(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor, precision: str) -> None:
    """Beside what parts and float32 sums explain, the tensor cores cut off up to 12 sums of a k block of 32
    elements, each by 2^-23 of the magnitudes so far, which are at most sqrt(32) of the root of their squares;
    Hoeffding's 7.2 as in the bound.
    """
    x, y = a.double(), b.double()
    squares = (x * x) @ (y * y)
    cut_off = 7.2 * 12 * 2.0**-23 * 32**0.5 * squares.sqrt()
    error = (result.double() - x @ y).abs() / (float32_errors.bound(a.shape[-1], squares, precision) + cut_off)
    assert error.max() <= 1, f"{error.max()} of what parts explain"


@pytest.mark.parametrize("mode", MODES)
def test_error_against_float64(mode: str, precision: str) -> None:
    skip_unless_served("portable", mode)
    for m, n, k in ((128, 128, 16384), (1024, 512, 1000)):
        for layout in LAYOUTS:
            a = torch.randn(m, k, device="cuda") if layout[0] == "t" else torch.randn(k, m, device="cuda").mT
            b = torch.randn(n, k, device="cuda").mT if layout[1] == "n" else torch.randn(k, n, device="cuda")
            made = cleave.gemm(a, b, precision=precision, **split(mode))
            assert_in_parts(made, a, b, precision)
            assert torch.equal(cleave.gemm(a, b, precision=precision, **split(mode)), made)
            with pytest.raises(AssertionError, match="of what parts explain"):
                assert_in_parts(cleave.gemm(a, b, kernel="portable", **split(mode)), a, b, precision)


def test_sums_of_one_sign_lose_little(precision: str) -> None:
    """The tensor cores cut off, always down: did float32 not take over after every k block, 16384 products
    would lose 1e-5."""
    a, b = torch.rand(128, 16384, device="cuda") + 1, torch.rand(16384, 128, device="cuda") + 1
    exact = a.double() @ b.double()
    error = (cleave.gemm(a, b, precision=precision).double() - exact) / exact
    assert error.abs().max() < float32_errors.PRODUCTS[precision] + 2e-6


@pytest.mark.parametrize("kind", conv.KINDS)
def test_error_of_convolutions(kind: str, precision: str) -> None:
    assert_in_parts(*one_tap(kind, precision=precision), precision)


# --- numbers at the ends ---


def test_what_is_not_finite_is_as_on_the_host(precision: str) -> None:
    """Where an infinity meets a low part of 0, or of the other sign, and beside it."""
    a, b = torch.randn(70, 200), torch.randn(200, 50)
    inf = float("inf")
    for row, value in ((1, inf), (18, -inf), (35, float("nan")), (60, 3.4028e38)):
        a[row, row] = value
    a[36, 36:38] = torch.tensor([0x7F800001, 0x7FFFFFFF], dtype=torch.int32).view(torch.float32)  # NaNs
    b[70, 3], b[90, 9], b[18, 11] = inf, float("nan"), 0.0
    b[1, :20] = torch.linspace(-2, 2, 20)
    expected = cleave.gemm(a, b, precision=precision)
    made = cleave.gemm(a.cuda(), b.cuda(), precision=precision).cpu()
    assert expected.isinf().any() and expected.isnan().any() and expected.isfinite().sum() > 3000
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-3, equal_nan=True)


def test_parts_are_those_of_the_host(precision: str) -> None:
    """Nothing of one product is rounded but the parts: subnormal numbers', too.

    Four columns: to a sanitizer, cp.async reads 16 bytes also where it is told to read fewer.
    """
    bits = torch.randint(0, 2**31, (10000,), dtype=torch.int64)
    bits[:3000] %= 0x01000000
    x = (bits % 0x7F7F0000).to(torch.int32).view(torch.float32).view(-1, 1)
    one = torch.ones(1, 4)
    expected = cleave.gemm(x, one, precision=precision)
    made = cleave.gemm(x.cuda(), one.cuda(), precision=precision).cpu()
    assert torch.equal(made, expected)


def test_graphs_and_the_context(precision: str) -> None:
    import cleave.torch

    a, b = torch.randn(200, 512, device="cuda"), torch.randn(512, 96, device="cuda")
    out = torch.empty(200, 96, device="cuda")

    def multiply() -> Any:
        with cleave.torch.float32_precision(precision):
            torch.ops.cleave.gemm.out(a, b, out=out)

    multiply()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        multiply()
    for _ in range(2):
        a.normal_()
        graph.replay()
        assert torch.equal(out, cleave.gemm(a, b, precision=precision))
