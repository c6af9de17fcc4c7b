"""A layer of experts whose experts are dealt to the GPUs of one host: by each dispatcher, beside its products alone.

    torchrun --nproc-per-node 2 -m bench.expert_parallel --out bench/results/expert_parallel.json

Inference in bfloat16, of random routing; ways in turn as in bench.distributed, the median on the slower rank. What
waits for the host, AllToAll(exact=True), has no graph. Before they are timed results are compared with the first way's.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import cleave.distributed as cd
from cleave.torch import MoE

from . import machine, report, tables
from .distributed import all_go_on, captured, times_of


class Layer(NamedTuple):
    name: str
    features: int
    hidden: int
    experts: int
    top_k: int


LAYERS = (
    Layer("DeepSeek-V3", 7168, 2048, 256, 8),
    Layer("DeepSeek-V3, a quarter of its experts", 7168, 2048, 64, 8),
    Layer("Qwen3-235B", 4096, 1536, 128, 8),
    Layer("Qwen3-30B", 2048, 768, 128, 8),
)
TOKENS = (4096, 128, 16)  # of a rank
WAYS = ("AllToAll", "AllToAll, exact", "AllGather")
MOST_OFF = 0.02  # of the largest magnitude: what the order of sums may change in bfloat16


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.expert_parallel", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="results as JSON")
    parser.add_argument("--seconds", type=float, default=600, metavar="S")
    parser.add_argument("--match", default="", metavar="TEXT", help="only layers with this in their name")
    arguments = parser.parse_args()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    began, rows = time.monotonic(), []
    for layer in LAYERS:
        if arguments.match not in layer.name or not all_go_on(time.monotonic() - began < arguments.seconds):
            continue
        made = _made(layer)
        for tokens in TOKENS:
            rows.append(layer._asdict() | {"tokens": tokens} | _measure(made, tokens))
            if rank == 0:
                print(rows[-1], flush=True)
                if arguments.out:
                    of = machine.describe(0) | {"gpus": dist.get_world_size()}
                    write(arguments.out, {"machine": of, "rows": rows})
        del made
    dist.barrier()
    os._exit(0)  # graphs that hold NCCL's kernels keep the group from ending


def write(path: Path, result: dict[str, Any]) -> None:
    """The measurements, and beside them a table."""
    path.write_text(tables.text({"machine": result["machine"], **tables.pack(result["rows"])}))
    rows = report.load(path)["rows"]
    path.with_suffix(".md").write_text("\n".join(_page(result["machine"], rows)))


def _page(of: dict[str, Any], rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "# Experts that are dealt to GPUs"
    yield ""
    yield ", ".join(f"{name} {value}" for name, value in of.items())
    yield ""
    yield "Microseconds of a layer in bfloat16, the slower rank's median of seven rounds, in a graph of ten; `exact` is"
    yield "eager, whose host waits for sizes. Tokens are those of a rank. The last column is the products' share of"
    yield "AllGather's time."
    yield ""
    names = ("features", "hidden", "experts", "top k", "tokens", "products", *WAYS, "exact / AllGather", "share")
    cells = []
    for row in rows:
        graph, exact = row["graph"], row["eager"]["AllToAll, exact"]
        us = graph["products"], graph["AllToAll"], exact, graph["AllGather"]
        ratios = f"{exact / us[3]:.2f}", f"{us[0] / us[3]:.2f}"
        sizes = (row[name] for name in ("features", "hidden", "experts", "top_k", "tokens"))
        cells.append((*map(str, sizes), *(f"{x:.0f}" for x in us), *ratios))
    yield from report.table(names, cells)
    yield ""


def _made(layer: Layer) -> MoE:
    torch.manual_seed(dist.get_rank())
    made = MoE(
        layer.experts,
        layer.top_k,
        layer.features,
        layer.hidden,
        ep_group=dist.group.WORLD,
        device="cuda",
        dtype=torch.bfloat16,
    )
    with torch.no_grad():
        for weight in (made.gate_up.weight, made.down.weight):
            weight.normal_(std=weight.shape[-1] ** -0.5)
        dist.broadcast(made.router.weight.data, 0)
    return made


@torch.no_grad()
def _measure(layer: MoE, tokens: int) -> dict[str, Any]:
    """Microseconds of each way, eager and in a graph; and what arrives, for the products alone."""
    x = torch.randn(tokens, layer.gate_up.weight.shape[-1], device="cuda", dtype=torch.bfloat16)
    ways = dict(zip(WAYS, (cd.AllToAll(), cd.AllToAll(exact=True), cd.AllGather()), strict=True))
    weights, ids = layer.route(x)
    arrived = ways["AllGather"].dispatch(x, ids, weights, layer.num_experts)
    calls = {"products": lambda: layer.run_experts(arrived.rows, arrived.offs)}
    for name, dispatcher in ways.items():
        calls[name] = lambda dispatcher=dispatcher: _run(layer, dispatcher, x)
    expected, off = calls[WAYS[0]](), {}
    for name in WAYS:
        off[name] = float((calls[name]() - expected).abs().max() / expected.abs().max())
        if not off[name] <= MOST_OFF:
            raise RuntimeError(f"{name} is {off[name]:.3g} of the largest magnitude off")
    graphs = {name: captured(call) for name, call in calls.items() if "exact" not in name}
    return {"off": off, "eager": times_of(calls, 10), "graph": times_of(graphs, 1)}


def _run(layer: MoE, dispatcher: Any, x: torch.Tensor) -> torch.Tensor:
    layer.dispatcher = dispatcher
    return layer(x)


if __name__ == "__main__":
    main()
