"""cuBLAS with no workspace, so that it cannot split K: how a row of its results is kept from changing with the batch.

By cuBLAS's own interface (cublasGemmEx), since PyTorch reads the workspace's size once a process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import torch

from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands

_TYPES = {torch.float16: 2, torch.bfloat16: 14}  # CUDA_R_16F, CUDA_R_16BF
_NOT_TRANSPOSED, _TRANSPOSED = 0, 1  # cublasOperation_t
_COMPUTE_32F, _DEFAULT_ALGORITHM = 68, -1


def serves(case: GemmCase) -> GemmCase | None:
    fits = case.plain and case.dtype in ("float16", "bfloat16") and case.result_dtype == case.dtype
    return case if fits and case.deterministic == "batch_invariant" else None


def calls(case: GemmCase, operands: Operands) -> dict[str, Callable[[], object]]:
    return {"cublasGemmEx": lambda: multiply(operands.a, operands.b, operands.out)}


def multiply(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> None:
    """On the current stream. cuBLAS's matrices are column-major: it computes the transpose of D."""
    handle = _handle(a.device.index)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    _check(_cublas().cublasSetStream_v2(handle, stream), "cublasSetStream")
    _check(_cublas().cublasSetWorkspace_v2(handle, None, ctypes.c_size_t(0)), "cublasSetWorkspace")  # a new stream's
    (m, k), n = a.shape, b.shape[1]
    one, zero, kind = ctypes.c_float(1), ctypes.c_float(0), _TYPES[a.dtype]
    status = _cublas().cublasGemmEx(
        handle, *(_operation(b), _operation(a), n, m, k, ctypes.byref(one)),
        *_matrix(b, kind), *_matrix(a, kind), ctypes.byref(zero), ctypes.c_void_p(d.data_ptr()), kind, n,
        _COMPUTE_32F, _DEFAULT_ALGORITHM,
    )  # fmt: skip
    _check(status, "cublasGemmEx")


def _operation(matrix: torch.Tensor) -> int:
    return _NOT_TRANSPOSED if matrix.stride(1) == 1 else _TRANSPOSED


def _matrix(matrix: torch.Tensor, kind: int) -> tuple[ctypes.c_void_p, int, int]:
    return ctypes.c_void_p(matrix.data_ptr()), kind, max(matrix.stride())


@cache
def _cublas() -> ctypes.CDLL:
    """The one that PyTorch has loaded."""
    torch.cuda.current_blas_handle()
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libcublas.so" in line)
    return ctypes.CDLL(path)


@cache
def _handle(device: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _check(_cublas().cublasCreate_v2(ctypes.byref(handle)), f"cublasCreate on GPU {device}")
    return handle


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what} returned {status}")
