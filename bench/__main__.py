"""python -m bench: run suites on this machine's GPU and write what they show."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cleave.cli import values
from cleave.testing.arrays import TorchArrays, select
from cleave.testing.errors import ToolError, one_line

from . import contest, host, machine, peers, precompile, report, steps, suites, summary
from .suites import Case, Suite

# A GPU that was idle needs about this long to reach the clock it holds under load.
WARM_UP_SECONDS = 2.0


def main(argv: list[str] | None = None) -> int:
    arguments = _parse(argv)
    import cleave

    try:
        return _run(arguments)
    except (ToolError, cleave.CudaError, ValueError) as error:
        print(f"bench: {one_line(error)}", file=sys.stderr)
        return 1


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, allow_abbrev=False)
    names = suites.names()
    parser.add_argument("--suite", type=values.words(names), default=names, metavar="NAMES", help=", ".join(names))
    parser.add_argument("--quick", action="store_true", help="a few cases of each suite")
    parser.add_argument("--match", default="", metavar="TEXT", help="only cases with this in their title")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), metavar="DIR")
    parser.add_argument(
        "--rounds", type=int, choices=range(7, 100), default=7, metavar="N", help="at least 7 (default)"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="start no case after this long")
    parser.add_argument("--device", type=values.device, default="cuda:0")
    return parser.parse_args(argv)


def _run(arguments: argparse.Namespace) -> int:
    loaded = [suites.load(name, arguments.quick, arguments.match) for name in arguments.suite]
    chosen = [suite for suite in loaded if suite.cases]
    if not chosen:
        raise ToolError(f"no case has '{arguments.match}' in its title")
    arrays = _gpu(arguments.device)
    deadline = time.monotonic() + arguments.seconds if arguments.seconds else float("inf")
    description = machine.describe(arrays.device.index)
    print(", ".join(f"{key} {value}" for key, value in description.items()))
    _warm_up(arrays)

    wrong = []
    for suite in chosen:
        print(f"\n{suite.title}", flush=True)
        _compile_ahead(arrays, suite)
        found, missing = peers.load(suite.peers)
        measurer = _measurer(arrays, suite, found, arguments.rounds)
        rows, notes, failed = _measure(suite, measurer, deadline)
        notes += [f"Without {peer}: {reason.rstrip('.')}." for peer, reason in missing.items()]
        notes += report.missing_lines(rows)
        paths = report.write(arguments.out, suite, description, rows, notes)
        verdict = summary.summarize(suite.kind, rows, suite.best_of)
        print("\n".join([*report.summary_lines(suite.kind, verdict), *notes]))
        print("wrote", ", ".join(map(str, paths)))
        wrong += [row["case"] for row in rows if row.get("verified") is False]
        wrong += failed
    if wrong:
        raise ToolError(f"wrong results or none: {', '.join(dict.fromkeys(wrong))}")
    return 0


def _gpu(device: str) -> TorchArrays:
    import cleave

    if not device.startswith("cuda"):
        raise ToolError("the benchmark measures GPUs: use --device cuda")
    if not cleave.device_count():
        raise ToolError("the benchmark needs an NVIDIA GPU and its driver, and there is none; see `cleave info`")
    arrays = select(device, {"bfloat16"})
    if not isinstance(arrays, TorchArrays):
        raise ToolError("the benchmark needs torch with CUDA, its yardstick")
    return arrays


def _measurer(
    arrays: TorchArrays, suite: Suite, found: Sequence[peers.Peer], rounds: int
) -> Callable[[Case], list[dict[str, Any]]]:
    return {
        "peers": lambda case: contest.against_peers(arrays, case, suite, found, rounds),
        "steps": lambda case: contest.against_peers(arrays, case, suite, found, rounds, steps.called),
        "modes": lambda case: contest.against_auto(arrays, case, suite, rounds),
        "host": lambda case: host.host_times(arrays, case, found, rounds),
    }[suite.kind]


def _measure(
    suite: Suite, measure_case: Callable[[Case], list[dict[str, Any]]], deadline: float
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Rows, notes on what is not among them, and the cases that failed."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    failed: list[str] = []
    for i, case in enumerate(suite.cases):
        if time.monotonic() > deadline:
            left = f"{len(suite.cases) - i} of {len(suite.cases)} cases left out"
            notes.append(f"{left}: the time was up.")
            break
        try:
            measured = measure_case(case)
        except (RuntimeError, ValueError) as error:  # what is measured already should not be lost
            failed.append(case.title)
            notes.append(f"{case.title} failed: {peers.reason(error).rstrip('.')}.")
            print(notes[-1], flush=True)
            continue
        for row in measured:
            rows.append(row)
            print(_line(row), flush=True)
    return rows, notes, failed


def _line(row: dict[str, Any]) -> str:
    if row["us"] is None:
        asked = row.get("call") or f"{row['requested_mode']} {row['requested_slices']}"
        return f"{row['case']:<56} {asked}: {row['refused']}"
    what = row.get("call") or " ".join(str(row[key]) for key in ("mode", "slices") if key in row)
    host = f" ({row['host_us']:.2f} host)" if "host_us" in row else ""
    against = "".join(
        f"  {peer} {theirs['us']:.2f} us x{theirs['ratio']:.3f}" for peer, theirs in row.get("peers", {}).items()
    )
    ratio = f"  x{row['ratio']:.3f}" if "ratio" in row else ""
    wrong = "  WRONG" if row.get("verified") is False else ""
    return f"{row['case']:<56} {what:<18} {row['us']:9.2f} us{host}{against}{ratio}{wrong}"


def _compile_ahead(arrays: TorchArrays, suite: Suite) -> None:
    start = time.monotonic()
    count = precompile.compile_kernels(suite.cases, str(arrays.device))
    if count:
        print(f"{count} kernels compiled or found in {time.monotonic() - start:.1f} s", flush=True)


def _warm_up(arrays: TorchArrays) -> None:
    a = arrays.normal((4096, 4096), "bfloat16", 0)
    end = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < end:
        for _ in range(50):
            a @ a
        arrays.synchronize()


if __name__ == "__main__":
    raise SystemExit(main())
