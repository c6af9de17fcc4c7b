"""Products over ranks against what else there is, on the GPUs of one host.

    torchrun --nproc-per-node 2 -m bench.distributed --out bench/results/distributed.json

Each case is measured by all ways in turn, seven rounds of them; a way's time is the median of its rounds on the rank
where that is longer. Local sizes are those of a --model at TP2 and at TP8, whatever the number of ranks here: what was
measured of Llama-3-70B is what constants and thresholds follow from, DeepSeek-V3 is what they are judged by. With
--seconds, no case is begun after so long. With --refit, what calls over ranks are said to cost, and whether an
all-reduce takes one trip or two, is fitted to these times (bench.distributed.fit): for other GPUs than those of
bench/results, or other links between them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory

import cleave.distributed as cd
from cleave.distributed._transports import is_cut

from .. import machine
from . import report
from .rounds import CALLS, Call, all_go_on, captured, times_of

# Name, operation, N, K; K of a rank where it is dealt, N of a rank where that is.
SHAPES = {
    report.FITTED: (
        ("o, TP8", "reduce_scatter", 8192, 1024),
        ("down, TP8", "reduce_scatter", 8192, 3584),
        ("qkv, TP8", "all_gather", 1280, 8192),
        ("gate_up, TP8", "all_gather", 7168, 8192),
        ("o, TP8", "all_reduce", 8192, 1024),
        ("down, TP8", "all_reduce", 8192, 3584),
        ("o, TP2", "reduce_scatter", 8192, 4096),
        ("down, TP2", "reduce_scatter", 8192, 14336),
        ("qkv, TP2", "all_gather", 5120, 8192),
        ("gate_up, TP2", "all_gather", 28672, 8192),
        ("down, TP2", "all_reduce", 8192, 14336),
    ),
    "DeepSeek-V3": (
        ("o, TP8", "reduce_scatter", 7168, 2048),
        ("down, TP8", "reduce_scatter", 7168, 2304),
        ("q_b, TP8", "all_gather", 3072, 1536),
        ("gate_up, TP8", "all_gather", 4608, 7168),
        ("o, TP8", "all_reduce", 7168, 2048),
        ("down, TP8", "all_reduce", 7168, 2304),
        ("o, TP2", "reduce_scatter", 7168, 8192),
        ("down, TP2", "reduce_scatter", 7168, 9216),
        ("q_b, TP2", "all_gather", 12288, 1536),
        ("gate_up, TP2", "all_gather", 18432, 7168),
        ("o, TP2", "all_reduce", 7168, 8192),
    ),
}
TOKENS = (16, 8192, 64, 2048, 1, 256, 4096, 512)


def main() -> None:
    arguments = _parse()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    _symmetric_memory.enable_symm_mem_for_group(dist.group.WORLD.group_name)
    began, rows = time.monotonic(), []
    for m in arguments.tokens:
        for name, operation, n, k in SHAPES[arguments.model]:
            if m % dist.get_world_size() and operation != "all_reduce":
                continue  # NCCL's have as many rows on each rank
            if arguments.match not in f"{operation} {name}":
                continue
            if all_go_on(time.monotonic() - began < arguments.seconds):
                case = {"operation": operation, "case": name, "m": m, "n": n, "k": k}
                case["halves"] = is_cut(operation, m, n, dist.get_world_size())
                rows.append(case | _measure(operation, m, n, k))
                if rank == 0:
                    print(_line(rows[-1]), flush=True)
                    if arguments.out:
                        _write(arguments.out, arguments.model, rows)
    if arguments.refit and rank == 0:
        from . import fit  # which needs scipy

        fit.refit(arguments.out, fit.COST)
    dist.barrier()
    os._exit(0)  # graphs that hold NCCL's kernels keep the group from ending


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.distributed", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="results as JSON")
    parser.add_argument("--model", choices=SHAPES, default=report.FITTED, help="whose layers")
    parser.add_argument("--seconds", type=float, default=600, metavar="S")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, metavar="M", help="rows, of all ranks")
    parser.add_argument("--match", default="", metavar="TEXT", help="only cases with this in their operation and name")
    parser.add_argument("--refit", action="store_true", help="fit the cost model to the results, which --out keeps")
    arguments = parser.parse_args()
    if arguments.refit and not arguments.out:
        parser.error("--refit needs --out, the file of the results that it fits to")
    if arguments.refit and arguments.model != report.FITTED:
        parser.error(f"--refit is of {report.FITTED}'s layers: others judge what follows from it")
    return arguments


def _write(path: Path, model: str, rows: list[dict[str, Any]]) -> None:
    of = machine.describe(0) | {"gpus": dist.get_world_size(), "model": model}
    report.write(path, {"machine": of, "rows": rows})


def _measure(operation: str, m: int, n: int, k: int) -> dict[str, Any]:
    """Microseconds of each way, eager and in a graph."""
    size = dist.get_world_size()
    torch.manual_seed(dist.get_rank())
    rows = m // size if operation == "all_gather" else m
    a = torch.randn(rows, k, device="cuda").bfloat16()
    b = (torch.randn(n, k, device="cuda") / k**0.5).bfloat16().t()
    calls, without = {}, {}
    for name, call in _ways(operation, a, b, m):
        try:
            call()
            torch.cuda.synchronize()
        except RuntimeError as error:
            without[name] = str(error).splitlines()[0][:200]
        else:
            calls[name] = call
    graphs = {name: captured(call) for name, call in calls.items() if not name.startswith("torch")}
    times = {"eager": times_of(calls, CALLS), "graph": times_of(graphs, 1)}
    return times | ({"without": without} if without else {})


def _ways(operation: str, a: Tensor, b: Tensor, m: int) -> Iterator[tuple[str, Call]]:
    group, size = dist.group.WORLD.group_name, dist.get_world_size()
    n = b.shape[1]
    ours, symmetric = torch.ops.cleave, torch.ops.symm_mem
    products = {"cuBLAS": lambda x: x @ b, "cleave": lambda x: ours.gemm(x, b)}
    whole = torch.empty(m, a.shape[1], dtype=a.dtype, device="cuda")
    part = torch.empty(m // size, n, dtype=a.dtype, device="cuda")

    def gathered(multiply: Callable[[Tensor], Tensor]) -> Tensor:
        dist.all_gather_into_tensor(whole, a)
        return multiply(whole)

    def scattered(multiply: Callable[[Tensor], Tensor]) -> Tensor:
        dist.reduce_scatter_tensor(part, multiply(a))
        return part

    def reduced(multiply: Callable[[Tensor], Tensor]) -> Tensor:
        d = multiply(a)
        dist.all_reduce(d)
        return d

    together = {"all_gather": gathered, "reduce_scatter": scattered, "all_reduce": reduced}[operation]
    local = whole if operation == "all_gather" else a
    for name, multiply in products.items():
        yield f"{name} alone", lambda multiply=multiply: multiply(local)
        yield f"{name} + NCCL", lambda multiply=multiply: together(multiply)
    transports = ("peer", "nccl")
    if operation == "all_gather":
        for way in transports:
            yield f"cleave {way}", lambda way=way: cd.all_gather_gemm(a, b, transport=way)
        yield "torch fused", lambda: symmetric.fused_all_gather_matmul(a, [b], 0, group)
    elif operation == "reduce_scatter":
        for way in transports:
            yield f"cleave {way}", lambda way=way: cd.gemm_reduce_scatter(a, b, transport=way)
        yield "torch fused", lambda: symmetric.fused_matmul_reduce_scatter(a, b, "sum", 0, group)
    else:
        for way in transports:
            yield f"cleave {way}", lambda way=way: cd.gemm_all_reduce(a, b, transport=way)
        staging = _symmetric_memory.empty(m, n, dtype=a.dtype, device="cuda")
        _symmetric_memory.rendezvous(staging, group)

        def one_shot() -> Tensor:
            torch.mm(a, b, out=staging)
            return symmetric.one_shot_all_reduce(staging, "sum", group)

        yield "torch mm + one-shot", one_shot


def _line(row: dict[str, Any]) -> str:
    def shown(times: dict[str, float]) -> str:
        return ", ".join(f"{name} {us:.1f}" for name, us in times.items())

    title = f"{row['operation']} {row['case']}: {row['m']} x {row['n']} x {row['k']}"
    return (
        f"{title}\n  eager: {shown(row['eager'])}\n  graph: {shown(row['graph'])}\n  without: {row.get('without', {})}"
    )


if __name__ == "__main__":
    main()
