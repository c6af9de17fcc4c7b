"""Convolutions on the GPU, each between canaries and beside its result in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from conv_reference import Axis, Convolution

import cleave
from cleave import _core

KINDS = ("fprop", "dgrad", "wgrad")
KERNELS = ("sm90", "portable")
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

    def check_repeats(self) -> None:
        """And that a further run has the same bits."""
        self.check()
        first = self.out.clone()
        self.run()
        assert torch.equal(self.out, first)

    def check_infinity(self, name: str, at: tuple[Any, ...], reaches: bool = True) -> None:
        """Infinities at a place of a tensor reach the results that meet them, if any, and no other."""
        self.run()
        finite = self.out.clone()
        self.tensors[name][at] = float("inf")
        self.run()
        marked = Case(self.kind, self.convolution)
        marked.tensors = {
            key: (tensor == float("inf") if key == name else torch.ones_like(tensor)).half()
            for key, tensor in self.tensors.items()
        }
        reached = marked.want() > 0
        assert (0 if reaches else -1) < reached.sum() < reached.numel()
        assert not torch.isfinite(self.out[reached]).any()
        assert torch.equal(self.out[~reached], finite[~reached])

    def check_kernel(self, name: str) -> None:
        """ValueError unless that kernel serves it."""
        self.out.fill_(float("nan"))
        self.run_kernel(name)
        self.compare()

    def run_kernel(self, name: str) -> None:
        x, w, y = (self.tensors[name] for name in ("input", "weight", "output"))
        inputs = {"fprop": (x, w), "dgrad": (y, w), "wgrad": (y, x)}[self.kind]
        size = None if self.kind == "fprop" else tuple(self.out.shape)
        planner = getattr(cleave, f"plan_conv{len(self.convolution.axes)}d")
        values = {name: self.extra[name] for name in ("c", "bias") if name in self.extra}
        options = {name: value for name, value in self.extra.items() if name not in ("beta", *values)}
        planned = planner(self.kind, *inputs, size=size, out=self.out, **values, **self.convolution.geometry, **options)
        plan = _core.plan_as(planned, name)
        plan.run(*inputs, out=self.out, alpha=0.5, beta=self.extra.get("beta", 0.0), **values)

    def compare(self) -> None:
        want = self.want()
        error = (self.out.double() - want).abs().max().item()
        largest = max(want.abs().max().item(), 1.0)
        assert error <= 1.5 * ACCURACY[self.out_dtype] * largest + 1e-4
        margin = self.margin
        assert self.memory[:margin].isnan().all() and self.memory[-margin:].isnan().all()


def split(mode: str, slices: int = 3) -> dict[str, Any]:
    return {"split_k_mode": mode, "split_k_slices": None if mode in ("none", "auto") else slices}
