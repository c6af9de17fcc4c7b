"""Where and with what a result was measured."""

from __future__ import annotations

import ctypes
import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def describe(device: int) -> dict[str, Any]:
    """GPU, its limits and its software; None for what cannot be found out."""
    import torch

    import cleave

    query = "name,driver_version,power.limit,clocks.max.sm"
    smi = _output("nvidia-smi", f"--id={device}", f"--query-gpu={query}", "--format=csv,noheader")
    _, driver, power, clock = [field.strip() for field in smi.split(",")] if smi else [None] * 4
    return {
        "gpu": torch.cuda.get_device_name(device),
        "driver": driver,
        "power_cap": power,
        "max_sm_clock": clock,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "cleave": cleave.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def commit() -> str | None:
    """$CLEAVE_COMMIT, or what git says, with '+' if the working tree differs."""
    if os.environ.get("CLEAVE_COMMIT"):
        return os.environ["CLEAVE_COMMIT"]
    root = str(Path(__file__).parent)
    head = _output("git", "-C", root, "rev-parse", "--short=12", "HEAD")
    changed = head and _output("git", "-C", root, "status", "--porcelain", "--untracked-files=no")
    return f"{head}+" if changed else head


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t, as nvmlDeviceGetComputeRunningProcesses_v3 fills it."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Sensors:
    """The SM clock in MHz and the power in watts, by NVML: 0 where there is none."""

    _SM_CLOCK = 1
    _MOST_PROCESSES = 64

    def __init__(self, device: int = 0):
        self._device = ctypes.c_void_p()
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            self._nvml = None
            return
        self._nvml.nvmlInit_v2()
        self._nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(self._device))

    def read(self) -> tuple[int, int]:
        clock, milliwatts = ctypes.c_uint(), ctypes.c_uint()
        if self._nvml:
            self._nvml.nvmlDeviceGetClockInfo(self._device, self._SM_CLOCK, ctypes.byref(clock))
            self._nvml.nvmlDeviceGetPowerUsage(self._device, ctypes.byref(milliwatts))
        return clock.value, round(milliwatts.value / 1000)

    def processes(self) -> int:
        """How many have the GPU, this one included; 0 where NVML does not say. They take turns of 2 ms."""
        if not self._nvml:
            return 0
        count, found = ctypes.c_uint(self._MOST_PROCESSES), (_Process * self._MOST_PROCESSES)()
        failed = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._device, ctypes.byref(count), found)
        return 0 if failed else count.value


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
