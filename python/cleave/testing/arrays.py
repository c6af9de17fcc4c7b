"""The array libraries that can hold operands: NumPy, torch and CuPy behind one small interface.

Those with a GPU also capture graphs and time them; nothing else in the tools touches a stream.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Set
from typing import Any

from .dtypes import TORCH_ONLY
from .errors import ToolError


class _NumpyLike:
    """What NumPy and CuPy, whose module is `xp`, do alike. Neither has the types of TORCH_ONLY."""

    xp: Any

    def full(self, shape: tuple[int, ...], value: float, dtype: str) -> Any:
        return self.xp.full(shape, value, getattr(self.xp, dtype))

    def poison(self, array: Any) -> None:
        """Fills it with what no kernel writes: an element that one leaves out cannot look right."""
        integers = array.dtype.kind == "i"
        array[...] = self.xp.iinfo(array.dtype).min if integers else math.nan

    def cast(self, array: Any, dtype: str) -> Any:
        return array.astype(getattr(self.xp, dtype), copy=False)

    def contiguous(self, array: Any) -> Any:
        return self.xp.ascontiguousarray(array)

    def pad(self, array: Any, rows: int, columns: int) -> Any:
        """Zeros appended to the last two dimensions."""
        return self.xp.pad(array, [*[(0, 0)] * (array.ndim - 2), (0, rows), (0, columns)])

    def float64(self, array: Any) -> Any:
        return array.astype(self.xp.float64)


class NumpyArrays(_NumpyLike):
    """Host arrays."""

    name = "numpy"
    device_name = "cpu"
    stream: int | None = None
    on_gpu = False

    def __init__(self) -> None:
        import numpy

        self.xp = numpy
        self._erf = numpy.frompyfunc(math.erf, 1, 1)

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        values = self.xp.random.default_rng(seed).standard_normal(shape, self.xp.float32)
        return self.cast(values, dtype)

    def from_numpy(self, values: Any, dtype: str) -> Any:
        return values.astype(getattr(self.xp, dtype))

    def to_numpy(self, array: Any) -> Any:
        return array

    def address(self, array: Any) -> int:
        return array.ctypes.data

    def erf(self, array: Any) -> Any:
        return self._erf(array).astype(self.xp.float64)

    def synchronize(self) -> None:
        """NumPy's work is done when its functions return."""


class TorchArrays:
    """torch tensors, on the CPU or a GPU."""

    name = "torch"

    def __init__(self, device: str) -> None:
        import torch

        self.xp = torch
        self.device = torch.device(device)
        self.on_gpu = self.device.type == "cuda"
        self.device_name = device
        # Graphs cannot be captured on the default stream.
        self.torch_stream = torch.cuda.Stream(self.device) if self.on_gpu else None

    @property
    def stream(self) -> int | None:
        return self.torch_stream.cuda_stream if self.torch_stream else None

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        generator = self.xp.Generator(self.device).manual_seed(seed)
        return self.xp.randn(shape, generator=generator, device=self.device, dtype=getattr(self.xp, dtype))

    def full(self, shape: tuple[int, ...], value: float, dtype: str) -> Any:
        return self.xp.full(shape, value, device=self.device, dtype=getattr(self.xp, dtype))

    def poison(self, array: Any) -> None:
        array.fill_(math.nan if array.is_floating_point() else self.xp.iinfo(array.dtype).min)

    def cast(self, array: Any, dtype: str) -> Any:
        return array.to(getattr(self.xp, dtype))

    def contiguous(self, array: Any) -> Any:
        return array.contiguous()

    def pad(self, array: Any, rows: int, columns: int) -> Any:
        return self.xp.nn.functional.pad(array, (0, columns, 0, rows))

    def from_numpy(self, values: Any, dtype: str) -> Any:
        return self.xp.from_numpy(values).to(self.device, getattr(self.xp, dtype))

    def to_numpy(self, array: Any) -> Any:
        return array.cpu().numpy()

    def address(self, array: Any) -> int:
        return array.data_ptr()

    def float64(self, array: Any) -> Any:
        return array.double()

    def erf(self, array: Any) -> Any:
        return self.xp.special.erf(array)

    def synchronize(self) -> None:
        if self.on_gpu:
            self.xp.cuda.synchronize(self.device)

    def on_stream(self, enqueue: Callable[[], None]) -> None:
        """Makes `stream` torch's current one for the call."""
        with self.xp.cuda.stream(self.torch_stream):
            enqueue()

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """A graph of what `enqueue` puts on `stream`; the result replays it."""
        self.synchronize()
        self.on_stream(enqueue)  # first uses compile, load and allocate, which capture forbids
        self.synchronize()
        graph = self.xp.cuda.CUDAGraph()
        # Not torch.cuda.graph(), which collects garbage and empties caches each time.
        with self.xp.cuda.stream(self.torch_stream):
            graph.capture_begin()
            enqueue()
            graph.capture_end()
        return graph.replay

    def microseconds(self, replay: Callable[[], None]) -> float:
        """GPU time of one replay."""
        start, end = (self.xp.cuda.Event(enable_timing=True) for _ in range(2))
        with self.xp.cuda.stream(self.torch_stream):
            start.record()
            replay()
            end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3


