"""python -m bench.bits: which choices of a plan change the bits of a sum.

The same operands go through plans that differ in one choice, and their float32 results are compared bit by bit. A cell
says how many of so many plans gave other bits than the one they are compared with; "-" where there is none to compare.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cleave import _core
from cleave.testing import dense
from cleave.testing.case import GemmCase

_SIZE = (320, 384, 33 * 128)  # M and N of no whole number of most tiles, K of no even number of blocks
_E4M3 = {"dtype": "float8_e4m3fn", "out_dtype": "float32"}
_INT8 = {"dtype": "int8", "out_dtype": "float32"}

CASES = {
    "bf16": GemmCase(*_SIZE, dtype="bfloat16", out_dtype="float32"),
    "fp16": GemmCase(*_SIZE, dtype="float16", out_dtype="float32"),
    "tf32": GemmCase(*_SIZE, dtype="float32"),
    "ieee": GemmCase(*_SIZE, dtype="float32", precision="ieee"),
    "fp8 fast": GemmCase(*_SIZE, **_E4M3, scaling="row", use_fast_accum=True),
    "fp8 rows": GemmCase(*_SIZE, **_E4M3, scaling="row"),
    "fp8 128x128": GemmCase(*_SIZE, **_E4M3, scaling="block_128x128"),
    "fp8 1x128": GemmCase(*_SIZE, **_E4M3, scaling="block_1x128"),
    "int8 rows": GemmCase(*_SIZE, **_INT8, scaling="row"),
    "int8 128x128": GemmCase(*_SIZE, **_INT8, scaling="block_128x128"),
}

TILES = {
    "sm90": "64x16 64x32 64x64 64x128 64x256 128x16 128x48 128x96 128x128 128x160 128x192 128x256 192x128 256x128 "
    "256x192",
    "portable": "64x64 128x128",
}
SOME_TILES = ("64x128", "128x128", "256x128")
SLICES = (2, 3, 4, 8)
EXTENTS = (1, 2, 7, 16, 63, 64, 65, 128, 129, 200, 256)
REPEATS = 20


@dataclass(frozen=True)
class Question:
    """Plans of `others` beside the one of `base`: kernels by name, as far as the library makes them."""

    words: str
    base: str
    others: tuple[str, ...]


def questions(case: GemmCase) -> list[Question]:
    planned = case.plan("h100")
    family = "portable" if case.precision == "ieee" else "sm90"

    def served(names: list[str]) -> list[str]:
        return [name for name in names if _plan_as(planned, name)]

    # 128x128 with scales of 1x128 on both sides has no registers for shares of slices.
    base = next(tile for tile in served([f"{family} 128x128", f"{family} 128x96"]) if served([f"{tile} parallel 4"]))
    found = []
    for words, split in (("tile", ""), ("tile, of 4 slices", " parallel 4")):
        others = served([f"{family} {tile}{split}" for tile in TILES[family].split() if tile not in base])
        found.append(Question(words, base + split, tuple(others)))
    tiles = served([f"{family} {tile}" for tile in TILES[family].split() if tile in SOME_TILES])
    for variant in ("transposed", "pingpong", "multicast 2x1", "multicast 1x2"):
        pairs = [(tile, name) for tile in tiles for name in served([f"{tile} {variant}"])]
        found += [Question(variant, tile, (name,)) for tile, name in pairs]
    if family == "sm90":
        portable = served([f"portable {tile}" for tile in TILES["portable"].split()])
        found.append(Question("portable kernel", base, tuple(portable)))
    for count in SLICES:
        together = f"{base} parallel {count}"
        found.append(Question("slices", base, (together,)))
        names = [f"{base} serial {count}", f"{base} cluster {count}", f"{base} parallel {count} clusters 2"]
        names.append(f"{base} in_turn {count}")
        found += [Question(f"who adds slices up: {name.split()[-2]}", together, (name,)) for name in served(names)]
        clusters, turns = (served([f"{together} {who} 2"]) for who in ("clusters", "in_turn"))
        if clusters and turns:
            found.append(Question("clusters' slices in turn", clusters[0], tuple(turns)))
    found += [Question("stream_k", tile, (name,)) for tile in tiles for name in served([f"{tile} stream_k 1"])]
    return found


def _plan_as(planned: Any, kernel: str) -> Any:
    """None of what the library does not make, or makes as another kernel."""
    try:
        plan = _core.plan_as(planned, kernel)
    except ValueError:
        return None
    return plan if plan.kernel_name == kernel else None


def compile_kernel(name: str, kernel: str) -> None:
    _core.compile_plan(_core.plan_as(CASES[name].plan("cuda"), kernel))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.bits", description=__doc__)
    parser.add_argument("--types", default=",".join(CASES))
    parser.add_argument("--out", type=Path, help="a Markdown file, beside the terminal")
    arguments = parser.parse_args(argv)
    names = arguments.types.split(",")
    wanted = {(name, kernel) for name in names for q in questions(CASES[name]) for kernel in (q.base, *q.others)}
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as compilers:
        list(compilers.map(compile_kernel, *zip(*sorted(wanted), strict=True), chunksize=2))
    columns = {name: Answers(CASES[name]).all() for name in names}
    text = table(columns)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    return 0


class Answers:
    """How many plans of one type gave other bits, of how many."""

    def __init__(self, case: GemmCase):
        from cleave.testing.arrays import TorchArrays

        self._arrays = TorchArrays("cuda")
        self._case = case
        self._operands = dense.make_operands(self._arrays, case)
        self._planned = dense.plan_for(case, self._operands)
        self._known: dict[str, Any] = {}

    def all(self) -> dict[str, tuple[int, int]]:
        counts: dict[str, tuple[int, int]] = {}

        def add(words: str, differs: bool) -> None:
            changed, tried = counts.get(words, (0, 0))
            counts[words] = changed + differs, tried + 1

        for question in questions(self._case):
            for other in question.others:
                add(question.words, not _same_bits(self._result(question.base), self._result(other)))
        for words, differs in self._of_sizes():
            add(words, differs)
        return counts

    def _result(self, kernel: str) -> Any:
        if kernel not in self._known:
            self._known[kernel] = self._run(self._operands, _core.plan_as(self._planned, kernel))
        return self._known[kernel]

    def _run(self, operands: Any, plan: Any) -> Any:
        operands.out.fill_(float("nan"))
        dense.run(plan, operands, None)
        return operands.out.clone()

    def _of_sizes(self) -> Iterator[tuple[str, bool]]:
        """Another M, N or alignment of D, and a repetition, by the same kernel: whether the bits changed."""
        import torch

        o, case = self._operands, self._case
        kernel = "portable 128x128" if case.precision == "ieee" else "sm90 128x128"
        whole = self._result(kernel)

        def result(operands: Any, part: GemmCase) -> Any:
            return self._run(operands, _core.plan_as(dense.plan_for(part, operands), kernel))

        for extent in EXTENTS:
            rows = replace(o, a=o.a[:extent], out=whole.new_empty(extent, case.n), scales=_rows_of(o.scales, extent))
            yield "M", not _same_bits(result(rows, replace(case, m=extent)), whole[:extent])
            columns = 128 * -(-extent // 128)  # blocks of 128 columns may share a scale
            part = replace(
                o, b=o.b[:, :columns], out=whole.new_empty(case.m, columns), scales=_columns_of(o.scales, columns)
            )
            yield "N", not _same_bits(result(part, replace(case, n=columns)), whole[:, :columns])
        odd = replace(o, out=torch.empty(case.m, case.n + 1, device="cuda")[:, :-1])
        stages = {_stages(_core.plan_as(dense.plan_for(case, x), kernel)) for x in (o, odd)}
        if len(stages) > 1:
            yield "stages", not _same_bits(result(odd, case), whole)
        for _ in range(REPEATS):
            yield "repetition", not _same_bits(result(o, case), whole)


def _same_bits(x: Any, y: Any) -> bool:
    import torch

    return torch.equal(x.contiguous().view(torch.int32), y.contiguous().view(torch.int32))


def _stages(plan: Any) -> str:
    return re.search(r"\.stages = (\d+)", plan.kernel_source)[1]


def _rows_of(scales: dict[str, Any], rows: int) -> dict[str, Any]:
    return scales | {"scale_a": scales["scale_a"][:rows]} if scales else scales


def _columns_of(scales: dict[str, Any], columns: int) -> dict[str, Any]:
    if not scales:
        return scales
    scale = scales["scale_b"]
    return scales | {"scale_b": scale[:, : columns if scale.shape[1] == _SIZE[1] else -(-columns // 128)]}


def table(columns: dict[str, dict[str, tuple[int, int]]]) -> str:
    words = list(dict.fromkeys(w for answers in columns.values() for w in answers))
    lines = [f"| what differs | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for word in words:
        cells = [answers.get(word) for answers in columns.values()]
        lines.append(f"| {word} | {' | '.join('-' if c is None else _cell(*c) for c in cells)} |")
    return "\n".join(lines)


def _cell(changed: int, tried: int) -> str:
    return f"**{changed}** of {tried}" if changed else f"same, {tried}"


if __name__ == "__main__":
    sys.exit(main())
