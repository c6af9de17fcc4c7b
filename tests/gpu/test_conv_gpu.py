"""Convolutions on the GPU: every direction, kernel, mode and geometry against float64."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conv_reference import Axis, Convolution  # noqa: E402
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402
from cleave import _core  # noqa: E402

KINDS = ("fprop", "dgrad", "wgrad")
KERNELS = ("sm90", "portable")
MODES = ("none", "serial", "parallel", "cluster", "stream_k", "auto")
DTYPES = ("float16", "bfloat16", "float32")
ACCURACY = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-5}

SQUARE = (Axis(28, 3, 2, 1, 1), Axis(28, 3, 2, 1, 1))
CASES = {
    "3x3 stride 2": Convolution(2, 64, 128, SQUARE),
    "1x1": Convolution(3, 72, 64, (Axis(14), Axis(15))),
    "1x1 stride 2": Convolution(3, 72, 64, (Axis(14, stride=2), Axis(15, stride=2))),
    "3x3 stride 1": Convolution(2, 64, 64, (Axis(14, 3, 1, 1, 1), Axis(9, 3, 1, 1, 1))),
    "uneven": Convolution(3, 64, 136, (Axis(13, 5, 3, 2, 1), Axis(17, 2, 4, 0, 3, 2))),
    "stride above filter": Convolution(2, 8, 64, (Axis(17, 2, 5), Axis(11, 1, 3, 1, 1))),
    "dilated": Convolution(2, 128, 64, (Axis(19, 3, 2, 2, 2, 2), Axis(23, 3, 3, 3, 3, 2))),
    "padding above filter": Convolution(2, 64, 64, (Axis(5, 2, 2, 3, 4), Axis(7, 3, 1, 4, 4))),
    "no tap lands": Convolution(2, 64, 64, (Axis(1, 1, 2, 1, 0), Axis(9, 1, 3, 1, 1))),
    "one pixel": Convolution(4, 64, 64, (Axis(1, 3, 2, 1, 1), Axis(1, 3, 1, 1, 1))),
    "few channels": Convolution(2, 8, 64, (Axis(32, 7, 2, 3, 3), Axis(31, 7, 2, 3, 3))),
    "three channels": Convolution(2, 3, 16, (Axis(17, 4, 2, 1, 1), Axis(16, 4, 2, 1, 1))),
    "groups": Convolution(2, 256, 128, SQUARE, groups=2),
    "many groups": Convolution(2, 24, 48, SQUARE, groups=12),
    "depthwise": Convolution(2, 24, 24, SQUARE, groups=24),
    "patches": Convolution(2, 3, 96, (Axis(30, 4, 4), Axis(28, 4, 4))),
    "large patches": Convolution(3, 3, 64, (Axis(64, 16, 16), Axis(48, 16, 16))),
    "patches of 14": Convolution(2, 3, 64, (Axis(30, 14, 14), Axis(28, 14, 14))),
    "patches beside a pixel": Convolution(2, 8, 72, (Axis(9, 2, 2), Axis(11, 2, 2))),
    "patches along three axes": Convolution(1, 3, 64, (Axis(5, 2, 2), Axis(8, 4, 4), Axis(12, 4, 4))),
    "many classes": Convolution(2, 8, 16, (Axis(40, 3, 9, 1, 1), Axis(33, 3, 12, 0, 1))),
    "depthwise, strided": Convolution(2, 48, 48, (Axis(29, 5, 2, 2, 2), Axis(30, 5, 2, 2, 1)), groups=48),
    "depthwise, large filter": Convolution(2, 136, 136, (Axis(14, 7, 1, 3, 3), Axis(15, 7, 1, 3, 3)), groups=136),
    "depthwise, dilated": Convolution(1, 14, 14, (Axis(19, 3, 1, 2, 2, 2), Axis(23, 3, 3, 4, 3, 2)), groups=14),
    "narrow groups": Convolution(2, 64, 64, SQUARE, groups=16),
    "1-D": Convolution(3, 64, 64, (Axis(200, 9, 4, 4, 4),)),
    "3-D": Convolution(2, 64, 64, (Axis(7, 3, 2, 1, 1), Axis(8, 3, 2, 1, 0), Axis(9, 1, 2))),
}


def channels_last(*shape: int, dtype: str) -> Any:
    images, channels, *spatial = shape
    memory = torch.randn(images, *spatial, channels, device="cuda").half()
    return memory.to(getattr(torch, dtype)).movedim(-1, 1)


@dataclass
class Case:
    kind: str
    convolution: Convolution
    dtype: str = "float16"
    out_dtype: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    has_c: bool = False
    has_bias: bool = False
    activation: str = "none"

    def __post_init__(self) -> None:
        shapes = self.convolution.shapes
        self.tensors = {name: channels_last(*shapes[name], dtype=self.dtype) for name in shapes}
        self.out_dtype = self.out_dtype or self.dtype
        self.made = {"fprop": "output", "dgrad": "input", "wgrad": "weight"}[self.kind]
        shape = shapes[self.made]
        # The result lies between canaries.
        images, channels, *spatial = shape
        size, margin = math.prod(shape), 512
        self.memory = torch.full(
            (size + 2 * margin,), float("nan"), device="cuda", dtype=getattr(torch, self.out_dtype)
        )
        self.margin = margin
        self.out = self.memory[margin : margin + size].view(images, *spatial, channels).movedim(-1, 1)
        self.extra: dict[str, Any] = dict(self.options)
        if self.has_c:
            self.c = channels_last(*shape, dtype=self.out_dtype)
            self.extra |= {"c": self.c, "beta": 2.0}
        if self.has_bias:
            self.bias = torch.randn(channels, device="cuda")
            self.extra["bias"] = self.bias
        if self.activation != "none":
            self.extra["activation"] = self.activation

    def run(self, **more: Any) -> Any:
        rank = len(self.convolution.axes)
        suffix = "" if self.kind == "fprop" else f"_{self.kind}"
        x, w, y = (self.tensors[name] for name in ("input", "weight", "output"))
        shape = tuple(self.out.shape)
        first = {"fprop": (x, w), "dgrad": (shape, w, y), "wgrad": (x, shape, y)}[self.kind]
        arguments = self.convolution.geometry | self.extra | {"alpha": 0.5, "out": self.out}
        return getattr(cleave, f"conv{rank}d{suffix}")(*first, **(arguments | more))

    def want(self) -> Any:
        x, w, y = (self.tensors[name].double() for name in ("input", "weight", "output"))
        axes = self.convolution.axes
        pads = [p for axis in reversed(axes) for p in (axis.before, axis.after)]
        convolve = getattr(torch.nn.functional, f"conv{len(axes)}d")
        stride, dilation = [a.stride for a in axes], [a.dilation for a in axes]

        def forward(x: Any, w: Any) -> Any:
            padded = torch.nn.functional.pad(x, pads)
            return convolve(padded, w, None, stride, 0, dilation, self.convolution.groups)

        if self.kind == "fprop":
            result = forward(x, w)
        else:
            x.requires_grad_(), w.requires_grad_()
            result = torch.autograd.grad(forward(x, w), x if self.kind == "dgrad" else w, y)[0]
        result = 0.5 * result
        if self.has_c:
            result = result + 2.0 * self.c.double()
        if self.has_bias:
            result = result + self.bias.double().view(-1, *[1] * len(axes))
        return result.relu() if self.activation == "relu" else result

    def check(self) -> None:
        for _ in range(2):  # the second run meets the counters that the first one leaves
            self.out.fill_(float("nan"))
            self.run()
        self.compare()

    def check_kernel(self, name: str) -> None:
        """ValueError unless that kernel serves it."""
        x, w, y = (self.tensors[name] for name in ("input", "weight", "output"))
        inputs = {"fprop": (x, w), "dgrad": (y, w), "wgrad": (y, x)}[self.kind]
        size = None if self.kind == "fprop" else tuple(self.out.shape)
        planner = getattr(cleave, f"plan_conv{len(self.convolution.axes)}d")
        values = {name: self.extra[name] for name in ("c", "bias") if name in self.extra}
        options = {name: value for name, value in self.extra.items() if name not in ("beta", *values)}
        planned = planner(self.kind, *inputs, size=size, out=self.out, **values, **self.convolution.geometry, **options)
        plan = _core.plan_as(planned, name)
        self.out.fill_(float("nan"))
        plan.run(*inputs, out=self.out, alpha=0.5, beta=self.extra.get("beta", 0.0), **values)
        self.compare()

    def compare(self) -> None:
        want = self.want()
        error = (self.out.double() - want).abs().max().item()
        largest = max(want.abs().max().item(), 1.0)
        assert error <= 1.5 * ACCURACY[self.out_dtype] * largest + 1e-4
        margin = self.margin
        assert self.memory[:margin].isnan().all() and self.memory[-margin:].isnan().all()


def served(name: str, kind: str, dtype: str = "float16") -> bool:
    """By the Hopper kernel; the portable one serves everything."""
    convolution = CASES[name]
    if kind == "dgrad" and name == "many classes":
        return False
    if kind == "dgrad" and "patches" in name:
        return dtype != "float32" and name != "patches of 14"  # whose filters are no whole 16 bytes
    pixel_bytes = convolution.channels // convolution.groups * (4 if dtype == "float32" else 2)
    if pixel_bytes % 16:
        by_threads = kind == "fprop" or (kind == "wgrad" and convolution.groups == 1)
        return by_threads and dtype != "float32" and len(convolution.axes) == 2
    return kind == "fprop" or dtype != "float32"


def check(name: str, kind: str, kernel: str, dtype: str = "float16", **facts: Any) -> None:
    """Runs it, or sees it refused if it is not the kernel's."""
    skip_unless_served(kernel)
    case = Case(kind, CASES[name], dtype, **facts)
    case.extra["kernel"] = kernel
    if kernel == "portable" or served(name, kind, dtype):
        case.check()
    else:
        with pytest.raises(ValueError, match="cannot serve this convolution"):
            case.run()


