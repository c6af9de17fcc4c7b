"""Scaled convolutions on the GPU: every kernel and mode, 8-bit results too, against float64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conv_cases import KERNELS  # noqa: E402
from conv_reference import Convolution  # noqa: E402
from served import is_hopper  # noqa: E402
from test_gemm_gpu import split  # noqa: E402

import cleave  # noqa: E402
from cleave.testing.conv_axis import Axis  # noqa: E402

DTYPES = {"int8": torch.int8, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
PLAIN = Axis(14, 3, 1, 1, 1)
CASES = {
    "3x3": Convolution(2, 128, 136, (PLAIN, Axis(9, 3, 2, 1, 1))),
    "1x1": Convolution(3, 256, 64, (Axis(14), Axis(15))),
    "few channels": Convolution(2, 16, 64, (Axis(17, 5, 2, 2, 2), PLAIN)),
    "unaligned": Convolution(2, 12, 24, (PLAIN, PLAIN)),
    "groups": Convolution(2, 256, 128, (PLAIN, PLAIN), groups=2),
    "causal": Convolution(1, 128, 64, (Axis(5, 3, 1, 2, 0), PLAIN, Axis(9, 3, 2, 1, 1))),
    "1-D": Convolution(3, 64, 64, (Axis(200, 9, 4, 8, 0),)),
}


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    first, channels, *axes = shape
    values = torch.randn(first, *axes, channels, device="cuda") * (30 if dtype == torch.int8 else 1)
    return values.to(dtype).movedim(-1, 1)


def reference(convolution: Convolution, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    axes = convolution.axes
    pads = [p for axis in reversed(axes) for p in (axis.before, axis.after)]
    convolve = getattr(torch.nn.functional, f"conv{len(axes)}d")
    stride, dilation = [a.stride for a in axes], [a.dilation for a in axes]
    return convolve(torch.nn.functional.pad(x, pads), w, None, stride, 0, dilation, convolution.groups)


@pytest.mark.parametrize("mode", ["none", "serial", "parallel", "cluster", "stream_k"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_against_float64(name: str, dtype: str, kernel: str, mode: str) -> None:
    if kernel == "sm90" and (name == "unaligned" or not is_hopper()):
        pytest.skip("not served by that kernel")
    if mode == "cluster" and kernel == "portable":
        pytest.skip("clusters are Hopper's")
    torch.manual_seed(0)
    convolution, type_ = CASES[name], DTYPES[dtype]
    x, w = (drawn(convolution.shapes[which], type_) for which in ("input", "weight"))
    scale_a, scale_b = torch.rand((), device="cuda") + 0.5, torch.rand(convolution.filters, device="cuda") + 0.5
    bias = torch.randn(convolution.filters, device="cuda")
    function = getattr(cleave, f"scaled_conv{len(convolution.axes)}d")
    per_filter = scale_b.double().view(-1, *[1] * (w.dim() - 1))
    want = reference(convolution, x.double() * scale_a.double(), w.double() * per_filter)
    want = (want + bias.double().view(-1, *[1] * (w.dim() - 2))).relu()
    options: dict[str, Any] = {"activation": "relu", "kernel": kernel, **convolution.geometry, **split(mode)}
    largest = want.abs().max().item()
    for out_dtype, accuracy in ((torch.float32, 2e-3 if dtype != "int8" else 1e-5), (torch.bfloat16, 8e-3)):
        out = drawn(tuple(want.shape), out_dtype).fill_(float("nan"))
        for _ in range(2):  # the second run meets the counters that the first one leaves
            function(x, w, scale_a, scale_b, bias, out=out, **options)
            assert (out.double() - want).abs().max().item() <= accuracy * largest
            out.fill_(float("nan"))
    amax, scale_d = torch.zeros(1, device="cuda"), torch.full((1,), largest / 100, device="cuda")
    q = function(x, w, scale_a, scale_b, bias, out_dtype=type_, scale_d=scale_d, amax=amax, **options)
    half_step = {"int8": 0.5, "e4m3": 4, "e5m2": 8}[dtype]  # of values from 64 to 100
    assert (q.double() - want / scale_d.double()).abs().max().item() <= half_step + 100 * (
        1e-5 if dtype == "int8" else 2e-3
    )
    assert abs(amax.item() - largest) <= 2e-3 * largest
