"""How calls over ranks are timed: in turns, in rounds that all ranks begin together."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

ROUNDS, CALLS = 7, 10
Call = Callable[[], Any]


def all_go_on(own: bool) -> bool:
    flag = torch.tensor(int(own), device="cuda")
    dist.all_reduce(flag, dist.ReduceOp.MIN)
    return bool(flag.item())


def captured(call: Call) -> Call:
    """CALLS of it, as one graph."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog goes on
        for _ in range(CALLS):
            call()
    return graph.replay


def times_of(calls: dict[str, Call], repeats: int) -> dict[str, float]:
    """Microseconds of each; CALLS of them are a round, by `repeats` repetitions of what is called."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            dist.barrier()
            torch.cuda.synchronize()
            begin.record()
            for _ in range(repeats):
                call()
            end.record()
            end.synchronize()
            samples[name].append(begin.elapsed_time(end) * 1e3 / CALLS)
    medians = torch.tensor([statistics.median(s[1:]) for s in samples.values()], device="cuda")
    dist.all_reduce(medians, dist.ReduceOp.MAX)
    return dict(zip(samples, medians.tolist(), strict=True))