def split(mode: str, slices: int = 3) -> dict[str, Any]:
    return {"split_k_mode": mode, "split_k_slices": None if mode in ("none", "auto") else slices}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_geometries(name: str, kind: str, kernel: str) -> None:
    for dtype in DTYPES:
        check(name, kind, kernel, dtype)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_planners_choice(name: str, kind: str) -> None:
    for dtype in DTYPES:
        Case(kind, CASES[name], dtype, out_dtype="float32").check()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["3x3 stride 2", "1x1", "1x1 stride 2", "uneven", "few channels"])
def test_split_k(name: str, kind: str, mode: str, kernel: str) -> None:
    skip_unless_served(kernel, mode)
    check(name, kind, kernel, options=split(mode))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", ["none", "serial", "parallel"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["3x3 stride 2", "1x1", "stride above filter", "few channels", "groups"])
def test_epilogues(name: str, kind: str, mode: str, kernel: str) -> None:
    other = {} if kind == "wgrad" else {"has_bias": True, "activation": "relu"}
    check(name, kind, kernel, "bfloat16", options=split(mode), has_c=True, **other)


@pytest.mark.parametrize("name", ["depthwise", *(n for n in CASES if n.startswith(("depthwise,", "narrow")))])
@pytest.mark.parametrize("kind", KINDS)
def test_narrow_groups_by_the_direct_kernel(name: str, kind: str) -> None:
    other = {} if kind == "wgrad" else {"has_bias": True, "activation": "relu"}
    for dtype in DTYPES:
        for epilogue in ({}, {"has_c": True} | other):
            case = Case(kind, CASES[name], dtype, options={"kernel": "direct"}, **epilogue)
            case.check()
    Case(kind, CASES[name], "bfloat16", out_dtype="float32", options={"kernel": "direct"}).check()


