"""python -m bench.second_opinion: what NVIDIA's heuristics would take, against what the planner takes.

nvidia-matmul-heuristics names a tile, a cluster and a number of slices for a CUTLASS kernel. Cleave's kernels with that
tile (either way round) and as many slices, the best by prediction, are measured in turns with the planner's choice, on
shapes of the *validation* part, as bench.regret does. Shapes for which Cleave has no such kernel are left out, and
those of the table of measured choices. Prints a table; the ratio is their kernel's time over the planner's.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import nvMatmulHeuristics as nvmmh
import torch

from cleave import _core

from . import pairs, report
from .between import Between, medians
from .jobs.every import EVERY_JOB, Shape
from .operand_sets import sets_for

JOBS = ("bf16 tn", "bf16 large K")  # whose layout and types `Heuristics` asks for
KERNELS = 3  # of ours with their tile
COLUMNS = ("case", "ours", "us", "theirs", "the fastest of ours like it", "us", "ratio")
NAME = re.compile(
    r"sm90 (?P<tile>\d+x\d+)(?P<turned> transposed)?(?: pingpong)?(?: multicast (?P<cluster>\dx\d))?"
    r"(?: (?:serial|parallel|cluster) (?P<slices>\d+))?"
)


@dataclass(frozen=True)
class Opinion:
    """Extents along D's rows, then its columns."""

    tile: tuple[int, int]
    cluster: tuple[int, int]
    slices: int

    def __str__(self) -> str:
        return f"{_times(self.tile)} cluster {_times(self.cluster)}, {self.slices} slices"

    def fits(self, kernel: str) -> bool:
        found = NAME.fullmatch(kernel)
        turn = -1 if found and found["turned"] else 1
        return bool(found) and found["tile"] == _times(self.tile[::turn]) and int(found["slices"] or 1) == self.slices

    def shares(self, kernel: str) -> bool:
        """Whether the kernel, which fits, has CTAs in the same clusters."""
        found = NAME.fullmatch(kernel)
        turn = -1 if found["turned"] else 1
        return (found["cluster"] or "1x1") == _times(self.cluster[::turn])


def _times(extents: tuple[int, int]) -> str:
    return "x".join(map(str, extents))


class Heuristics(nvmmh.NvMatmulHeuristicsInterface):
    """Asked about bfloat16 products in TN, accumulated in float32, for CUTLASS 3."""

    def __init__(self, gpu: str) -> None:
        super().__init__(nvmmh.NvMatmulHeuristicsTarget.CUTLASS3, "TST")
        self._gpu = self.createHardwareDescriptor()
        self.setHardwarePredefinedGpu(self._gpu, nvmmh.NvMatmulHeuristicsNvidiaGpu[gpu])
        self._layout = nvmmh.NvMatmulHeuristicsMatmulLayout.TN_ROW_MAJOR
        if not self.loadInternalDiscoverySet(self._layout, self._gpu):
            raise RuntimeError(f"nvidia-matmul-heuristics knows nothing of {gpu}")

    def __del__(self) -> None:
        """Nothing: 0.1.0.27 crashes when its handle is destroyed."""

    def opinion(self, shape: Shape) -> Opinion:
        (first,) = self.get_with_mnk(*shape, self._layout, 1, self._gpu)
        kernel = first["kernel"]
        tile, cluster = (kernel.cta_tile_m, kernel.cta_tile_n), (kernel.cluster_m, kernel.cluster_n)
        return Opinion(tile, cluster, kernel.split_k)


def kernels_of(planned: Any, opinion: Opinion) -> list[str]:
    """The planner's choice, and those of its candidates that do as the heuristics say; none without such."""
    if _core.is_tuned(planned):
        return []
    theirs = [candidate["kernel"] for candidate in planned.candidates if opinion.fits(candidate["kernel"])]
    theirs = [kernel for kernel in theirs if opinion.shares(kernel)] or theirs
    return list(dict.fromkeys([planned.kernel_name, *theirs[:KERNELS]])) if theirs else []


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.second_opinion", description=__doc__)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--shapes", type=int, default=40, help="of each job")
    parser.add_argument("--seed", type=int, default=0, help="of the draw of shapes")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args(argv)
    gpu = torch.cuda.get_device_name()
    heuristics = Heuristics("H200_SXM" if "H200" in gpu else "H100_SXM")
    between, pool = Between(), pairs.compilers()
    rows: list[Sequence[Any]] = []
    for job in (EVERY_JOB[name] for name in arguments.jobs.split(",")):
        sets, shapes = sets_for(job), job.shapes("validation", arguments.shapes, arguments.seed)

        def pick(planned: Any, shape: Shape) -> list[str]:
            return kernels_of(planned, heuristics.opinion(shape))

        for shape, plans in pairs.compiled_ahead(job, shapes, pick, pool):
            if plans:
                case, opinion = job.case(shape), heuristics.opinion(shape)
                us = medians(dict(pairs.samples_of(job, plans, sets.operands(case), between)), arguments.rounds)
                ours, theirs = plans[0].kernel_name, min(filter(opinion.fits, us), key=us.__getitem__)
                cells = (case.title, ours, f"{us[ours]:.2f}", opinion, theirs, f"{us[theirs]:.2f}")
                rows.append((*cells, us[theirs] / us[ours]))
    pool.shutdown(cancel_futures=True)
    print(gpu, "", *report.table(COLUMNS, rows), "", summary([row[-1] for row in rows]), sep="\n")
    return 0


def summary(ratios: Sequence[float]) -> str:
    if not ratios:
        return "Nothing measured."
    geomean = math.exp(statistics.fmean(map(math.log, ratios)))
    return f"{len(ratios)} shapes: geomean {geomean:.2f}, least {min(ratios):.2f}, most {max(ratios):.2f}"


if __name__ == "__main__":
    sys.exit(main())
