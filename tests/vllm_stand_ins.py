"""The parts of vLLM that the plugin in integrations/vllm derives from, with nothing in them, for tests without vLLM."""

from __future__ import annotations

import sys
from enum import Enum, auto
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

LINEAR = "vllm.model_executor.kernels.linear"


class PlatformEnum(Enum):
    CUDA = auto()
    CPU = auto()


class Kernel:
    def __init__(self, config: Any, layer_param_names: list[str] | None = None) -> None:
        self.config = config
        self.layer_param_names = layer_param_names

    @classmethod
    def can_implement(cls, config: Any) -> tuple[bool, str | None]:
        if config.activation_quant_key.scale.static:
            return False, "only dynamic activations"
        return True, None

    def _get_layer_params(self, layer: Any) -> tuple[Any, ...]:
        return tuple(getattr(layer, name, None) for name in self.layer_param_names)


def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Into sys.modules, with lists of kernels that have one of vLLM's each; returns the module of linear kernels."""

    def module(name: str, **contents: Any) -> ModuleType:
        made = ModuleType(name)
        made.__path__ = []
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    parts = LINEAR.split(".")
    for end in range(1, len(parts)):
        module(".".join(parts[:end]))
    module("vllm.platforms", PlatformEnum=PlatformEnum, current_platform=platform("cuda"))
    own = {kind: type(f"Own{kind}", (Kernel,), {}) for kind in ("fp8", "fp8_block", "int8")}
    lists = {f"_POSSIBLE_{kind.upper()}_KERNELS": {PlatformEnum.CUDA: [kernel]} for kind, kernel in own.items()}

    def register_linear_kernel(kernel_class: type, platform: PlatformEnum, kernel_type: str = "mp") -> None:
        lists[f"_POSSIBLE_{kernel_type.upper()}_KERNELS"].setdefault(platform, []).append(kernel_class)

    linear = module(LINEAR, register_linear_kernel=register_linear_kernel, **lists)
    scaled_mm = f"{LINEAR}.scaled_mm"
    module(scaled_mm)
    for name, contents in {
        "BlockScaledMMLinearKernel": "Fp8BlockScaledMMLinearKernel",
        "cutlass": "CutlassInt8ScaledMMLinearKernel",
        "ScaledMMLinearKernel": "FP8ScaledMMLinearKernel",
    }.items():
        module(f"{scaled_mm}.{name}", **{contents: type(contents, (Kernel,), {})})
    return linear


def platform(kind: str) -> SimpleNamespace:
    return SimpleNamespace(is_cpu=lambda: kind == "cpu", is_cuda=lambda: kind == "cuda")


class Shape(tuple):
    """vLLM's GroupShape: rows and columns that share a scale, -1 for all."""

    def is_per_tensor(self) -> bool:
        return self == (-1, -1)

    def is_per_token(self) -> bool:
        return self == (1, -1)

    def is_per_channel(self) -> bool:
        return self == (-1, 1)


def config(weights: tuple[int, int], activations: tuple[int, int], static: bool = False, out_dtype: Any = None) -> Any:
    def key(shape: tuple[int, int], static: bool) -> Any:
        return SimpleNamespace(scale=SimpleNamespace(group_shape=Shape(shape), static=static))

    return SimpleNamespace(
        weight_quant_key=key(weights, True), activation_quant_key=key(activations, static), out_dtype=out_dtype
    )
