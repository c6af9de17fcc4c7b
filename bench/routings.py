"""python -m bench.routings: weight gradients of experts in fp8, over routings drawn at random.

One plan and one captured graph serve all routings of a layer: between replays only the groups' ends on the GPU change.
A routing draws each expert's popularity (log-normal, sigma 0.5), then each token's top 8 experts; an expert's tokens
are padded to a multiple of 128, as training frameworks pad them. Ours in fp8, ours in bfloat16, and
torch._scaled_grouped_mm where it takes the scales, are replayed in turns, routing by routing, each call behind an
ordinary kernel and each replay with L2 overwritten.

The table has microseconds of a call: the median over routings, the fastest and the slowest; TFLOP/s of the unpadded
tokens; the host's time of a call; and how busy the SMs were: cycles in which an SM had a CTA over the cycles of the
kernel, the average over SMs and a few routings, as Nsight Compute counts them, where it is installed.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cleave.testing import grouped, measure
from cleave.testing.arrays import TorchArrays
from cleave.testing.group_sizes import ranges_of
from cleave.testing.grouped_case import GroupedCase

from . import report
from .between import Between, medians
from .kept_rows import KeptRows
from .summary import geomean

ROUTINGS = 50
TOP_K = 8
SIGMA = 0.5
PADDED = 128  # an expert's tokens, to a multiple of this
SCALINGS = ("block_1x128", "row")
LAYERS = ((8, 4096, 4096, 7168), (8, 4096, 7168, 2048), (32, 4096, 7168, 2048), (64, 2048, 2048, 1408))
CALLS = 200  # of which the host's time is the median

PROFILED = 5  # routings
SM_BUSY = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"

Sizes = tuple[int, ...]


def drawn(experts: int, tokens: int, seed: int) -> Sizes:
    """How many rows each expert gets of `tokens` tokens."""
    generator = torch.Generator().manual_seed(seed)
    popularity = SIGMA * torch.randn(experts, generator=generator)
    gumbel = -torch.empty(tokens, experts).exponential_(generator=generator).log()
    ids = (popularity + gumbel).topk(min(TOP_K, experts - 1)).indices
    return tuple(torch.bincount(ids.flatten(), minlength=experts).tolist())


def padded(sizes: Sizes) -> Sizes:
    return tuple(-(-size // PADDED) * PADDED for size in sizes)


class Layer:
    """A layer's operands, as large as its largest routing needs, and what everybody computes of them."""

    def __init__(
        self, experts: int, tokens: int, n: int, k: int, scaling: str, count: int = ROUTINGS, device: str = "cuda:0"
    ) -> None:
        self.title = f"{experts} experts, {tokens} tokens, {n} x {k}, scales {scaling}"
        self.routings = [drawn(experts, tokens, seed) for seed in range(count)]
        self.arrays = TorchArrays(device)
        largest = max(map(padded, self.routings), key=sum)
        self.case = GroupedCase(
            *(experts, sum(largest), n, k, largest, "wgrad", "float8_e4m3fn"),
            scaling=scaling,
            use_fast_accum=scaling == "row",
            alignment=PADDED,
        )
        in_16_bits = replace(self.case, dtype="bfloat16", scaling="none", use_fast_accum=False)
        self.cases = {"cleave": self.case, "cleave_bfloat16": in_16_bits}
        self.operands = {name: grouped.make_operands(self.arrays, case) for name, case in self.cases.items()}
        self.calls = {name: self._bound(name) for name in self.cases}
        if scaling == "row" and self.arrays.on_gpu:
            self.calls["torch_grouped_rowwise"] = self._torch

    def _bound(self, name: str) -> Callable[[], None]:
        operands = self.operands[name]
        plan = grouped.plan_for(self.cases[name], operands)
        return lambda: grouped.run(plan, operands, None)

    def _torch(self) -> None:
        of = self.operands["cleave"]
        scales = [scale.flatten() for scale in of.scales.values()]
        torch._scaled_grouped_mm(of.a, of.b, *scales, offs=of.offs, out_dtype=torch.bfloat16, use_fast_accum=True)

    def route(self, sizes: Sizes) -> None:
        """The GPU's offsets become this routing's, on the current stream."""
        ends = [end for _, end in ranges_of(padded(sizes))]
        for operands in self.operands.values():
            operands.offs.copy_(torch.tensor(ends, dtype=torch.int32))

    def check(self, sizes: Sizes) -> float:
        """The RMS error in fp8, which a run of this routing leaves; RuntimeError where it is no rounding's."""
        case, operands = replace(self.case, sizes=padded(sizes)), self.operands["cleave"]
        self.route(sizes)
        self.arrays.poison(operands.out)
        measure.run_to_completion(self.arrays, self.calls["cleave"])
        errors = grouped.errors(self.arrays, case, operands)
        if not errors.acceptable:
            raise RuntimeError(f"{self.title}: wrong for experts of {sizes} tokens: {errors}")
        return errors.rms_relative


