"""Decoding's experts: masked groups, whose matrices have room for more rows than they have, beside DeepGEMM's kernel.

    python -m bench.masked       # a table: cleave with expected_m and without, DeepGEMM with its own (between.py)

Every contender is the same call, deep_gemm.m_grouped_fp8_gemm_nt_masked, Cleave's from cleave.compat. Rows are
as chance deals them to experts that are equally likely. Results are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import cleave
from cleave.compat import deep_gemm as ours
from cleave.testing.measure import COLD_BYTES

from .between import Between, medians

ROUNDS = 15
ROOM = 1024  # rows of each group's matrix
EXPECTED = (1, 4, 16, 48, 128, 300)
GROUPS = (2, 8, 32)  # experts of a rank
LAYERS = {  # columns and K of both products
    "DeepSeek-V3": ((4096, 7168), (7168, 2048)),
    "Qwen3-235B": ((3072, 4096), (4096, 1536)),
    "GLM-4.5": ((2816, 5120), (5120, 1408)),
}


@dataclass(frozen=True)
class Shape:
    groups: int
    expected: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.groups:3} groups of {self.expected:3} x {self.n} x {self.k}"


def shapes() -> Iterator[Shape]:
    for layers in LAYERS.values():
        for n, k in layers:
            for groups in GROUPS:
                yield from (Shape(groups, expected, n, k) for expected in EXPECTED)


@dataclass(frozen=True)
class Operands:
    """a [groups, ROOM, k] and b [groups, n, k], 8-bit floats with their scales; counts [groups]."""

    a: tuple[torch.Tensor, torch.Tensor]
    b: tuple[torch.Tensor, torch.Tensor]
    counts: torch.Tensor
    out: torch.Tensor


def make_operands(shape: Shape, device: str) -> Operands:
    generator = torch.Generator(device).manual_seed(1)

    def quantized(rows: int, granularity: str) -> tuple[torch.Tensor, torch.Tensor]:
        values = torch.randn(shape.groups * rows, shape.k, device=device, generator=generator)
        values, scales = cleave.quantize(values, "float8_e4m3fn", granularity)
        # Scales of blocks of rows lie row by row, as DeepGEMM wants them.
        return values.view(shape.groups, rows, shape.k), scales.contiguous().view(shape.groups, -1, shape.k // 128)

    chosen = torch.randint(shape.groups, (shape.groups * shape.expected,), device=device, generator=generator)
    return Operands(
        quantized(ROOM, "block_1x128"),
        quantized(shape.n, "block_128x128"),
        torch.bincount(chosen, minlength=shape.groups).clamp(max=ROOM).int(),
        torch.zeros(shape.groups, ROOM, shape.n, device=device, dtype=torch.bfloat16),
    )


def contenders(shape: Shape, sets: list[Operands], theirs: Any) -> dict[str, Callable[[int], None]]:
    """Calls with the i-th of the sets, in turn."""

    def of(library: Any, expected: int, scales: list[torch.Tensor]) -> Callable[[int], None]:
        def call(i: int) -> None:
            o, scales_of_a = sets[i % len(sets)], scales[i % len(sets)]
            library.m_grouped_fp8_gemm_nt_masked((o.a[0], scales_of_a), o.b, o.out, o.counts, expected)

        return call

    plain = [o.a[1] for o in sets]
    # The layout that its kernel wants is made here once, outside of what is timed.
    aligned = [theirs.get_mn_major_tma_aligned_tensor(scales) for scales in plain]
    return {
        "cleave": of(ours, shape.expected, plain),
        "as if full": of(ours, ROOM, plain),
        "deepgemm": of(theirs, shape.expected, aligned),
    }


def check(calls: dict[str, Callable[[int], None]], operands: Operands) -> None:
    """All contenders have the same results, in the rows that groups have."""
    results = []
    for call in calls.values():
        operands.out.fill_(float("nan"))
        call(0)
        rows = [out[:count].float() for out, count in zip(operands.out, operands.counts.tolist(), strict=True)]
        results.append(torch.cat(rows))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=0.02, atol=0.02 * float(results[0].std()))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.masked", description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="of the shapes, take one of so many")
    arguments = parser.parse_args(argv)
    try:
        import deep_gemm as theirs
    except ImportError as error:
        print(f"DeepGEMM is what this compares to, and it cannot be imported: {error}", file=sys.stderr)
        return 1
    between = Between()
    print(f"{'':36}{'us: cleave':>12}{'as if full':>12}{'deepgemm':>12}{'deepgemm / cleave':>20}", flush=True)
    ratios = []
    for shape in list(shapes())[:: arguments.every]:
        copies = max(1, math.ceil(COLD_BYTES / (shape.groups * shape.n * shape.k)))
        sets = [make_operands(shape, "cuda") for _ in range(copies)]
        calls = contenders(shape, sets, theirs)
        check(calls, sets[0])
        us = medians({name: between.timed(call) for name, call in calls.items()}, ROUNDS)
        ratios.append(us["deepgemm"] / us["cleave"])
        times = "".join(f"{us[name]:12.2f}" for name in calls)
        print(f"{shape!s:36}{times}{ratios[-1]:20.3f}", flush=True)
        torch.cuda.empty_cache()
    print(f"geomean {statistics.geometric_mean(ratios):.3f}, worst {min(ratios):.3f} of {len(ratios)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
