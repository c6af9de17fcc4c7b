"""Checkpoints that are quantised already, into models of nn.Linear layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ._checkpoints import files, formats
from ._checkpoints.block_experts import BlockExperts
from ._checkpoints.expert_modules import are_experts, gate_of
from ._checkpoints.expert_tensors import ExpertTensors
from ._checkpoints.formats import Scheme
from ._checkpoints.four_bits import FourBits, Place
from ._checkpoints.tensors import Tensors
from ._packed_bytes import INT4_SCALES
from ._packed_layer import HALVES
from ._replace import check_model, replace_layers
from .linear import W8A8Linear
from .mixed_bytes_linear import W4A8Linear
from .mixed_linear import W4A16Linear


class Loaded(NamedTuple):
    """What was loaded.

    layers: names of the layers that are in 8 or 4 bits now. unused: the checkpoint's tensors that the model has no
    place for, such as the scales of a cache.
    """

    layers: list[str]
    unused: list[str]


@torch.no_grad()
def load_quantized(
    model: nn.Module,
    checkpoint: str | Path | Mapping[str, Tensor],
    quantization_config: Mapping[str, Any] | None = None,
    *,
    use_fast_accum: bool = False,
) -> Loaded:
    """Loads a checkpoint with 8-bit weights and activations, or 4-bit weights, into a model, in place.

        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
        cleave.torch.load_quantized(model, folder)

    nn.Linear layers whose weights the checkpoint has in 8 bits become `W8A8Linear`, experts as transformers keeps them
    (parameters gate_up_proj and down_proj of three dimensions) `W8A8Experts`, and those with weights of 4 bits
    `W4A16Linear` and `W4A16Experts`, or beside activations of 8 bits `W4A8Linear` and `W4A8Experts`; they keep the
    checkpoint's elements and scales, and the experts' gate, SwiGLU or another `Gate`. All other parameters and buffers
    get the checkpoint's values.

    Args:
        model: of the checkpoint's architecture, with its names, and not quantised; beside 4 bits of bfloat16 or
            float16. Parameters may be on "meta": they become the checkpoint's tensors, on the CPU from a folder.
            Others keep device and dtype, to which scales of weights in 4 bits are rounded.
        checkpoint: a folder with *.safetensors and config.json, or a mapping of names to tensors.
        quantization_config: as config.json has it; by default the folder's, or that of model.config.
        use_fast_accum: as in `W8A8Linear`, for fp8.

    Formats: compressed-tensors "int-quantized", "float-quantized" and "naive-quantized" (weights by tensor, channel,
    group of 128 or block of 128 x 128; activations static, by token or by group of 128), "fp8" (weight_block_size
    [128, 128], or one scale for a weight), ModelOpt's FP8; in 4 bits compressed-tensors "pack-quantized" (by tensor,
    channel or group, with zero points and act-order, activations of 8 bits by token) and "nvfp4-pack-quantized",
    ModelOpt's NVFP4, AWQ ("gemm") and GPTQ (both of its formats, with act-order), and "mxfp4": gpt-oss's experts, with
    biases, in blocks of 32.
    Activations that a checkpoint of NVFP4 has in 4 bits as well keep their 16; what scales them is among `unused`.

    Raises ValueError for another format, such as any other of 4 bits, saying which part of it is not served, for
    parameters that the checkpoint lacks, and for shapes and values that do not fit; TypeError for quantised layers of
    another class; all before the model is changed.
    """
    check_model(model)
    tensors, config = _open(checkpoint)
    config = quantization_config or config or getattr(getattr(model, "config", None), "quantization_config", None)
    if config is None:
        raise ValueError("neither config.json nor the model has a quantization_config; pass it")
    if not isinstance(config, Mapping):
        config = config.to_dict()
    return _Loading(model, Tensors(tensors), formats.read(config)).run(use_fast_accum)


def _open(checkpoint: str | Path | Mapping[str, Tensor]) -> tuple[Mapping[str, Tensor], Mapping[str, Any] | None]:
    if isinstance(checkpoint, Mapping):
        return checkpoint, None
    folder = Path(checkpoint)
    return files.Files(folder), files.quantization_config(folder)


class _Loading:
    """Decides by names alone what becomes of each module and tensor; then does it."""

    def __init__(self, model: nn.Module, tensors: Tensors, scheme_of: formats.SchemeOf) -> None:
        self.model = model
        self.tensors = tensors
        self.schemes: dict[str, Scheme | FourBits] = {}
        self.experts: dict[str, ExpertTensors | BlockExperts] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            if are_experts(module):
                kind = BlockExperts if BlockExperts.are_in(tensors, name) else ExpertTensors
                experts = self.experts[name] = kind(name, module, tensors)
                if experts.is_quantized():
                    scheme = self.schemes[name] = scheme_of(*experts.example())
                    _check_experts(name, module)
                    experts.check(scheme)
                    _check_dtype(name, module.down_proj, scheme)
            elif tensors.is_quantized(name):
                scheme = self.schemes[name] = scheme_of(name, module)
                self._check_linear(name, module, scheme)
        quantized = tuple(f"{name}." for name in self.schemes)
        self.rest: dict[int, list[str]] = {}  # the names of each other parameter and buffer
        for name, tensor in model.state_dict(keep_vars=True).items():
            if not name.startswith(quantized):
                self.rest.setdefault(id(tensor), []).append(name)
        self._check_complete()
        self._check_shapes()

    def run(self, use_fast_accum: bool) -> Loaded:
        def make(name: str, layer: Any) -> nn.Module:
            scheme = self.schemes[name]
            if name in self.experts:
                return self.experts[name].made(scheme, *_place_and_dtype(layer.down_proj))
            if isinstance(scheme, FourBits):
                return self._four_bits(name, layer, scheme)
            return self._linear(name, layer, scheme, use_fast_accum and scheme.dtype != torch.int8)

        types = {type(self.model.get_submodule(name)) for name in self.schemes}
        layers = replace_layers(self.model, types, make, skip=lambda name, _: name not in self.schemes)
        for names in self.rest.values():
            self._load(names, next(filter(None, map(self._reader, names)))())
        return Loaded(layers, self.tensors.unused())

    def _check_complete(self) -> None:
        lacking = [names[0] for names in self.rest.values() if not any(map(self._reader, names))]
        for name, scheme in self.schemes.items():
            needed = self.experts[name].required(scheme) if name in self.experts else self._required(name, scheme)
            lacking += [tensor for tensor in needed if tensor not in self.tensors]
        if lacking:
            raise ValueError(
                f"the checkpoint lacks {_few(lacking)}, which the model has; it has {_few(self.tensors.names())}: "
                "rename what it has as the model does"
            )

    def _required(self, name: str, scheme: Scheme | FourBits) -> list[str]:
        """The tensors of a linear layer."""
        needed = scheme.required(name) if isinstance(scheme, FourBits) else [f"{name}.weight"]
        return needed if self.model.get_submodule(name).bias is None else [*needed, f"{name}.bias"]

    def _check_linear(self, name: str, module: nn.Module, scheme: Scheme | FourBits) -> None:
        if type(module) is not nn.Linear:
            raise TypeError(f"{name} is {type(module).__name__}, but its weight is quantised; nn.Linear is served")
        _check_dtype(name, module.weight, scheme)
        if isinstance(scheme, FourBits):
            scheme.check(self.tensors, name)

    def _check_shapes(self) -> None:
        """The rest's; layers are all made before the first is replaced."""
        for names in self.rest.values():
            tensor = self._tensor(names[0])
            for name in names:
                if name in self.tensors and self.tensors.shape(name) != tensor.shape:
                    raise ValueError(f"{name} is {list(self.tensors.shape(name))}; the model's is {list(tensor.shape)}")

    def _linear(self, name: str, linear: nn.Linear, scheme: Scheme, use_fast_accum: bool) -> W8A8Linear:
        weight = self.tensors.weight(name, scheme.dtype)
        if weight.shape != linear.weight.shape:
            raise ValueError(f"{name}.weight is {list(weight.shape)}; the model's is {list(linear.weight.shape)}")
        return W8A8Linear.from_quantized(
            _placed(linear.weight, weight),
            self.tensors.weight_scale(name),
            None if linear.bias is None else self._bias(name, linear.bias),
            self.tensors.activation_scale(name) if scheme.static else None,
            granularity=scheme.granularity,
            use_fast_accum=use_fast_accum,
        )

    def _four_bits(self, name: str, layer: nn.Linear, scheme: FourBits) -> W4A16Linear | W4A8Linear:
        place, dtype = _place_and_dtype(layer.weight)
        bias = None if layer.bias is None else self._bias(name, layer.bias)
        if scheme.activation_dtype is None:
            return W4A16Linear.from_packed(scheme.packed(self.tensors, name, layer.weight.shape, place, dtype), bias)
        weights = scheme.packed(self.tensors, name, layer.weight.shape, place, INT4_SCALES)
        return W4A8Linear.from_packed(weights, bias, scheme.activation_dtype)

    def _bias(self, name: str, bias: Tensor) -> Tensor:
        value = _placed(bias, self.tensors.take(f"{name}.bias"))
        return value if bias.is_meta else value.to(bias.dtype)

    def _reader(self, name: str) -> Callable[[], Tensor] | None:
        """What reads that parameter or buffer; None if the checkpoint lacks it."""
        if name in self.tensors:
            return lambda: self.tensors.take(name)
        module, _, parameter = name.rpartition(".")
        experts = self.experts.get(module)
        return experts.reader(parameter) if isinstance(experts, ExpertTensors) else None

    def _tensor(self, name: str) -> Tensor:
        module, _, leaf = name.rpartition(".")
        return getattr(self.model.get_submodule(module), leaf)

    def _load(self, names: list[str], value: Tensor) -> None:
        for name in names:
            self.tensors.mark(name)
        tensor = self._tensor(names[0])
        if tensor.shape != value.shape:
            raise ValueError(f"{names[0]} is {list(value.shape)}; the model's is {list(tensor.shape)}")
        if not tensor.is_meta:
            tensor.copy_(value)
            return
        if isinstance(tensor, nn.Parameter):
            value = nn.Parameter(value, tensor.requires_grad and value.is_floating_point())
        for name in names:
            module, _, leaf = name.rpartition(".")
            setattr(self.model.get_submodule(module), leaf, value)


def _check_experts(name: str, module: Any) -> None:
    kind = type(module).__name__
    if gate_of(module) is None:
        raise TypeError(f"{name} is {kind}; experts of silu(gate) * up, or of another cleave.torch.Gate, are served")
    if getattr(module, "has_post_expert_norm", False):
        raise TypeError(f"{name} is {kind}, with a norm after each expert; experts without one are served")


def _check_dtype(name: str, weight: Tensor, scheme: Scheme | FourBits) -> None:
    if isinstance(scheme, FourBits) and weight.dtype not in HALVES:
        raise ValueError(
            f"{name} is {weight.dtype}, but beside weights of 4 bits activations have 16; call model.bfloat16() first"
        )


def _place_and_dtype(weight: Tensor) -> tuple[Place, torch.dtype | None]:
    """What brings tensors to where the weight is, and its dtype; on "meta" they stay where and what they are."""
    return partial(_placed, weight), None if weight.is_meta else weight.dtype


def _placed(like: Tensor, value: Tensor) -> Tensor:
    return value if like.is_meta else value.to(like.device)


def _few(names: list[str]) -> str:
    return f"{', '.join(names[:3])} ..., {len(names)} tensors" if len(names) > 3 else ", ".join(names)
