"""The parts of vLLM that the plugin in integrations/vllm derives from, with nothing in them, for tests without vLLM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum, auto
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from doc_snippets import ROOT

LINEAR = "vllm.model_executor.kernels.linear"
LAYERS = "vllm.model_executor.layers"
EXPERTS = f"{LAYERS}.fused_moe"


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


class MixedKernel:
    """MPLinearKernel."""

    def __init__(self, c: Any, w_q_param_name: str, w_s_param_name: str, w_zp_param_name: str | None = None) -> None:
        self.config = c
        self.w_q_name, self.w_s_name, self.w_zp_name = w_q_param_name, w_s_param_name, w_zp_param_name

    def _transform_param(self, layer: Any, name: str, fn: Any) -> None:
        setattr(layer, name, fn(getattr(layer, name).clone()))

    def _get_weight_params(self, layer: Any) -> tuple[Any, ...]:
        return tuple(getattr(layer, name or "", None) for name in (self.w_q_name, self.w_s_name, self.w_zp_name))


def permute_param_layout_(param: Any, input_dim: int, output_dim: int, **kwargs: Any) -> Any:
    """For parameters that are [in, out] already."""
    assert (input_dim, output_dim) == (0, 1)
    return param


def unpack_quantized_values_into_int32(w_q: Any, wtype: Any, packed_dim: int = 0) -> Any:
    parts = [(w_q >> 4 * place) & 15 for place in range(8)]
    return torch.stack(parts, packed_dim + 1).flatten(packed_dim, packed_dim + 1)


class ActivationFormat(Enum):
    Standard = auto()
    BatchedExperts = auto()


class MoEActivation(Enum):
    SILU = auto()
    GELU = auto()
    OTHER = auto()


class Experts:
    """FusedMoEExpertsModular, of quantisation settings that the test names."""

    def __init__(self, moe_config: Any, quant_config: Any) -> None:
        vars(self).update(vars(quant_config))
        self.activation_config = SimpleNamespace(clamp_limit=moe_config.swiglu_limit)

    @staticmethod
    def is_supported_config(
        cls: Any, moe_config: Any, weight_key: Any, activation_key: Any, activation_format: Any
    ) -> tuple[bool, str | None]:
        served = cls._supports_current_device() and cls._supports_quant_scheme(weight_key, activation_key)
        served = served and cls._supports_activation(moe_config.activation)
        return served and activation_format is cls.activation_format(), None

    @staticmethod
    def adjust_N_for_activation(N: int, activation: Any) -> int:
        return N // 2

    def activation(self, activation: Any, output: Any, input: Any) -> None:
        """SwiGLU of gates of at most a limit, or GeGLU."""
        gate, up = input.chunk(2, 1)
        if activation is MoEActivation.SILU:
            limit = self.activation_config.clamp_limit
            output.copy_(torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit))
        else:
            output.copy_(torch.nn.functional.gelu(gate) * up)


KEYS = {
    "kFp8Static128BlockSym": torch.float8_e4m3fn,
    "kFp8Dynamic128Sym": torch.float8_e4m3fn,
    "kFp8StaticChannelSym": torch.float8_e4m3fn,
    "kFp8DynamicTokenSym": torch.float8_e4m3fn,
    "kFp8StaticTensorSym": torch.float8_e4m3fn,
    "kInt8StaticChannelSym": torch.int8,
    "kInt8DynamicTokenSym": torch.int8,
}


class Backend(Enum):
    CUTLASS = auto()
    TRITON = auto()


def oracle(takes_keys: bool) -> dict[str, Any]:
    """What a module of vLLM's has that chooses kernels for experts."""

    def backend_to_kernel_cls(backend: Backend) -> list[Any]:
        return [f"Own{backend.name}"]

    def with_keys(moe_config: Any, weight_key: Any, activation_key: Any) -> list[Backend]:
        return list(Backend)

    def without_keys(moe_config: Any) -> list[Backend]:
        return list(Backend)

    order = with_keys if takes_keys else without_keys
    order.__name__ = "_get_priority_backends"
    return {"backend_to_kernel_cls": backend_to_kernel_cls, "_get_priority_backends": order}