FEW_CHANNELS = {
    "7x7 stride 2": Convolution(3, 3, 64, (Axis(62, 7, 2, 3, 3), Axis(224, 7, 2, 3, 3))),
    "3x3": Convolution(2, 3, 96, (Axis(33, 3, 1, 1, 1), Axis(34, 3, 1, 1, 1))),
    "3x3 stride 2": Convolution(70, 3, 32, (Axis(40, 3, 2, 1, 1), Axis(190, 3, 2, 0, 1))),
    "four channels": Convolution(5, 4, 320, (Axis(64, 3, 1, 1, 1), Axis(63, 3, 1, 1, 1))),
    "two channels": Convolution(2, 2, 7, (Axis(19, 5, 3, 2, 2, 2), Axis(25, 5, 3, 1, 2))),
    "one channel": Convolution(2, 1, 24, (Axis(50, 9, 2, 4, 3), Axis(46, 11, 1, 5, 5))),
    "patches": Convolution(2, 3, 130, (Axis(30, 4, 4), Axis(28, 4, 4))),
    "along a line": Convolution(4, 1, 16, (Axis(4000, 25, 5, 12, 12),)),
    "pixels beside a filter's": Convolution(2, 3, 48, (Axis(11, 2, 5, 1, 1), Axis(20, 2, 5, 1, 0))),
}


@pytest.mark.parametrize("mode", [{}, {"split_k_mode": "none"}, split("parallel", 3), split("parallel", 50)], ids=str)
@pytest.mark.parametrize("name", [name for name, of in FEW_CHANNELS.items() if of.filters % 8 == 0])
def test_gradients_of_few_channels_filters(name: str, mode: dict[str, Any]) -> None:
    for dtype in ("float16", "bfloat16"):
        for more in ({}, {"has_c": True}, {"out_dtype": "float32"}):
            case = Case("wgrad", FEW_CHANNELS[name], dtype, options={"kernel": "direct"} | mode, **more)
            case.check()
            first = case.out.clone()
            case.run()
            assert torch.equal(case.out, first)


FEW_FILTERS = {
    "3x3": Convolution(3, 128, 3, (Axis(70, 3, 1, 1, 1), Axis(51, 3, 1, 1, 1))),
    "four filters": Convolution(2, 320, 4, (Axis(64, 3, 1, 1, 1), Axis(63, 3, 1, 1, 1))),
    "part of a line of memory": Convolution(5, 72, 3, (Axis(33, 3, 1, 1, 1), Axis(19, 3, 1, 1, 1))),
    "one filter": Convolution(2, 64, 1, (Axis(40, 7, 1, 3, 3), Axis(75, 7, 1, 3, 3))),
    "seven filters, stride 2": Convolution(4, 96, 7, (Axis(41, 3, 2, 1, 1), Axis(64, 3, 2, 0, 1))),
    "eleven filters, dilated": Convolution(2, 64, 11, (Axis(30, 3, 1, 2, 2, 2), Axis(31, 5, 3, 3, 2, 2))),
    "many columns": Convolution(2, 40, 13, (Axis(20, 5, 1, 2, 2), Axis(35, 7, 1, 3, 3))),
    "1x1": Convolution(7, 256, 2, (Axis(28), Axis(28))),
    "1x1, pixels between": Convolution(2, 64, 3, (Axis(21, 1, 3), Axis(20, 1, 2))),
    "along a line": Convolution(4, 64, 1, (Axis(4000, 9, 2, 4, 4),)),
    "three axes": Convolution(2, 96, 3, (Axis(5, 3, 1, 1, 1), Axis(30, 3, 1, 1, 1), Axis(37, 3, 1, 1, 1))),
    "three axes, strides": Convolution(2, 64, 2, (Axis(6, 2, 2, 1, 0), Axis(19, 3, 2, 1, 1), Axis(23, 3, 1, 0, 0))),
    "padding above filter": Convolution(2, 64, 3, (Axis(5, 2, 2, 3, 4), Axis(7, 3, 1, 4, 4))),
}