class CupyArrays(_NumpyLike):
    """CuPy arrays on a GPU."""

    name = "cupy"
    on_gpu = True

    def __init__(self, index: int) -> None:
        import cupy

        self.xp = cupy
        self.device_name = f"cuda:{index}"
        self._device = cupy.cuda.Device(index)
        self._device.use()
        self._stream = cupy.cuda.Stream(non_blocking=True)

    @property
    def stream(self) -> int:
        return self._stream.ptr

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        values = self.xp.random.default_rng(seed).standard_normal(shape, dtype=self.xp.float32)
        return self.cast(values, dtype)

    def from_numpy(self, values: Any, dtype: str) -> Any:
        return self.xp.asarray(values).astype(getattr(self.xp, dtype))

    def to_numpy(self, array: Any) -> Any:
        return array.get()

    def address(self, array: Any) -> int:
        return array.data.ptr

    def erf(self, array: Any) -> Any:
        from cupyx.scipy.special import erf

        return erf(array)

    def synchronize(self) -> None:
        self._device.synchronize()

    def on_stream(self, enqueue: Callable[[], None]) -> None:
        with self._stream:
            enqueue()

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        self.synchronize()
        self.on_stream(enqueue)
        self.synchronize()
        with self._stream:
            self._stream.begin_capture()
            enqueue()
            graph = self._stream.end_capture()
        return lambda: graph.launch(self._stream)

    def microseconds(self, replay: Callable[[], None]) -> float:
        start, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        start.record(self._stream)
        replay()
        end.record(self._stream)
        end.synchronize()
        return self.xp.cuda.get_elapsed_time(start, end) * 1e3


Arrays = NumpyArrays | TorchArrays | CupyArrays


def select(device: str, dtypes: Set[str]) -> Arrays:
    """The library for operands of `dtypes` on `device`; ToolError names what to install."""
    if device in ("h100", "h200"):
        raise ToolError(f"device {device} is a planning target without hardware; run this on cpu or cuda")
    for_torch = ", ".join(sorted(TORCH_ONLY & dtypes))
    if device == "cpu":
        if not for_torch:
            return NumpyArrays()
        if _importable("torch"):
            return TorchArrays("cpu")
        raise ToolError(f"NumPy has no {for_torch}: install torch, or use another dtype on the CPU")
    _require_gpu(device)
    if _importable("torch"):
        import torch

        if torch.cuda.is_available():
            return TorchArrays(device)
    if _importable("cupy"):
        if for_torch:
            raise ToolError(f"CuPy has no {for_torch}: install torch with CUDA, or use another dtype")
        return CupyArrays(int(device.partition(":")[2]))
    raise ToolError(f"operands on {device} need torch with CUDA or CuPy: install one, or use --device cpu")


def _require_gpu(device: str) -> None:
    import cleave

    count = cleave.device_count()
    if int(device.partition(":")[2]) >= count:
        raise ToolError(f"there is no {device}: cleave sees {count} GPUs (see `cleave info`)")


def _importable(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