def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Into sys.modules, with lists of kernels that have one of vLLM's each; returns the module of linear kernels."""

    def module(name: str, **contents: Any) -> ModuleType:
        """And those that it is in, which have it."""
        made = sys.modules.get(name)
        if made is None:
            made = ModuleType(name)
            made.__path__ = []
            monkeypatch.setitem(sys.modules, name, made)
            parent, _, own = name.rpartition(".")
            if parent:
                setattr(module(parent), own, made)
        vars(made).update(contents)
        return made

    module("vllm.platforms", PlatformEnum=PlatformEnum, current_platform=platform("cuda"))
    module("vllm.envs", VLLM_DISABLED_KERNELS=[])
    module("vllm.scalar_type", scalar_types=SimpleNamespace(uint4="uint4", uint4b8="uint4b8"))
    module("vllm.model_executor.parameter", permute_param_layout_=permute_param_layout_)
    module(f"{LINEAR}.mixed_precision.MPLinearKernel", MPLinearKernel=MixedKernel)
    module(
        f"{LAYERS}.quantization.utils.quant_utils",
        unpack_quantized_values_into_int32=unpack_quantized_values_into_int32,
        **{name: SimpleNamespace(dtype=dtype, name=name) for name, dtype in KEYS.items()},
    )
    module(f"{EXPERTS}.modular_kernel", FusedMoEExpertsModular=Experts, FusedMoEActivationFormat=ActivationFormat)
    module(
        f"{EXPERTS}.activation",
        MoEActivation=MoEActivation,
        apply_moe_activation_supported=lambda activation: activation is not MoEActivation.OTHER,
    )
    module(f"{EXPERTS}.topk_weight_and_reduce", TopKWeightAndReduceNoOP=type("TopKWeightAndReduceNoOP", (), {}))
    module(f"{EXPERTS}.oracle.fp8", **oracle(True))
    module(f"{EXPERTS}.oracle.int8", **oracle(False))
    own = {kind: type(f"Own{kind}", (Kernel,), {}) for kind in ("fp8", "fp8_block", "int8")}
    lists = {f"_POSSIBLE_{kind.upper()}_KERNELS": {PlatformEnum.CUDA: [kernel]} for kind, kernel in own.items()}
    lists["_POSSIBLE_KERNELS"] = {PlatformEnum.CUDA: [type("Ownmp", (), {})]}

    def register_linear_kernel(kernel_class: type, platform: PlatformEnum, kernel_type: str = "mp") -> None:
        name = "_POSSIBLE_KERNELS" if kernel_type == "mp" else f"_POSSIBLE_{kernel_type.upper()}_KERNELS"
        lists[name].setdefault(platform, []).append(kernel_class)

    linear = module(LINEAR, register_linear_kernel=register_linear_kernel, **lists)
    scaled_mm = f"{LINEAR}.scaled_mm"
    for name, contents in {
        "BlockScaledMMLinearKernel": "Fp8BlockScaledMMLinearKernel",
        "cutlass": "CutlassInt8ScaledMMLinearKernel",
        "ScaledMMLinearKernel": "FP8ScaledMMLinearKernel",
    }.items():
        module(f"{scaled_mm}.{name}", **{contents: type(contents, (Kernel,), {})})
    return linear


@pytest.fixture(name="vllm")
def vllm_stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """vLLM's module of linear kernels; the plugin can be imported."""
    monkeypatch.syspath_prepend(str(ROOT / "integrations" / "vllm"))
    yield install(monkeypatch)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cleave_vllm"]:
        del sys.modules[name]


def platform(kind: str, capability: int = 90) -> SimpleNamespace:
    return SimpleNamespace(
        is_cpu=lambda: kind == "cpu",
        is_cuda=lambda: kind == "cuda",
        has_device_capability=lambda least: least <= capability,
    )


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