@pytest.mark.parametrize("mode", [{}, {"split_k_mode": "none"}, split("parallel", 2), split("parallel", 40)], ids=str)
@pytest.mark.parametrize("name", FEW_FILTERS)
def test_weight_gradients_of_few_filters(name: str, mode: dict[str, Any]) -> None:
    for dtype in ("float16", "bfloat16"):
        for more in ({}, {"has_c": True}, {"out_dtype": "float32"}):
            case = Case("wgrad", FEW_FILTERS[name], dtype, options={"kernel": "direct"} | mode, **more)
            case.check()
            first = case.out.clone()
            case.run()
            assert torch.equal(case.out, first)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("at", [(0, 0), (1, 5), (-1, -1), (20, 18)], ids=str)
@pytest.mark.parametrize("name", ["3x3", "seven filters, stride 2", "three axes", "1x1, pixels between"])
def test_infinite_pixels_that_few_filters_meet(name: str, at: tuple[int, int], dtype: str) -> None:
    """They reach the taps that meet them, and no other."""
    case = Case("wgrad", FEW_FILTERS[name], dtype, options={"kernel": "direct"})
    case.run()
    finite = case.out.clone()
    case.tensors["input"][0, 5, ..., at[0], at[1]] = float("inf")
    case.run()
    marked = Case("wgrad", case.convolution)
    marked.tensors = {
        key: (tensor == float("inf") if key == "input" else torch.ones_like(tensor)).half()
        for key, tensor in case.tensors.items()
    }
    reached = marked.want() > 0
    assert reached.sum() < reached.numel()
    assert not torch.isfinite(case.out[reached]).any()
    assert torch.equal(case.out[~reached], finite[~reached])


def test_infinite_pixels_that_no_output_of_few_channels_meets() -> None:
    x, dy = channels_last(2, 3, 12, 12, dtype="float16"), channels_last(2, 16, 5, 5, dtype="float16")
    expected = cleave.conv2d_wgrad(x, (16, 3, 3, 3), dy, stride=2, kernel="direct")
    x[..., 11], x[..., 11, :] = float("inf"), float("nan")
    assert torch.equal(cleave.conv2d_wgrad(x, (16, 3, 3, 3), dy, stride=2, kernel="direct"), expected)


@pytest.mark.parametrize("name", FEW_CHANNELS)
def test_few_channels_by_the_direct_kernel(name: str) -> None:
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({}, {"has_c": True, "has_bias": True, "activation": "relu"}):
            Case("fprop", FEW_CHANNELS[name], dtype, options={"kernel": "direct"}, **epilogue).check()
    Case("fprop", FEW_CHANNELS[name], "bfloat16", out_dtype="float32", options={"kernel": "direct"}).check()


GRADIENTS_OF_FEW_CHANNELS = {
    "7x7 stride 2": Convolution(3, 3, 64, (Axis(62, 7, 2, 3, 3), Axis(224, 7, 2, 3, 3))),
    "3x3": Convolution(2, 3, 128, (Axis(33, 3, 1, 1, 1), Axis(35, 3, 1, 1, 1))),
    "3x3, many lines": Convolution(2, 3, 64, (Axis(700, 3, 1, 1, 1), Axis(70, 3, 1, 1, 1))),
    "3x3 stride 2": Convolution(70, 3, 32, (Axis(40, 3, 2, 1, 1), Axis(190, 3, 2, 0, 1))),
    "4x4 stride 2": Convolution(8, 3, 64, (Axis(64, 4, 2, 1, 1), Axis(64, 4, 2, 1, 1))),
    "four channels": Convolution(5, 4, 320, (Axis(64, 3, 1, 1, 1), Axis(63, 3, 1, 1, 1))),
    "eight channels": Convolution(5, 8, 96, (Axis(64, 3, 1, 1, 1), Axis(63, 3, 1, 1, 1))),
    "seven channels": Convolution(2, 7, 72, (Axis(21, 3, 2, 1, 1), Axis(31, 3, 2, 1, 1))),
    "24 channels": Convolution(2, 24, 48, (Axis(21, 3, 1, 1, 1), Axis(31, 3, 1, 1, 1))),
    "two channels": Convolution(2, 2, 8, (Axis(19, 5, 3, 2, 2, 2), Axis(25, 5, 3, 1, 2, 2))),
    "one channel": Convolution(2, 1, 24, (Axis(50, 9, 2, 4, 3), Axis(46, 11, 1, 5, 5))),
    "patches": Convolution(2, 3, 136, (Axis(30, 4, 4), Axis(28, 4, 4))),
    "along a line": Convolution(4, 1, 16, (Axis(4000, 25, 4, 12, 12),)),
    "pixels beside a filter's": Convolution(2, 3, 48, (Axis(11, 2, 3, 1, 1), Axis(20, 2, 3, 1, 0))),
    "stride above filter": Convolution(2, 5, 48, (Axis(11, 1, 2), Axis(20, 1, 3))),
}


