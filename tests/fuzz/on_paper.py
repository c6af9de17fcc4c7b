"""Problems planned for a GPU and not run: what it would refuse, and how many kernels they need.

Arrays on the host claim to be on the GPU, of which a plan reads no element; so a driver without a
GPU will do, as build/fake_driver has it:

    LD_LIBRARY_PATH=build/fake_driver python -m tests.fuzz.on_paper 20000
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from .draw import SHARING, draw
from .operand import Operand
from .problem import Target
from .run import Report, family_and_mode, summary

_CUDA = 2  # of DLPack's device types
_DEVICE_TYPE = 8  # where a DLTensor has it

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Claimed:
    """A host tensor that says it is on the first GPU."""

    def __init__(self, tensor: torch.Tensor):
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA, 0)

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._tensor.__dlpack__()
        ctypes.c_int32.from_address(_pointer(capsule, b"dltensor") + _DEVICE_TYPE).value = _CUDA
        return capsule

    @property
    def mT(self) -> Claimed:
        return Claimed(self._tensor.mT)


class Scratch:
    """Memory that all operands share: none is read or written."""

    def __init__(self) -> None:
        self._buffers: dict[torch.dtype, torch.Tensor] = {}

    def array(self, operand: Operand) -> Claimed:
        buffer = self._buffers.get(operand.dtype)
        if buffer is None or buffer.numel() < operand.length():
            buffer = torch.empty(operand.length(), dtype=operand.dtype)
            self._buffers[operand.dtype] = buffer
        return Claimed(operand.view(buffer))


def plan(seed: int, count: int, operations: Sequence[str] = (), sharing: int = SHARING, first: int = 0) -> Report:
    report, scratch, kernels, begin = Report(), Scratch(), set(), time.monotonic()
    for index in range(first, first + count):
        problem = draw(seed, index, Target("cuda", small=False), operations, sharing)
        arrays: Any = {x.name: scratch.array(x) for x in problem.call().operands}
        try:
            planned = problem.plan(arrays)
        except (ValueError, TypeError) as error:
            report.refused.setdefault(str(error), []).append(index)
            continue
        report.runs[problem.operation, *family_and_mode(planned)] += 1
        kernels.add(hash(planned.kernel_source) if planned is not None else 0)
    report.kernels, report.seconds = len(kernels), time.monotonic() - begin
    return report


if __name__ == "__main__":
    made = plan(0, int(sys.argv[1]) if len(sys.argv) > 1 else 1000, sharing=8)
    print(summary(made))
    sys.exit(1 if made.refused else 0)
