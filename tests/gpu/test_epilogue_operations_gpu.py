"""Epilogue functions of every operation on the GPU, in every split mode: drawn ones against float64."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import epilogue_functions  # noqa: E402
import numpy as np  # noqa: E402
from drawn_on_gpu import MODES, drawn_operation, in_half, to_gpu  # noqa: E402
from epilogue_functions import Bounded, assert_close  # noqa: E402
from epilogue_operations import OPERATIONS, channels_last, operand  # noqa: E402
from epilogue_scaled_operations import SCALED_OPERATIONS  # noqa: E402
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402


def check(op: Any, drawn: epilogue_functions.Drawn, **options: Any) -> None:
    inputs: dict[str, Any] = {}
    exact: dict[str, Any] = {}
    for name, shape in drawn.shapes.items():
        given, values = op.inputs[shape]()
        inputs[name] = to_gpu(given) if isinstance(given, np.ndarray) else given
        exact[name] = Bounded(values, np.zeros(()))
    expected = drawn.exact(op.sums, exact)
    made = op.run(epilogue=drawn.traced()(**inputs), **options)
    for got, (name, dtype) in zip(made if len(drawn.outputs) > 1 else [made], drawn.outputs.items(), strict=True):
        dtype = dtype or options["out_dtype"]
        assert got.dtype == getattr(torch, dtype)
        placed = op.placed(got.double().cpu().numpy())
        exists = np.broadcast_to(op.exists, placed.shape)
        assert not placed[~exists].any(), "what belongs to no group is not zero"
        value, error = (np.broadcast_to(x, placed.shape) for x in (expected[name].value, expected[name].error))
        of_groups = Bounded(np.where(exists, value, 0.0), np.where(exists, error, 0.0))
        assert_close(placed, of_groups, dtype, drawn.text)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("kernel", ["auto", "portable"])
def test_drawn_functions(operation: Any, mode: str, kernel: str, seed: int) -> None:
    skip_unless_served(kernel, mode)
    random = Random(seed)
    drawn = epilogue_functions.draw(random, ("float32", "bfloat16", "float16"))
    op = drawn_operation(operation, Random(seed), seed)
    options = {"split_k_mode": mode, "kernel": kernel, "out_dtype": random.choice(["float32", "float16"])}
    if mode in op.refused_on_gpu:
        with pytest.raises(ValueError, match=mode):
            check(op, drawn, **options)
    else:
        check(op, drawn, split_k_slices=None if mode == "none" else 3, **options)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", SCALED_OPERATIONS, ids=lambda operation: operation.__name__)
def test_drawn_functions_of_8_bits(operation: Any, mode: str, seed: int) -> None:
    skip_unless_served("auto", mode, "float8_e4m3fn")
    random = Random(seed)
    drawn = epilogue_functions.draw(random, ("float32", "bfloat16", "float16"))
    op = drawn_operation(operation, Random(seed), seed, widest=208, line=16)
    options = {"split_k_mode": mode, "out_dtype": random.choice(["float32", "float16"])}
    check(op, drawn, split_k_slices=None if mode == "none" else 3, **options)


@cleave.epilogue
def everything(acc, row: cleave.row, column: cleave.column, matrix: cleave.matrix, scale: cleave.scalar):
    pre = acc * scale + row
    return cleave.outputs(d=cleave.silu(pre) * column + matrix, pre=pre)


@pytest.mark.parametrize("mode", ["none", "serial", "parallel"])
@pytest.mark.parametrize("channels", [3, 8, 64])
@pytest.mark.parametrize(
    ("size", "taps", "stride", "padding"), [(29, 3, 2, 1), (32, 4, 4, 0), (28, 14, 14, 0), (9, 1, 3, 0)]
)
def test_strided_data_gradients(size: int, taps: int, stride: int, padding: int, channels: int, mode: str) -> None:
    """Every candidate: classes walked and fused, patches; pixels without taps go through the function, too."""
    rng = np.random.default_rng(size)
    outputs = (size + 2 * padding - taps) // stride + 1
    shape = (2, channels, size, size)
    dy, w = (in_half(channels_last(rng, s)) for s in ((2, 64, outputs, outputs), (64, channels, taps, taps)))
    row, column, matrix = (
        to_gpu(operand(rng, channels)),
        to_gpu(operand(rng, 2, 1, size, size)),
        channels_last(rng, shape),
    )
    call = everything(row=row, column=column, matrix=to_gpu(matrix), scale=0.5)
    exact = torch.nn.grad.conv2d_input(shape, w.double(), dy.double(), stride, padding)
    pre = exact * 0.5 + row.double()[:, None, None]
    expected = torch.nn.functional.silu(pre) * column.double() + to_gpu(matrix).double()
    plan = cleave.plan_conv2d(
        "dgrad",
        dy,
        w,
        size=shape,
        stride=stride,
        padding=padding,
        epilogue=call,
        out_dtype="float16",
        split_k_mode=mode,
    )
    made = plan.run(dy, w, epilogue=call)
    for kernel in ("auto", "portable"):
        forced = cleave.conv2d_dgrad(
            shape, w, dy, stride, padding, epilogue=call, split_k_mode=mode, kernel=kernel, out_dtype="float16"
        )
        for got in (made, forced):
            torch.testing.assert_close(got[0].double(), expected, rtol=4e-3, atol=2e-2)
            torch.testing.assert_close(got[1].double(), pre, rtol=4e-3, atol=2e-2)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("group", [1, 2, 8])
def test_narrow_groups(group: int, backward: bool, stride: int) -> None:
    """The kernel that multiplies pixel by pixel."""
    rng = np.random.default_rng(group)
    size, channels = 17, 48
    outputs = (size - 1) // stride + 1
    x, w = (in_half(channels_last(rng, s)) for s in ((2, channels, size, size), (channels, group, 3, 3)))
    dy = in_half(channels_last(rng, (2, channels, outputs, outputs)))
    geometry = {"stride": stride, "padding": 1, "groups": channels // group}
    if backward:
        exact = torch.nn.grad.conv2d_input(x.shape, w.double(), dy.double(), **geometry)
    else:
        exact = torch.nn.functional.conv2d(x.double(), w.double(), **geometry)
    row, column = to_gpu(operand(rng, channels)), to_gpu(operand(rng, 2, 1, *exact.shape[2:]))
    matrix = to_gpu(channels_last(rng, tuple(exact.shape)))
    call = everything(row=row, column=column, matrix=matrix, scale=0.5)
    pre = exact * 0.5 + row.double()[:, None, None]
    expected = torch.nn.functional.silu(pre) * column.double() + matrix.double()
    for kernel in ("direct", "portable"):
        options = {**geometry, "epilogue": call, "kernel": kernel}
        made = cleave.conv2d_dgrad(tuple(x.shape), w, dy, **options) if backward else cleave.conv2d(x, w, **options)
        torch.testing.assert_close(made[0].double(), expected, rtol=4e-3, atol=2e-2)
        torch.testing.assert_close(made[1].double(), pre, rtol=4e-3, atol=2e-2)


@pytest.mark.parametrize("dimension", "mnk")
@pytest.mark.parametrize("mode", ["none", "parallel", "stream_k"])
def test_hostile_bounds_stay_inside(dimension: str, mode: str) -> None:
    m, n, k, count = 200, 264, 320, 4
    size = {"m": m, "n": n, "k": k}[dimension]
    hostile = ([2**31 - 1, -5, 10**6, 3], [-1, -1, -1, -1], [size, 0, size, 0], [-(2**31), size + 1, 0, 2**31 - 1])
    normal = {"device": "cuda", "dtype": torch.float16}
    a = torch.randn(*((count,) if dimension == "n" else ()), m, k, **normal)
    b = torch.randn(*((count,) if dimension == "m" else ()), k, n, **normal)
    d_shape = (count, m, n) if dimension == "k" else (m, n)
    call = everything(
        row=torch.randn(*((1, n) if dimension == "n" else (count, n)), **normal),
        column=torch.randn(*{"m": (m,), "n": (count, m), "k": (count, m, 1)}[dimension], **normal),
        matrix=torch.randn(*d_shape, **normal),
        scale=torch.randn(count, **normal),
    )
    for bounds in hostile:
        frames = [torch.full((*d_shape[:-2], m + 2, n + 16), 7.0, **normal) for _ in range(2)]
        outs = tuple(frame[..., 1:-1, 8:-8] for frame in frames)
        first, last = (torch.tensor(x, dtype=torch.int32, device="cuda") for x in (bounds, bounds[::-1]))
        for bound in ({"offs": first}, {"starts": first, "sizes": last}):
            cleave.grouped_gemm(a, b, **bound, epilogue=call, out=outs, split_k_mode=mode)
        torch.cuda.synchronize()
        for frame in frames:
            frame[..., 1:-1, 8:-8] = 7
            assert (frame == 7).all()


@pytest.mark.parametrize("order", ["row", "column"])
def test_rows_of_no_group(order: str) -> None:
    a, b = torch.randn(300, 64, device="cuda").half(), torch.randn(2, 64, 72, device="cuda").half()
    offs, row = torch.tensor([20, 133], dtype=torch.int32, device="cuda"), torch.randn(72, device="cuda")

    @cleave.epilogue
    def shifted(acc, row: cleave.row):
        return cleave.outputs(d=acc + row, pre=acc.to("float32"), low=acc.to("float8_e4m3fn"))

    for zero_rest in (True, False):
        outs = [
            torch.full((300, 72), 7.0, device="cuda").to(dtype)
            for dtype in (torch.float16, torch.float32, torch.float8_e4m3fn)
        ]
        if order == "column":
            outs = [x.t().contiguous().t() for x in outs]
        cleave.grouped_gemm(a, b, offs, epilogue=shifted(row=row), out=tuple(outs), zero_rest=zero_rest)
        for out in outs:
            assert (out[133:].float() == (0 if zero_rest else 7)).all()
        exact = torch.cat([a[:20].double() @ b[0].double(), a[20:133].double() @ b[1].double()])
        torch.testing.assert_close(outs[1][:133].double(), exact, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(outs[0][:133].double(), exact + row.double(), rtol=2e-3, atol=2e-3)
