"""Groups of the ranks of an NCCL communicator, which threads of one process have. NVLink multicast stays off."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

os.environ |= {"NCCL_NVLS_ENABLE": "0"}
torch = pytest.importorskip("torch", minversion="2.10")

from cleave import _core  # noqa: E402


@pytest.mark.parametrize("size", [1, 2])
def test_memory_that_all_ranks_of_a_communicator_see(size: int) -> None:
    if torch.cuda.device_count() < size:
        pytest.skip(f"it needs {size} GPUs")
    torch.cuda.init()
    nccl = ctypes.CDLL("libnccl.so.2")  # torch's
    communicators = (ctypes.c_void_p * size)()
    assert nccl.ncclCommInitAll(communicators, size, None) == 0
    with ThreadPoolExecutor(size) as threads:
        groups = list(threads.map(lambda comm: _core.Group.from_nccl(comm, 4096), communicators))
    for rank, group in enumerate(groups):
        for owner in range(size):
            group.staging(owner)[rank] = 10 * owner + rank
    for rank, group in enumerate(groups):  # without waiting for any
        group.barrier("numbers", torch.cuda.current_stream(rank).cuda_stream)
    for rank, group in enumerate(groups):
        torch.cuda.synchronize(rank)
        assert not group.problem()
        assert group.staging(rank)[:size].tolist() == [10 * rank + other for other in range(size)]
    del groups
    for communicator in communicators:
        assert nccl.ncclCommDestroy(ctypes.c_void_p(communicator)) == 0