@pytest.mark.parametrize("name", GRADIENTS_OF_FEW_CHANNELS)
def test_data_gradients_to_few_channels(name: str) -> None:
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({}, {"has_c": True, "has_bias": True, "activation": "relu"}, {"out_dtype": "float32"}):
            case = Case("dgrad", GRADIENTS_OF_FEW_CHANNELS[name], dtype, options={"kernel": "direct"}, **epilogue)
            case.check()


ONE_TAP = {
    "24 and 144": Convolution(3, 24, 144, (Axis(19), Axis(23))),
    "16 and 8": Convolution(2, 16, 8, (Axis(112), Axis(111))),
    "40 and 168": Convolution(2, 40, 168, (Axis(28), Axis(28))),
    "64 and 192": Convolution(5, 64, 192, (Axis(56), Axis(56))),
    "72 and 136": Convolution(1, 72, 136, (Axis(7), Axis(5))),
    "8 and 192": Convolution(9, 8, 192, (Axis(40), Axis(40))),
    "one pixel": Convolution(1, 24, 40, (Axis(1), Axis(1))),
    "along a line": Convolution(3, 96, 24, (Axis(5000),)),
}


@pytest.mark.parametrize("name", ONE_TAP)
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_one_tap_of_few_channels(name: str, kind: str) -> None:
    """By the tile that is chosen, and by every other one that there is."""
    of = ONE_TAP[name]
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({"out_dtype": "float32"}, {"has_c": True, "has_bias": True, "activation": "relu"}):
            Case(kind, of, dtype, options={"kernel": "direct"}, **epilogue).check()
    case = Case(kind, of, options={"kernel": "direct"})
    case.check()
    columns = of.filters if kind == "fprop" else of.channels
    served = 0
    for rows in (128, 256, 512):
        try:
            case.check_kernel(f"direct {rows}x{columns}")
            served += 1
        except ValueError:
            continue
    assert served > 0


GROUPS_OF_CHANNELS = {
    "8 channels": Convolution(3, 64, 64, (Axis(29, 3, 1, 1, 1), Axis(31, 3, 1, 1, 1)), groups=8),
    "8 channels, stride 2": Convolution(3, 96, 96, (Axis(29, 3, 2, 1, 1), Axis(56, 3, 2, 1, 1)), groups=12),
    "16 channels": Convolution(5, 128, 128, (Axis(14, 3, 1, 1, 1), Axis(14, 3, 1, 1, 1)), groups=8),
    "16 channels, stride 3": Convolution(2, 80, 80, (Axis(29, 5, 3, 2, 1), Axis(17, 2, 3, 0, 1)), groups=5),
    "32 channels, small images": Convolution(9, 128, 128, (Axis(7, 3, 1, 1, 1), Axis(7, 3, 1, 1, 1)), groups=4),
    "32 channels, stride 2": Convolution(4, 96, 96, (Axis(14, 3, 2, 1, 1), Axis(14, 3, 2, 1, 1)), groups=3),
    "32 channels, dilated": Convolution(2, 64, 64, (Axis(19, 3, 2, 2, 2, 2), Axis(23, 3, 3, 3, 3, 2)), groups=2),
    "64 channels": Convolution(2, 128, 128, (Axis(9, 3, 1, 1, 1), Axis(11, 3, 1, 1, 1)), groups=2),
    "16 to 8": Convolution(2, 96, 48, (Axis(20, 3, 1, 1, 1), Axis(21, 4, 2, 1, 1)), groups=6),
    "8 to 32": Convolution(2, 24, 96, (Axis(20, 3, 2, 1, 1), Axis(21, 3, 1, 1, 1)), groups=3),
    "one tap": Convolution(2, 48, 48, (Axis(20), Axis(21)), groups=3),
    "stride above filter": Convolution(2, 32, 32, (Axis(17, 2, 4), Axis(11, 1, 3, 1, 1)), groups=2),
    "no tap lands": Convolution(2, 32, 32, (Axis(1, 1, 2, 1, 0), Axis(9, 1, 3, 1, 1)), groups=2),
    "padding above filter": Convolution(2, 32, 32, (Axis(5, 2, 2, 3, 4), Axis(7, 3, 1, 4, 4)), groups=2),
    "along a line": Convolution(4, 64, 64, (Axis(1000, 9, 4, 4, 4),), groups=4),
    "one group": Convolution(2, 32, 32, (Axis(65, 3, 1, 1, 1), Axis(70, 3, 1, 1, 1))),
    "one group, 64 to 16": Convolution(2, 64, 16, (Axis(40, 3, 1, 1, 1), Axis(41, 3, 2, 1, 1))),
}
# Warps hold the sums of nine taps, and of so many channels by channels.
MOST_SUMS = 64 * 32
GRADIENTS_OF_GROUPS = [
    name
    for name, of in GROUPS_OF_CHANNELS.items()
    if math.prod(of.shapes["weight"][2:]) <= 9 and of.channels * of.filters <= MOST_SUMS * of.groups**2
]
TILES_OF_SHIFT = [f"direct {m}x{n}" for n in (8, 16, 32, 64, 128, 256) for m in (16, 32, 64, 128, 256, 512)]


