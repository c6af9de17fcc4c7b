"""cleave.scaled_gemm of random operands on the GPU, against float64 and beside torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from products import spread  # noqa: E402
from scaled_products import E4M3, KINDS, random_operands, random_scales  # noqa: E402
from served import is_hopper, skip_unless_served  # noqa: E402
from test_gemm_gpu import KERNELS, MODES, split  # noqa: E402

import cleave  # noqa: E402
from cleave import _core  # noqa: E402
from cleave.compat import torch as compat_torch  # noqa: E402


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn])
@pytest.mark.parametrize("scale_result", [None, 0.25])
def test_scaled_mm_of_tensors_is_torchs(out_dtype: torch.dtype, scale_result: float | None) -> None:
    skip_unless_served("auto", dtype=E4M3)
    a, b = random_operands(128, 256, 512, E4M3)
    scale = torch.tensor(0.5, device="cuda")
    result = None if scale_result is None else torch.tensor(scale_result, device="cuda")
    arguments = (a, b, scale, scale, None, result, out_dtype, True)
    theirs, ours = torch._scaled_mm(*arguments), compat_torch._scaled_mm(*arguments)
    assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=2 * torch.finfo(out_dtype).eps + 1e-3, atol=0.05)


def test_scaled_mm_of_rows_and_blocks_is_torchs() -> None:
    if not is_hopper():
        pytest.skip("torch has these on Hopper GPUs")
    m, n, k = 128, 256, 512
    a, b = random_operands(m, n, k, E4M3)
    by_column = torch.rand(4, m, device="cuda").mT
    for scale_a, scale_b in (
        random_scales(("row", "row"), m, n, k),
        (by_column, torch.rand(4, n, device="cuda")),
        (by_column, torch.rand(2, 4, device="cuda").mT),
    ):
        arguments = (a, b, scale_a, scale_b.contiguous() if len(scale_b) == 1 else scale_b)
        theirs = torch._scaled_mm(*arguments, out_dtype=torch.bfloat16)
        ours = compat_torch._scaled_mm(*arguments, out_dtype=torch.bfloat16)
        torch.testing.assert_close(ours, theirs, rtol=2**-6, atol=0.05)


def test_int_mm_is_torchs() -> None:
    a, b = random_operands(128, 256, 512, "int8")
    assert torch.equal(compat_torch._int_mm(a, b), torch._int_mm(a, b))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_error_against_float64(kernel: str, mode: str, kind: dict) -> None:
    """The dequantised operands' product, in each row and as a whole."""
    dtype, scaling = kind["dtype"], kind["scaling"]
    skip_unless_served(kernel, mode, dtype)
    fast = kind.get("options", {}).get("use_fast_accum", False)
    for m, n, k in ((64, 512, 7168), (256, 256, 2048), (200, 136, 1040)):
        a, b = random_operands(m, n, k, dtype)
        scale_a, scale_b = random_scales(scaling, m, n, k)
        exact = (a.double() * spread(scale_a, m, k)) @ (b.double() * spread(scale_b.mT, n, k).mT)
        d = cleave.scaled_gemm(
            a, b, scale_a, scale_b, out_dtype="float32", use_fast_accum=fast, kernel=kernel,
            **split(mode, 4),
        )  # fmt: skip
        error = (d.double() - exact).abs()
        # For int8 a few float32 roundings; for 8-bit floats what the tensor cores drop within 128
        # elements of K (or, fast, from first to last).
        relative = 2.0**-21 if dtype == "int8" else 2.0**-6 if fast else 2.0**-10
        assert (error.amax(1) <= relative * exact.abs().amax(1)).all()
        assert error.mean() <= relative / 4 * exact.abs().mean()


@pytest.mark.parametrize("rows", ["1x128", "128x128"])
@pytest.mark.parametrize("mode", ["none", "serial", "stream_k", "auto"])
def test_tall_tiles(mode: str, rows: str) -> None:
    """192 rows, which three warpgroups share, where A's scales allow them; units of few k blocks
    follow each other quickly."""
    skip_unless_served("sm90")
    m, n, k = 2112, 4096, 512
    a, b = random_operands(m, n, k, E4M3)
    scale_a, scale_b = random_scales((rows, "128x128"), m, n, k)
    exact = (a.double() * spread(scale_a, m, k)) @ (b.double() * spread(scale_b.mT, n, k).mT)
    out = torch.empty(m, n, device="cuda")
    plan = cleave.plan_scaled_gemm(a, b, scale_a, scale_b, out=out, **split(mode, 2))
    if mode == "none":
        tall = [c["kernel"] for c in plan.candidates if "192x128" in c["kernel"]]
        assert bool(tall) == (rows == "1x128")
        plan = _core.plan_as(plan, tall[0]) if tall else plan
    first = None
    for _ in range(20):
        out.fill_(float("nan"))
        plan.run(a, b, scale_a=scale_a, scale_b=scale_b, out=out)
        first = out.clone() if first is None else first
        assert torch.equal(out, first)
    assert ((out - exact).abs().amax(1) <= 2.0**-10 * exact.abs().amax(1)).all()


def test_promotion_is_more_accurate_than_fast_accumulation() -> None:
    if not is_hopper():
        pytest.skip("needs a Hopper GPU, whose tensor cores sum 8-bit floats in few bits")
    a, b = random_operands(256, 256, 16384, E4M3)
    one = torch.ones(1, device="cuda")
    exact = a.double() @ b.double()
    promoted, fast = (
        (cleave.scaled_gemm(a, b, one, one, out_dtype="float32", use_fast_accum=f) - exact).abs().mean()
        for f in (False, True)
    )
    assert promoted < fast / 4
