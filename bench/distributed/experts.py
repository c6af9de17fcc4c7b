"""A layer of experts whose experts are dealt to the GPUs of one host: by each dispatcher, beside its products alone.

    torchrun --nproc-per-node 2 -m bench.distributed.experts --out bench/results/expert_parallel.json

Inference of random routing, with experts in bfloat16, and in float8 with scales of blocks, whose tokens travel in 8
bits; ways in turn as in bench.distributed, the median on the slower rank. What waits for the host,
AllToAll(exact=True), has no graph. Before they are timed results are compared with the first way's.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import cleave.distributed as cd
from cleave.torch import MoE, W8A8Experts

from .. import machine, report, tables
from .rounds import all_go_on, captured, times_of


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
    parser = argparse.ArgumentParser(prog="python -m bench.distributed.experts", description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="results as JSON")
    parser.add_argument("--seconds", type=float, default=600, metavar="S")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, metavar="N", help="of a rank")
    parser.add_argument("--match", default="", metavar="TEXT", help="only layers with this in their name")
    arguments = parser.parse_args()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    began, rows = time.monotonic(), []
    for layer in LAYERS:
        if arguments.match not in layer.name or not all_go_on(time.monotonic() - began < arguments.seconds):
            continue
        for dtype, run, products in _forms(_made(layer)):
            for tokens in arguments.tokens:
                measured = _measure(layer, tokens, run, products)
                rows.append(layer._asdict() | {"dtype": dtype, "tokens": tokens} | measured)
                if rank == 0:
                    print(rows[-1], flush=True)
                    if arguments.out:
                        of = machine.describe(0) | {"gpus": dist.get_world_size()}
                        write(arguments.out, {"machine": of, "rows": rows})
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
    yield "Microseconds of a layer, the slower rank's median of seven rounds, in a graph of ten; `exact` is eager,"
    yield "whose host waits for sizes. In float8 scales are of blocks and tokens travel in 8 bits. Tokens are those of"
    yield "a rank. The last column is the products' share of AllGather's time."
    yield ""
    names = ("features", "hidden", "experts", "top k", "experts in", "tokens", "products")
    cells = []
    for row in rows:
        graph, exact = row["graph"], row["eager"]["AllToAll, exact"]
        us = graph["products"], graph["AllToAll"], exact, graph["AllGather"]
        ratios = f"{exact / us[3]:.2f}", f"{us[0] / us[3]:.2f}"
        sizes = (row[name] for name in ("features", "hidden", "experts", "top_k", "dtype", "tokens"))
        cells.append((*map(str, sizes), *(f"{x:.0f}" for x in us), *ratios))
    yield from report.table((*names, *WAYS, "exact / AllGather", "share"), cells)
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


def _forms(layer: MoE) -> Iterator[tuple[str, Callable[..., torch.Tensor], Callable[..., torch.Tensor]]]:
    """The layer's own, and in 8 bits: the dtype; what runs all of it with a dispatcher, and its products of what has
    arrived."""

    def run(dispatcher: Any, x: torch.Tensor) -> torch.Tensor:
        layer.dispatcher = dispatcher
        return layer(x)

    yield "bfloat16", run, lambda arrived: layer.run_experts(arrived.rows, arrived.offs)
    weights = [_quantised(part.weight.detach()) for part in (layer.gate_up, layer.down)]
    experts = W8A8Experts.from_quantized(
        *weights[0], *weights[1], granularity="block_128x128", dispatcher=cd.AllGather()
    )

    def run_in_8_bits(dispatcher: Any, x: torch.Tensor) -> torch.Tensor:
        experts.dispatcher = dispatcher
        weights, ids = layer.route(x)
        return experts(x, ids, weights)

    def products(arrived: Any) -> torch.Tensor:
        return experts.run_experts(arrived, torch.bfloat16)

    yield "float8_e4m3fn", run_in_8_bits, products


def _quantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    q = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
    scales = []
    for expert, of_q in zip(weight, q, strict=True):
        made, scale = torch.ops.cleave.quantize(expert, torch.float8_e4m3fn, "block_128x128")
        of_q.copy_(made)
        scales.append(scale)
    return q, torch.stack(scales)


@torch.no_grad()
def _measure(
    layer: Layer,
    tokens: int,
    run: Callable[..., torch.Tensor],
    products: Callable[..., torch.Tensor],
) -> dict[str, Any]:
    """Microseconds of each way, eager and in a graph; and what arrives, for the products alone."""
    x = torch.randn(tokens, layer.features, device="cuda", dtype=torch.bfloat16)
    ways = dict(zip(WAYS, (cd.AllToAll(), cd.AllToAll(exact=True), cd.AllGather()), strict=True))
    seen: list[Any] = []

    class Watched(cd.AllGather):
        def combine(self, rows: torch.Tensor, arrived: Any) -> torch.Tensor:
            seen.append(arrived)
            return super().combine(rows, arrived)

    run(Watched(), x)
    calls = {"products": lambda: products(seen[0])}
    for name, dispatcher in ways.items():
        calls[name] = lambda dispatcher=dispatcher: run(dispatcher, x)
    expected, off = calls[WAYS[0]](), {}
    for name in WAYS:
        off[name] = float((calls[name]() - expected).abs().max() / expected.abs().max())
        if not off[name] <= MOST_OFF:
            raise RuntimeError(f"{name} is {off[name]:.3g} of the largest magnitude off")
    graphs = {name: captured(call) for name, call in calls.items() if "exact" not in name}
    return {"off": off, "eager": times_of(calls, 10), "graph": times_of(graphs, 1)}


if __name__ == "__main__":
    main()
