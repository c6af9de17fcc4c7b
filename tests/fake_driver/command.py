"""The `cleave` command on a machine whose GPU is the fake driver: it measures what never ran.

    python command.py tune gemm --m 64 ...

The environment names the fake libraries: LD_LIBRARY_PATH, CLEAVE_NVRTC.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from cleave import cli
from cleave.testing import arrays, measure
from cleave.testing.dtypes import TORCH_ONLY
from cleave.testing.errors import ToolError


class DeviceArray(np.ndarray):
    """Host memory that says it is a GPU's, which the fake driver confirms."""

    __dlpack__ = None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.__array_interface__, version=3)


class Module:
    """NumPy, but what it makes is on the device."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if isinstance(found, type) or not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            made = found(*arguments, **options)
            return made.view(DeviceArray) if isinstance(made, np.ndarray) else made

        return call


class FakeArrays(arrays.NumpyArrays):
    """What a library of arrays on a GPU offers the command; later contenders seem faster."""

    on_gpu = True
    stream = 64

    def __init__(self) -> None:
        super().__init__()
        self.xp = Module()
        self._graphs = 0

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        return super().normal(shape, dtype, seed).view(DeviceArray)

    def from_numpy(self, values: Any, dtype: str) -> Any:
        return super().from_numpy(values, dtype).view(DeviceArray)

    def on_stream(self, enqueue: Callable[[], None]) -> None:
        enqueue()

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], float]:
        enqueue()
        self._graphs += 1
        microseconds = 1000.0 / self._graphs
        return lambda: microseconds

    def microseconds(self, replay: Callable[[], float]) -> float:
        return replay()


def select(device: str, dtypes: set[str]) -> arrays.Arrays:
    if not device.startswith("cuda"):
        return for_cpu(device, dtypes)
    if for_torch := TORCH_ONLY & dtypes:
        raise ToolError(f"NumPy has no {', '.join(for_torch)}")
    return FakeArrays()


measure.COLD_BYTES = 0  # no cache to go around
# Launches are of any kind: their parameters are of no use here.
ctypes.CDLL("libcuda.so.1").fake_driver_set_params_bytes(ctypes.c_size_t(0))
for_cpu, arrays.select = arrays.select, select
raise SystemExit(cli.main())
