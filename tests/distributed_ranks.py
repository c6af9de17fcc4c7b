"""Runs every check of the modules below on each rank of a group, forked from one process that has imported torch.

    python tests/distributed_ranks.py RANKS DEVICE REPORT

REPORT gets a JSON object: of each check an empty text, or what went wrong. A rank that fails ends all.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

# NVLink multicast stays off: where it is, it is another's.
os.environ |= {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}

import distributed_checks
import dtensor_checks
import expert_checks
import layer_checks
import torch
import torch.distributed as dist

CHECKS = (*distributed_checks.CHECKS, *expert_checks.CHECKS, *dtensor_checks.CHECKS, *layer_checks.CHECKS)
if os.environ.get("CLEAVE_TRANSPORT"):  # which only products know
    CHECKS = distributed_checks.CHECKS

SECONDS = 120  # for a rank to wait for others


def run(rank: int, size: int, device: str, folder: Path) -> None:
    torch.set_num_threads(1)
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend, init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=timedelta(seconds=SECONDS)
    )
    ranks = distributed_checks.Ranks(rank, size, device)
    with (folder / str(rank)).open("w", buffering=1) as report:
        for check in CHECKS:
            torch.manual_seed(0)
            try:
                check(ranks)
            except BaseException:
                failure = f"rank {rank}:\n{traceback.format_exc()}"
                report.write(json.dumps([check.__name__, failure]) + "\n")
                report.flush()
                os._exit(1)  # others may wait for it for ever
            report.write(json.dumps([check.__name__, ""]) + "\n")
    dist.barrier()  # gloo lets go of the last tensors (examples/distributed/train.py)
    dist.destroy_process_group()


def main(size: int, device: str, path: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, children = Path(name), {}
        for rank in range(size):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    run(rank, size, device, folder)
                    code = 0
                finally:
                    os._exit(code)
            children[child] = rank
        while children:
            child, status = os.wait()
            del children[child]
            if status != 0:
                for other in children:
                    os.kill(other, 9)
        found: dict[str, str] = {}
        for rank in range(size):
            report = folder / str(rank)
            for line in report.read_text().splitlines() if report.exists() else []:
                check, failure = json.loads(line)
                found[check] = found.get(check, "") + failure
    for check in CHECKS:
        found.setdefault(check.__name__, f"{check.__name__} was not run\n")
    Path(path).write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
