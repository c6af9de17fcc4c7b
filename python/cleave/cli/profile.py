"""`cleave profile`: measure products and verify them against float64."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from ..testing import arrays as array_libraries
from ..testing import measure
from ..testing.case import GemmCase, slice_count
from ..testing.conv_case import ConvCase
from ..testing.errors import one_line
from ..testing.grouped_case import GroupedCase
from ..testing.kernel_plan import OneKernel
from . import values
from .console import Console
from .operations import add_operations
from .options import add_device_option, default_device

Case = GemmCase | GroupedCase | ConvCase | OneKernel

# What a measured row adds to the fields of its case, in the order of the CSV columns.
MEASUREMENTS = (
    "device", "kernel", "chosen_mode", "chosen_slices", "us", "tflops", "gb_per_s", "roofline_us",
    "roofline_percent", "workspace_bytes", "max_relative_error", "rms_relative_error",
    "max_row_error", "verified", "error",
)  # fmt: skip


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("profile", help="measure products", allow_abbrev=False)
    description = "Times them (on a GPU, with a cold L2 cache) and verifies them against float64."
    add_operations(parser, run, description, _add_measuring_options, one_kernel=True, required=True)


def _add_measuring_options(parser: argparse.ArgumentParser) -> None:
    add_device_option(parser, "cpu, cuda or cuda:<index>; default: the first GPU, else cpu")
    parser.add_argument(
        "--iterations", type=values.positive, default=7, help="timed repetitions; the median counts (default 7)"
    )
    parser.add_argument("--verify", action=argparse.BooleanOptionalAction, default=True, help="compare with float64")
    parser.add_argument("--csv", metavar="FILE", help="write the rows as CSV; - is standard output")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON; - is standard output")


def run(arguments: argparse.Namespace) -> int:
    device = arguments.device or default_device("cpu")
    cases = arguments.cases(arguments)
    # Settles what to install before anything is measured.
    libraries = {dtypes: array_libraries.select(device, dtypes) for dtypes in {case.dtypes for case in cases}}

    console = Console(sys.stderr if "-" in (arguments.csv, arguments.json) else sys.stdout)
    rows = []
    for case in console.progress(cases, "profiling"):
        library = libraries[case.dtypes]
        try:
            measured = profile_case(library, arguments.operation, case, arguments.iterations, arguments.verify)
        except (ValueError, TypeError) as error:  # this combination has no kernel; the others may
            measured = {"error": one_line(error)}
        rows.append(asdict(case) | dict.fromkeys(MEASUREMENTS) | measured | {"device": device})

    _print_table(console, cases, rows)
    _write(arguments.csv, rows, _write_csv)
    _write(arguments.json, rows, _write_json)
    return 1 if any(row["error"] or row["verified"] is False for row in rows) else 0


def profile_case(
    library: array_libraries.Arrays, operation: ModuleType, case: Case, iterations: int, verify: bool
) -> dict[str, Any]:
    """The MEASUREMENTS of one case. ValueError or TypeError if nothing serves it."""
    sets = measure.set_count(case.bytes) if library.on_gpu else 1
    operands = [operation.make_operands(library, case, seed) for seed in range(sets)]
    plan = operation.plan_for(case, operands[0])

    def call(i: int) -> None:
        operation.run(plan, operands[i], library.stream)

    measured: dict[str, Any] = {}
    if verify:
        measure.run_to_completion(library, lambda: call(0))
        errors = operation.errors(library, case, operands[0])
        measured = {
            "max_relative_error": errors.max_relative,
            "rms_relative_error": errors.rms_relative,
            "max_row_error": errors.max_row,
            "verified": errors.acceptable,
        }
    if library.on_gpu:
        graphs = measure.rotating_graphs(library, [call], sets)
        microseconds = measure.interleaved(graphs, iterations)[0]
    else:
        microseconds = measure.host_microseconds(lambda: call(0), iterations)
    return measured | {
        "kernel": plan.kernel_name,
        "chosen_mode": plan.split_k_mode,
        "chosen_slices": plan.split_k_slices,
        "us": microseconds,
        "tflops": case.flops / microseconds * 1e-6,
        "gb_per_s": case.bytes / microseconds * 1e-3,
        "roofline_us": plan.roofline_us,
        "roofline_percent": 100 * plan.roofline_us / microseconds,
        "workspace_bytes": plan.workspace_size,
    }


# Columns of the printed table and the fields they show; a case has its own column.
_COLUMNS = {
    "mode": "chosen_mode",
    "slices": "chosen_slices",
    "kernel": "kernel",
    "us": "us",
    "TFLOP/s": "tflops",
    "GB/s": "gb_per_s",
    "% roofline": "roofline_percent",
    "workspace B": "workspace_bytes",
    "max rel err": "max_relative_error",
    "rms rel err": "rms_relative_error",
    "row err": "max_row_error",
    "ok": "verified",
}


def _cell(row: dict[str, Any], field: str) -> Any:
    if field == "chosen_slices":
        return slice_count(row["chosen_mode"], row[field])
    return row[field]


def _print_table(console: Console, cases: Sequence[Case], rows: Sequence[dict[str, Any]]) -> None:
    served = [(case, row) for case, row in zip(cases, rows, strict=True) if not row["error"]]
    if served:
        console.table(
            ("case", *_COLUMNS),
            [(case.title, *(_cell(row, field) for field in _COLUMNS.values())) for case, row in served],
        )
    for case, row in zip(cases, rows, strict=True):
        split = f"{case.split_k_mode} {case.split_k_slices or ''}".strip()
        if row["error"]:
            console.print(f"{case.title}, {split}: {row['error']}")
        elif row["verified"] is False:
            console.print(f"{case.title}, {split}: WRONG RESULT")


def _write(path: str | None, rows: Sequence[dict[str, Any]], write: Any) -> None:
    if path == "-":
        write(sys.stdout, rows)
    elif path:
        with Path(path).open("w", newline="") as file:
            write(file, rows)


def _write_csv(file: TextIO, rows: Sequence[dict[str, Any]]) -> None:
    writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _write_json(file: TextIO, rows: Sequence[dict[str, Any]]) -> None:
    json.dump(rows, file, indent=1)
    file.write("\n")