def served_by_shift(kind: str, of: Convolution) -> bool:
    """Made channels of a group are a power of two; data gradients to few channels have another method."""
    made = (of.filters if kind == "fprop" else of.channels) // of.groups
    return made.bit_count() == 1 and (of.groups > 1 or made >= 16)


@pytest.mark.parametrize("name", GROUPS_OF_CHANNELS)
@pytest.mark.parametrize("kind", ["fprop", "dgrad"])
def test_groups_of_channels(name: str, kind: str) -> None:
    """By the tile that is chosen, and by every other one that there is."""
    of = GROUPS_OF_CHANNELS[name]
    if not served_by_shift(kind, of):
        pytest.skip("another method's")
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({"out_dtype": "float32"}, {"has_c": True, "has_bias": True, "activation": "relu"}):
            Case(kind, of, dtype, options={"kernel": "direct"}, **epilogue).check()
    case = Case(kind, of, options={"kernel": "direct"})
    case.check()
    served = 0
    for kernel in TILES_OF_SHIFT:
        try:
            case.check_kernel(kernel)
            served += 1
        except ValueError:
            continue
    assert served > 1


@pytest.mark.parametrize("name", GRADIENTS_OF_GROUPS)
def test_gradients_of_groups_filters(name: str) -> None:
    """The same, with slices of several numbers of tiles."""
    for dtype in ("float16", "bfloat16"):
        for more in ({}, {"has_c": True}, {"out_dtype": "float32"}):
            Case("wgrad", GROUPS_OF_CHANNELS[name], dtype, options={"kernel": "direct"}, **more).check()
    case = Case("wgrad", GROUPS_OF_CHANNELS[name], options={"kernel": "direct"})
    served = 0
    for tile in ("128x16", "256x32", "128x32", "128x64", "256x64"):
        for split in ("", " parallel 2", " parallel 5"):
            try:
                case.check_kernel(f"direct {tile}{split}")
                served += 1
            except ValueError:
                continue
    assert served > 1


WIDE_GROUPS = {
    "two": Convolution(3, 224, 224, (Axis(14, 3, 1, 1, 1), Axis(13, 3, 1, 1, 1)), groups=2),
    "three, stride 2": Convolution(2, 240, 216, (Axis(28, 3, 2, 1, 1), Axis(27, 3, 2, 1, 1)), groups=3),
    "one tap": Convolution(2, 160, 208, (Axis(20), Axis(21)), groups=2),
    "along three axes": Convolution(2, 144, 160, (Axis(5, 3, 1, 1, 1), Axis(8, 3, 2, 1, 0), Axis(9, 1, 2)), groups=2),
}


