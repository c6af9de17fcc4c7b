"""Rounding: no worse than cuBLAS on the same inputs, and the same from run to run."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from products import DTYPES  # noqa: E402
from served import skip_unless_served  # noqa: E402
from test_gemm_gpu import KERNELS, MODES, split  # noqa: E402

import cleave  # noqa: E402

SHAPES = ((128, 128, 16384), (256, 512, 4096), (1024, 1024, 1024))


@pytest.fixture(autouse=True)
def tf32() -> None:
    """cuBLAS multiplies float32 as the tensor cores do, too."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_error_against_float64(kernel: str, mode: str, dtype: str) -> None:
    skip_unless_served(kernel, mode, dtype)
    for m, n, k in SHAPES:
        a = torch.randn(m, k, device="cuda").to(DTYPES[dtype])
        b = torch.randn(n, k, device="cuda").to(DTYPES[dtype]).mT
        exact = a.double() @ b.double()
        theirs = (torch.matmul(a, b).double() - exact).abs()
        ours = (cleave.gemm(a, b, kernel=kernel, **split(mode, 8)).double() - exact).abs()
        rounding = exact.abs().max() * 2.0**-24  # one rounding of the largest sum
        assert ours.max() <= 1.05 * theirs.max() + rounding
        assert ours.mean() <= 1.05 * theirs.mean() + 2.0**-24


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
def test_repeatable_bit_by_bit(kernel: str, mode: str) -> None:
    skip_unless_served(kernel, mode)
    a = torch.randn(200, 9000, device="cuda").half()
    b = torch.randn(300, 9000, device="cuda").half().mT
    options = {"kernel": kernel, "out_dtype": "float32", **split(mode, 7)}
    first = cleave.gemm(a, b, **options)
    noise = torch.randn(4096, 4096, device="cuda")
    for i in range(20):
        if i % 2:  # other work on the GPU shifts which block finishes first
            with torch.cuda.stream(torch.cuda.Stream()):
                noise @ noise
        assert torch.equal(cleave.gemm(a, b, **options), first)
