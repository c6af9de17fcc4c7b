"""How each framework makes arrays and names its current stream; imported at its first array."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from ._core import CudaError


@dataclass(frozen=True)
class Adapter:
    """What the compiled module asks of a framework; None where it has no such notion.

    empty(like, shape, dtype name) makes an uninitialised array beside `like`, and
    empty_channels_last one whose second dimension lies closest in memory; channels_last copies an
    array into that order; assign(target, source) copies elements into an array of any order; finish
    turns a new array, filled, into what the user gets; current_stream(device) is a stream or its
    handle. For a stream, by its handle, that is not the current one: on_stream(stream, device,
    make, *arguments) is make(*arguments) in memory of that stream, and record_stream(array, stream,
    device) keeps an array's memory from being used again before that stream is done with it.
    increment_version(arrays) says that they were written; requires_grad is the attribute of this name, of the class:
    to ask it, and not an array, spares looking it up. forward_ad is torch's module, which knows of tangents.
    """

    empty: Callable[[Any, tuple[int, ...], str], Any] | None = None
    empty_channels_last: Callable[[Any, tuple[int, ...], str], Any] | None = None
    channels_last: Callable[[Any], Any] | None = None
    assign: Callable[[Any, Any], Any] | None = None
    finish: Callable[[Any], Any] | None = None
    current_stream: Callable[[int], Any] | None = None
    on_stream: Callable[..., Any] | None = None
    record_stream: Callable[[Any, int, int], None] | None = None
    increment_version: Callable[[tuple[Any, ...]], None] | None = None
    requires_grad: Any = None
    forward_ad: ModuleType | None = None
    immutable: bool = False


def adapter_for(cls: type) -> Adapter:
    """By the package that defines the class or one of its bases; an empty one for others."""
    for base in cls.__mro__:
        make = _FRAMEWORKS.get(str(getattr(base, "__module__", "")).partition(".")[0])
        if make:
            return make()
    return Adapter()


def pointer_device(pointer: int) -> int:
    """The ordinal of the CUDA device that owns an address; 0 for a null pointer."""
    if not pointer:
        return 0
    device_ordinal_attribute = 9
    ordinal = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError(f"an array claims to be on a GPU, but there is no driver: {error}") from None
    status = driver.cuPointerGetAttribute(ctypes.byref(ordinal), device_ordinal_attribute, ctypes.c_uint64(pointer))
    if status:
        raise ValueError(f"address {pointer:#x} is not on a CUDA device (CUDA error {status})")
    return ordinal.value


def numpy_dtype(name: str) -> Any:
    import numpy as np

    if name != "bfloat16" and not name.startswith("float8"):
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        other = "pass out_dtype='float32'" if name == "bfloat16" else "ask for int8"
        raise ValueError(f"NumPy has no {name} of its own; pip install ml_dtypes, or {other}") from None
    return np.dtype(getattr(ml_dtypes, name))


def _in_both_orders(empty: Callable[[Any, tuple[int, ...], str], Any], module: Any) -> dict[str, Callable[..., Any]]:
    """What an Adapter needs to make arrays, by the functions of NumPy or a module like it."""

    def empty_channels_last(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        images, channels, *pixels = shape
        return module.moveaxis(empty(like, (images, *pixels, channels), dtype), -1, 1)

    def channels_last(array: Any) -> Any:
        return module.moveaxis(module.ascontiguousarray(module.moveaxis(array, 1, -1)), -1, 1)

    def assign(target: Any, source: Any) -> None:
        target[...] = source

    return {
        "empty": empty,
        "empty_channels_last": empty_channels_last,
        "channels_last": channels_last,
        "assign": assign,
    }


def _numpy() -> Adapter:
    import numpy as np

    return Adapter(**_in_both_orders(lambda like, shape, dtype: np.empty(shape, numpy_dtype(dtype)), np))


def _torch() -> Adapter:
    import torch

    empty_strided = torch.empty_strided

    def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        # Saying the strides spares torch half of its argument parsing.
        if len(shape) == 1:
            strides: tuple[int, ...] = (1,)
        elif len(shape) == 2:
            strides = (shape[1], 1)
        else:
            strides = (shape[1] * shape[2], shape[2], 1) if shape else ()
        return empty_strided(shape, strides, dtype=getattr(torch, dtype), device=like.device)

    def empty_channels_last(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        # In half the time of a tensor in the order of memory, and a view of it.
        stride = shape[1]
        pixels: tuple[int, ...] = ()
        for size in shape[:1:-1]:
            pixels = (stride, *pixels)
            stride *= size
        return empty_strided(shape, (stride, 1, *pixels), dtype=getattr(torch, dtype), device=like.device)

    @lru_cache(maxsize=64)  # of objects that hold no more than the handle
    def stream_of(handle: int, device: int) -> Any:
        return torch.cuda.ExternalStream(handle, device=device)

    def on_stream(handle: int, device: int, make: Callable[..., Any], *arguments: Any) -> Any:
        with torch.cuda.stream(stream_of(handle, device)):
            return make(*arguments)

    def record_stream(array: Any, handle: int, device: int) -> None:
        array.record_stream(stream_of(handle, device))

    return Adapter(
        empty=empty,
        empty_channels_last=empty_channels_last,
        channels_last=lambda array: array.movedim(1, -1).contiguous().movedim(-1, 1),
        assign=lambda target, source: target.copy_(source),
        current_stream=getattr(torch._C, "_cuda_getCurrentRawStream", None),
        on_stream=on_stream,
        record_stream=record_stream,
        # What torch.autograd.graph.increment_version calls, at less than half of its cost.
        increment_version=torch._C._increment_version,
        requires_grad=torch.Tensor.requires_grad,
        forward_ad=torch.autograd.forward_ad,
    )


def _cupy() -> Adapter:
    import cupy

    def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        with like.device:
            return cupy.empty(shape, numpy_dtype(dtype))

    def on_stream(handle: int, device: int, make: Callable[..., Any], *arguments: Any) -> Any:
        with cupy.cuda.Device(device), cupy.cuda.ExternalStream(handle, device):
            return make(*arguments)

    return Adapter(**_in_both_orders(empty, cupy), current_stream=cupy.cuda.get_current_stream, on_stream=on_stream)


def _jax() -> Adapter:
    import jax
    import numpy as np

    def empty(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        if next(iter(like.devices())).platform != "cpu":
            raise ValueError(
                "JAX arrays cannot be written, and JAX names no stream to write them on; for a "
                "product on the GPU pass torch.from_dlpack(a) or cupy.from_dlpack(a)"
            )
        return np.empty(shape, numpy_dtype(dtype))

    # JAX's arrays on the host are NumPy's to copy, and have no other order of their own.
    return Adapter(**_in_both_orders(empty, np), finish=jax.numpy.asarray, immutable=True)


_FRAMEWORKS: dict[str, Callable[[], Adapter]] = {
    "numpy": _numpy,
    "torch": _torch,
    "cupy": _cupy,
    "jax": _jax,
    "jaxlib": _jax,
}