@pytest.mark.parametrize("name", WIDE_GROUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_wide_groups(kind: str, name: str) -> None:
    """Groups of other than whole k blocks, each a launch of the Hopper kernel."""
    of, options = WIDE_GROUPS[name], {"kernel": "sm90"}
    skip_unless_served("sm90")
    whole = {"has_c": True} if kind == "wgrad" else {"has_c": True, "has_bias": True, "activation": "relu"}
    for dtype in ("float16", "bfloat16"):
        for epilogue in ({}, whole):
            Case(kind, of, dtype, options=options, **epilogue).check()
    case = Case(kind, of)
    for kernel in ("sm90 128x128 by_group", "sm90 128x64 by_group parallel 3", "sm90 64x128 by_group stream_k 1"):
        case.check_kernel(kernel)


@pytest.mark.parametrize("kind", KINDS)
def test_infinity_stays_in_its_group(kind: str) -> None:
    skip_unless_served("sm90")
    case = Case(kind, WIDE_GROUPS["two"], options={"kernel": "sm90"})
    case.check()
    finite = case.out.clone()
    for name, tensor in case.tensors.items():
        if name != case.made:
            half = tensor.shape[0] // 2 if name == "weight" else tensor.shape[1] // 2
            (tensor[half:] if name == "weight" else tensor[:, half:]).fill_(float("inf"))
    case.run()
    by_group = [x.chunk(2, 0 if kind == "wgrad" else 1) for x in (case.out, finite)]
    assert torch.equal(by_group[0][0], by_group[1][0])
    assert not torch.isfinite(by_group[0][1]).all()


def test_infinite_pixels_that_no_output_of_groups_meets() -> None:
    x, dy = channels_last(2, 32, 12, 12, dtype="float16"), channels_last(2, 32, 5, 5, dtype="float16")
    settings = {"stride": 2, "groups": 2, "kernel": "direct"}
    expected = cleave.conv2d_wgrad(x, (32, 16, 3, 3), dy, **settings)
    x[..., 11], x[..., 11, :] = float("inf"), float("nan")
    assert torch.equal(cleave.conv2d_wgrad(x, (32, 16, 3, 3), dy, **settings), expected)


@pytest.mark.parametrize("infinite", ["output", "weight"])
@pytest.mark.parametrize("name", ["7x7 stride 2", "3x3", "two channels"])
def test_infinite_gradients_to_few_channels(name: str, infinite: str) -> None:
    """They reach the pixels where they meet something, and no other: no filter meets what lies beside the outputs."""
    case = Case("dgrad", GRADIENTS_OF_FEW_CHANNELS[name], options={"kernel": "direct"})
    case.run()
    finite = case.out.clone()
    at = (slice(None), 0, 2, 3) if infinite == "output" else (slice(None), slice(None), 0)
    case.tensors[infinite][at] = float("inf")
    case.run()
    marks = {
        key: (tensor == float("inf") if key == infinite else torch.ones_like(tensor)).half()
        for key, tensor in case.tensors.items()
    }
    marked = Case("dgrad", case.convolution)
    marked.tensors = marks
    reached = marked.want() > 0
    assert 0 < reached.sum() < reached.numel()
    assert not torch.isfinite(case.out[reached]).any()
    assert torch.equal(case.out[~reached], finite[~reached])


@pytest.mark.parametrize("name", ["7x7 stride 2", "3x3", "one channel"])
def test_infinite_pixels_of_few_channels(name: str) -> None:
    """They reach the outputs whose taps meet them, and no other, though those are read together."""
    case = Case("fprop", FEW_CHANNELS[name], options={"kernel": "direct"})
    case.run()
    finite = case.out.clone()
    case.tensors["input"][:, 0, 11, 13] = float("inf")
    case.run()
    reached = torch.nn.functional.conv2d(
        (case.tensors["input"] == float("inf")).float(),
        torch.ones_like(case.tensors["weight"], dtype=torch.float32),
        stride=[axis.stride for axis in case.convolution.axes],
        padding=[axis.before for axis in case.convolution.axes],
    )[..., : case.out.shape[2], : case.out.shape[3]]
    reached = (reached > 0).expand_as(case.out)
    assert 0 < reached.sum() < reached.numel()
    assert not torch.isfinite(case.out[reached]).any()
    assert torch.equal(case.out[~reached], finite[~reached])


@pytest.mark.parametrize("slices", [1, 2, 5, 16, 44])
@pytest.mark.parametrize("name", ["depthwise", "depthwise, strided", "narrow groups"])
def test_slices_of_the_direct_kernel(name: str, slices: int) -> None:
    """They are lines of the images, added up in teams: the same bits each time."""
    case = Case("wgrad", CASES[name], options={"kernel": "direct"} | split("parallel", slices))
    case.check()
    first = case.out.clone()
    for _ in range(5):
        case.run()
        assert torch.equal(case.out, first)


def test_pixels_that_no_output_meets() -> None:
    """Infinite ones, beyond the last output of a line and an image, leave weight gradients as they are."""
    x, dy = (channels_last(2, 16, size, size, dtype="float16") for size in (12, 5))
    options = {"stride": 2, "groups": 16, "kernel": "direct"}
    expected = cleave.conv2d_wgrad(x, (16, 1, 3, 3), dy, **options)
    x[..., 11], x[..., 11, :] = float("inf"), float("nan")
    assert torch.equal(cleave.conv2d_wgrad(x, (16, 1, 3, 3), dy, **options), expected)


@pytest.mark.parametrize("tile", ["128x96", "128x144", "128x160", "128x176", "128x224"])
@pytest.mark.parametrize("rest", ["", " multicast 2x1", " multicast 1x2", " stream_k 1", " parallel 3"])
def test_columns_that_end_within_a_strip_of_filters(tile: str, rest: str) -> None:
    """Data gradients of channels that a tile of strips of 64 would have to round up, and of others."""
    skip_unless_served("sm90")
    for channels in (96, 168, 232):
        for axes in (SQUARE, (Axis(14, 3, 1, 1, 1), Axis(9, 3, 1, 1, 1))):
            Case("dgrad", Convolution(2, channels, 136, axes)).check_kernel(f"sm90 {tile}{rest}")


@pytest.mark.parametrize("division", ["fast", "plain", "fast_load", "fast_store"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_divisions_agree_bitwise(kind: str, kernel: str, division: str) -> None:
    case = Case(kind, CASES["uneven"])
    tensors = case.tensors
    a, b = {
        "fprop": (tensors["input"], tensors["weight"]),
        "dgrad": (tensors["output"], tensors["weight"]),
        "wgrad": (tensors["output"], tensors["input"]),
    }[kind]
    size = {} if kind == "fprop" else {"size": tuple(case.out.shape)}
    made = []
    for way in ("auto", division):
        plan = cleave.plan_conv2d(
            kind, a, b, out=case.out, kernel=kernel, division=way, **size,
            **case.convolution.geometry,
        )  # fmt: skip
        case.out.fill_(float("nan"))
        made.append(plan.run(a, b, out=case.out).clone())
    assert torch.equal(*made)


def test_a_dgrad_chooses_its_division() -> None:
    case = Case("dgrad", CASES["uneven"])
    made = [case.run(division=way).clone() for way in ("auto", "plain")]
    assert torch.equal(*made)


@pytest.mark.parametrize("kernel", KERNELS)
def test_int8(kernel: str) -> None:
    convolution = CASES["3x3 stride 2"]
    shapes = convolution.shapes
    x, w = (
        torch.randint(-9, 10, shapes[name], device="cuda", dtype=torch.int8).contiguous(
            memory_format=torch.channels_last
        )
        for name in ("input", "weight")
    )
    y = cleave.conv2d(x, w, stride=2, padding=1, out_dtype="int32", kernel=kernel)
    want = torch.nn.functional.conv2d(x.double(), w.double(), stride=2, padding=1)
    assert torch.equal(y.double(), want)


@pytest.mark.parametrize("seed", range(6))
def test_random_geometries(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        along = []
        for _ in range(draw.choice([1, 2, 2, 2, 3])):
            size, taps = draw.choice([1, 5, 8, 13]), draw.choice([1, 2, 3, 3, 5])
            dilation, before = draw.choice([1, 1, 2, 3]), draw.choice([0, 1, taps // 2, taps])
            missing = max(0, dilation * (taps - 1) + 1 - size - before)
            along.append(Axis(size, taps, draw.choice([1, 2, 3, 4]), before, missing, dilation))
        groups = draw.choice([1, 1, 1, 2])
        channels, filters = (draw.choice([1, 8, 24, 64, 72]) * groups for _ in range(2))
        convolution = Convolution(draw.choice([1, 3]), channels, filters, tuple(along), groups)
        mode = draw.choice(["auto", "auto", "serial", "parallel"])
        dtype = draw.choice(DTYPES)
        Case(draw.choice(KINDS), convolution, dtype, options={"split_k_mode": mode}).check()


def test_channel_slices_are_taken_as_they_are() -> None:
    wide = channels_last(2, 192, 28, 28, dtype="float16")
    x, w = wide[:, 64:128], channels_last(128, 64, 3, 3, dtype="float16")
    out_wide = torch.full((2, 14, 14, 256), float("nan"), device="cuda").half().movedim(-1, 1)
    y = cleave.conv2d(x, w, stride=2, padding=1, out=out_wide[:, 128:])
    want = torch.nn.functional.conv2d(x.double(), w.double(), stride=2, padding=1)
    torch.testing.assert_close(y.double(), want, rtol=1e-3, atol=1e-2)
    assert out_wide[:, :128].isnan().all()


def test_a_graph_follows_its_inputs_on_a_side_stream() -> None:
    case = Case("dgrad", CASES["3x3 stride 2"])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        case.run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        case.run()
    for _ in range(3):
        case.tensors["output"].normal_()
        case.out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        first = case.out.clone()
        error = (first.double() - case.want()).abs().max().item()
        assert error <= 2e-3 * max(case.want().abs().max().item(), 1.0)
    for _ in range(200):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(case.out, first)


def test_an_out_whose_rows_are_unevenly_spaced_is_filled_in_a_graph() -> None:
    x, w = (channels_last(*shape, dtype="float16") for shape in ((2, 64, 28, 28), (128, 64, 3, 3)))
    memory = torch.full((2, 15, 17, 128), 7.0, device="cuda", dtype=torch.float16)
    out = memory[:, :14, 1:15].permute(0, 3, 1, 2)

    def run() -> None:
        result = cleave.conv2d(x, w, stride=2, padding=1, out=out, convert=True)
        assert result is out

    with pytest.raises(ValueError, match=r"out is .* convert=True"):
        cleave.conv2d(x, w, stride=2, padding=1, out=out)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    for _ in range(3):
        x.normal_()
        out.zero_()
        graph.replay()
        assert torch.equal(out, cleave.conv2d(x, w, stride=2, padding=1))
    out.fill_(7)
    assert (memory == 7).all()


def test_tensors_past_2_to_31_elements() -> None:
    if torch.cuda.mem_get_info()[0] < 30 * 2**30:
        pytest.skip("needs 30 GiB of free GPU memory")
    images, size, channels = 34, 1024, 64  # 2.28e9 elements
    x = torch.empty(images, size, size, channels, device="cuda", dtype=torch.float16)
    x.normal_()
    w = channels_last(64, channels, 1, 1, dtype="float16")
    y = cleave.conv2d(x.movedim(-1, 1), w, stride=2)
    dx = cleave.conv2d_dgrad((images, channels, size, size), w, y, stride=2)
    for image in (0, images - 1):
        part = x[image : image + 1].movedim(-1, 1).double()
        want = torch.nn.functional.conv2d(part, w.double(), stride=2)
        torch.testing.assert_close(y[image : image + 1].double(), want, rtol=2e-3, atol=2e-2)
        back = torch.nn.grad.conv2d_input(part.shape, w.double(), y[image : image + 1].double(), stride=2)
        got = dx[image : image + 1].double()
        torch.testing.assert_close(got, back, rtol=2e-3, atol=5e-2)
