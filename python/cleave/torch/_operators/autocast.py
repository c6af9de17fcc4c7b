"""Products and convolutions under torch.autocast: their two operands are cast, as those of torch's own are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_library = torch.library.Library("cleave", "IMPL")
_OPERATIONS = ("gemm", "grouped_gemm", "conv", "conv_dgrad", "conv_wgrad")
_OPERANDS = {"a", "b", "input", "weight", "grad_output"}  # bias, c and an epilogue's inputs may have other types
_CAST = (torch.float32, torch.float16, torch.bfloat16)


def _autocast(op: Any, device: str, key: str) -> Callable[..., Any]:
    names = [argument.name for argument in op._schema.arguments]
    places = [i for i, name in enumerate(names) if name in _OPERANDS]
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.__members__[key])

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)

        def cast(x: Any) -> Any:
            eligible = isinstance(x, Tensor) and x.device.type == device and x.dtype in _CAST
            return x.to(dtype) if eligible and dtype in _CAST else x

        with torch._C._ExcludeDispatchKeyGuard(below):
            given = [cast(x) if i in places else x for i, x in enumerate(args)]
            named = {name: cast(x) if name in _OPERANDS else x for name, x in kwargs.items()}
            return op(*given, **named)

    return run


def register() -> None:
    for operation in _OPERATIONS:
        packet = getattr(torch.ops.cleave, operation)
        for overload in packet.overloads():
            if overload == "out":  # torch casts for none of its own, either
                continue
            name = operation if overload == "default" else f"{operation}.{overload}"
            for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
                _library.impl(name, _autocast(getattr(packet, overload), device, key), key)