def measured(layer: Layer, between: Between, rounds: int) -> dict[str, Any]:
    """One row. Each routing's microseconds are the medians of its rounds."""
    rms = max(layer.check(sizes) for sizes in (layer.routings[0], layer.routings[-1]))
    samples = {name: between.timed(lambda _, call=call: call()) for name, call in layer.calls.items()}
    us: dict[str, list[float]] = {name: [] for name in samples}
    for sizes in layer.routings:
        layer.route(sizes)
        layer.arrays.synchronize()
        for name, median in medians(samples, rounds).items():
            us[name].append(median)
    flops = 2 * layer.case.n * layer.case.k
    rates = [flops * sum(sizes) / time * 1e-6 for sizes, time in zip(layer.routings, us["cleave"], strict=True)]
    return {
        "job": "wgrad fp8",
        "case": layer.title,
        "routings": len(layer.routings),
        "us": statistics.median(us["cleave"]),
        "fastest_us": min(us["cleave"]),
        "slowest_us": max(us["cleave"]),
        "tflops": statistics.median(rates),
        "host_us": measure.host_microseconds(layer.calls["cleave"], CALLS),
        "rms_error": rms,
        "peers": {name: statistics.median(times) for name, times in us.items() if name != "cleave"},
    }


def sm_busy(layer: Sequence[str]) -> float | None:
    """The percentage, from a process of its own under Nsight Compute; None without it."""
    if not shutil.which("ncu"):
        return None
    profiled = [sys.executable, "-m", "bench.routings", "--profile", *layer]
    options = [
        "--csv",
        "--page",
        "raw",
        "--metrics",
        SM_BUSY,
        "--kernel-name",
        "regex:cleave",
        "--clock-control",
        "none",
    ]
    run = subprocess.run(["ncu", *options, *profiled], capture_output=True, text=True, timeout=300)
    return average(run.stdout.splitlines())


def average(lines: Iterable[str]) -> float | None:
    """Of SM_BUSY, in what ncu wrote: a line of names and one of units among others."""
    table = csv.DictReader(line for line in lines if line.startswith('"'))
    values = [row[SM_BUSY] for row in table if SM_BUSY in row]
    found = [float(value) for value in values if value and value[0].isdigit()]
    return statistics.mean(found) if found else None


def markdown(machine: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    def ratio(row: dict[str, Any], peer: str) -> float | None:
        return row["peers"][peer] / row["us"] if peer in row["peers"] else None

    peers = list(dict.fromkeys(peer for row in rows for peer in row["peers"]))
    columns = ["case", "us", "fastest", "slowest", "TFLOP/s", "host us", "SMs busy", "rms error"]
    fields = ["case", "us", "fastest_us", "slowest_us", "tflops", "host_us", "sm_busy", "rms_error"]
    cells = [[*map(row.get, fields), *(ratio(row, peer) for peer in peers)] for row in rows]
    geomeans = [f"{peer} {geomean(filter(None, (ratio(row, peer) for row in rows))):.3f}" for peer in peers]
    lines = [
        "# Experts' weight gradients in fp8, over routings drawn at random",
        "",
        report.measured_on(machine),
        "",
        f"Each row: one plan and one graph for {rows[0]['routings']} routings. Others' time over ours, in geomean: "
        f"{', '.join(geomeans)}.",
        "",
        *report.table([*columns, *(f"{peer} / ours" for peer in peers)], cells),
    ]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.routings", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=540, help="start no row after this long")
    parser.add_argument("--out", type=Path, default=Path("bench/results/routings.json"), help="a .md is put beside it")
    parser.add_argument("--profile", nargs=5, metavar=("EXPERTS", "TOKENS", "N", "K", "SCALING"), help="run, for ncu")
    arguments = parser.parse_args(argv)
    if arguments.profile:
        *sizes, scaling = arguments.profile
        layer = Layer(*map(int, sizes), scaling, PROFILED)
        for routing in layer.routings:
            layer.route(routing)
            measure.run_to_completion(layer.arrays, layer.calls["cleave"])
        return 0
    kept, between = KeptRows(arguments.out, arguments.seconds), Between(flush=True)
    for scaling in SCALINGS:
        for sizes in LAYERS:
            layer = Layer(*sizes, scaling)
            if kept.time_is_up or not kept.missing("wgrad fp8", [(layer.title, layer)]):
                continue
            row = measured(layer, between, arguments.rounds)
            del layer
            torch.cuda.empty_cache()
            kept.add(row | {"sm_busy": sm_busy([*map(str, sizes), scaling])})
            print(
                f"{row['case']}: {row['us']:.1f} us ({row['fastest_us']:.1f} to {row['slowest_us']:.1f}), "
                f"{row['tflops']:.0f} TFLOP/s, {row['peers']}",
                flush=True,
            )
    result = report.load(arguments.out)
    arguments.out.with_suffix(".md").write_text(markdown(result["machine"], result["rows"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
