"""Products and convolutions under torch.autocast: their two operands are cast, as those of torch's own are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

_library = torch.library.Library("cleave", "IMPL")
_OPERATIONS = ("gemm", "grouped_gemm", "conv", "conv_dgrad", "conv_wgrad")
_OPERANDS = {"a", "b", "input", "weight", "grad_output"}  # bias, c and an epilogue's inputs may have other types
_CAST = (torch.float32, torch.float16, torch.bfloat16)
_KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}

Given = tuple[list[Any], dict[str, Any]]  # arguments that have positions, and others


def autocast(op: Any, args: list[Any], kwargs: dict[str, Any]) -> Given:
    """What a call's arguments become, for those who call past torch's dispatcher."""
    if op._opname in _OPERATIONS:
        for device in _KEYS:
            if torch.is_autocast_enabled(device):
                args, kwargs = _cast(op, device, args, kwargs)
    return args, kwargs


def _cast(op: Any, device: str, args: list[Any], kwargs: dict[str, Any]) -> Given:
    dtype = torch.get_autocast_dtype(device)

    def cast(name: str, x: Any) -> Any:
        eligible = name in _OPERANDS and isinstance(x, Tensor) and x.device.type == device and x.dtype in _CAST
        return x.to(dtype) if eligible and dtype in _CAST else x

    names = [argument.name for argument in op._schema.arguments]
    given = [cast(name, x) for name, x in zip(names, args, strict=False)]
    return given, {name: cast(name, x) for name, x in kwargs.items()}


def _kernel(op: Any, device: str) -> Callable[..., Any]:
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.__members__[_KEYS[device]])

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(below):
            given, named = _cast(op, device, list(args), kwargs)
            return op(*given, **named)

    return run


def register(operations: Iterable[str] = _OPERATIONS) -> None:
    for operation in operations:
        packet = getattr(torch.ops.cleave, operation)
        for overload in packet.overloads():
            if overload == "out":  # torch casts for none of its own, either
                continue
            name = operation if overload == "default" else f"{operation}.{overload}"
            for device, key in _KEYS.items():
                _library.impl(name, _kernel(getattr(packet, overload), device), key)
