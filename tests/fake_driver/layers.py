"""Prepares layers on a machine whose GPU is the fake driver, and prints what is compiled then, and by calls afterwards.

    python layers.py

One line for each layer: its name, how many products `cleave.prepare` found, and for calls with numbers of tokens of
that range how many kernels were compiled, how many products multiplied, and how many of these were not prepared. torch
multiplies on the CPU meanwhile. The environment names the fake libraries: LD_LIBRARY_PATH, CLEAVE_NVRTC.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import cleave
from cleave import _torch_precision
from cleave.torch import Float8Linear, GroupedLinear, MoE, W8A8Experts, W8A8Linear, _prepare

STREAM = 64
EXPERTS, FEATURES, HIDDEN = 4, 256, 128
FIRST, LAST = 3, 150
TOKENS = (3, 16, 17, 64, 65, 101, 128, 150)
CUDA = 2  # DLPack's number

PLANS = {
    name: getattr(cleave, f"plan_{name}") for name in ("quantize", "gemm", "scaled_gemm", "grouped_gemm")
}  # by operators


class OnGpu:
    """A tensor of the CPU that says it is a GPU's, which the fake driver confirms."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor.detach()

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._tensor.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        device = ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p))
        device.value = CUDA
        return capsule


def plan(name: str, *arguments: Any, **options: Any) -> Any:
    def placed(x: Any) -> Any:
        return OnGpu(x) if isinstance(x, Tensor) else x

    return PLANS[name](*map(placed, arguments), **{key: placed(value) for key, value in options.items()})


class OnFakeGpu(TorchDispatchMode):
    """Prepares the plan that an operator would run on a GPU, and runs it on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[str] = []  # why each has its kernel

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        name = function.__name__.partition(".")[0]
        if name in PLANS:
            names = (each.name for each in function._schema.arguments)
            given = dict(zip(names, arguments, strict=False)) | (options or {})
            if function._overloadname == "quantized":  # its defaults, which torch leaves out
                given = {"out_scale": "block_1x128"} | given
            if given.get("a", arguments[0]).dtype == torch.float32:
                given["precision"] = _torch_precision.precision()  # for which the operator asks
            planned = plan(name, **{key: value for key, value in given.items() if value is not None})
            planned.prepare(STREAM)
            if name != "quantize":
                self.products.append(planned.why)
        return function(*arguments, **options or {})


def tokens(count: int) -> Tensor:
    return torch.randn(count, FEATURES).bfloat16()


def to_experts(layer: W8A8Experts, count: int) -> None:
    layer(tokens(count), torch.randint(0, EXPERTS, (count, EXPERTS)), torch.rand(count, EXPERTS))


def in_groups(layer: GroupedLinear, count: int) -> None:
    layer(tokens(count), torch.tensor([0, count // 2, count - 1, count]))


def alone(layer: nn.Module, count: int) -> None:
    layer(tokens(count))


Call = Callable[[Any, int], None]


def layers() -> dict[str, tuple[nn.Module, Call]]:
    """By name: each, and how it is called with a number of tokens."""
    sizes, wide = (EXPERTS, FEATURES, HIDDEN), {"dtype": torch.bfloat16}
    recipe = {"recipe": "blockwise", **wide}
    linear = nn.Linear(FEATURES, HIDDEN, **wide)
    made: dict[str, tuple[nn.Module, Call]] = {
        "linear": (W8A8Linear.from_linear(linear, "float8_e4m3fn"), alone),
        "experts": (W8A8Experts(*sizes), to_experts),
        "experts int8": (W8A8Experts(*sizes, dtype="int8"), to_experts),
        "experts block_128x128": (W8A8Experts(*sizes, granularity="block_128x128"), to_experts),
        "experts block_1x128": (W8A8Experts(*sizes, granularity="block_1x128"), to_experts),
        "grouped blockwise": (GroupedLinear(*sizes, **recipe), in_groups),
        "moe": (MoE(EXPERTS, 2, FEATURES, HIDDEN, **wide), alone),
        "moe of a router in float32": (
            MoE(EXPERTS * 4, 2, FEATURES, HIDDEN, router_dtype=torch.float32, **wide),
            alone,
        ),
        "moe blockwise": (MoE(EXPERTS, 2, FEATURES, HIDDEN, **recipe), alone),
    }
    for name in ("blockwise", "rowwise", "rowwise_with_gw_hp", "tensorwise"):
        made[f"float8 {name}"] = Float8Linear.from_float(linear, name), alone
    for each, _ in made.values():
        for buffer in each.buffers():
            buffer.copy_(torch.zeros_like(buffer))
    return made


@torch.no_grad()
def main() -> None:
    for name in PLANS:
        setattr(cleave, f"plan_{name}", lambda *arguments, name=name, **options: plan(name, *arguments, **options))
    _prepare._on_gpu = lambda layer: True
    for name, (layer, call) in layers().items():
        made = cleave.prepare(layer, (FIRST, LAST), dtype=torch.bfloat16, stream=STREAM)
        before = cleave.cache_info()["entries"]
        with OnFakeGpu() as calls:
            for count in TOKENS:
                call(layer, count)
        others = [why for why in calls.products if "prepared for these operands" not in why]
        print(name, made.products, cleave.cache_info()["entries"] - before, len(calls.products), len(others), sep="\t")


if __name__ == "__main__":
    main()
