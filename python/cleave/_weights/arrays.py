"""What NumPy arrays and torch tensors do not have under one name."""

from __future__ import annotations

import importlib
from typing import Any

from .._arrays import numpy_dtype


def check_array(array: Any, name: str, kinds: str = "a torch tensor or a NumPy array") -> None:
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise TypeError(f"{name} is {type(array).__name__}; it must be {kinds}")


def namespace(array: Any, name: str) -> Any:
    """The module numpy or torch, by which functions of both names are called."""
    check_array(array, name)
    for base in type(array).__mro__:  # torch.nn.Parameter, numpy.memmap
        package = base.__module__.partition(".")[0]
        if package in ("torch", "numpy"):
            return importlib.import_module(package)
    raise TypeError(
        f"{name} is an array of {type(array).__module__}; weights are packed from torch tensors and NumPy arrays: "
        "torch.from_dlpack makes one of it"
    )


def dtype_of(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def device_of(array: Any) -> str:
    return str(getattr(array, "device", "cpu"))


def on_host(array: Any) -> bool:
    return device_of(array) == "cpu"


def cast(array: Any, dtype: str) -> Any:
    """The array in another dtype; of torch's without its gradient."""
    if hasattr(array, "detach"):
        return array.detach().to(getattr(importlib.import_module("torch"), dtype))
    return array.astype(numpy_dtype(dtype), copy=False)


def bits(array: Any, dtype: str) -> Any:
    """The same bytes, as a dtype of the same size."""
    return array.view(getattr(importlib.import_module("torch"), dtype) if hasattr(array, "detach") else dtype)


def contiguous(array: Any) -> Any:
    return array.contiguous() if hasattr(array, "detach") else importlib.import_module("numpy").ascontiguousarray(array)


def made(like: Any, values: Any, dtype: str) -> Any:
    """A list of numbers as an array beside `like`."""
    if hasattr(like, "detach"):
        torch = importlib.import_module("torch")
        return torch.tensor(values, dtype=getattr(torch, dtype), device=like.device)
    return importlib.import_module("numpy").array(values, dtype)


def full(like: Any, shape: tuple[int, ...], value: int) -> Any:
    """Bytes, all alike, beside `like`."""
    if hasattr(like, "detach"):
        torch = importlib.import_module("torch")
        return torch.full(shape, value, dtype=torch.uint8, device=like.device)
    return importlib.import_module("numpy").full(shape, value, "uint8")
