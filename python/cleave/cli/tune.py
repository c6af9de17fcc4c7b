"""`cleave tune`: measure the planner's candidates on this machine and remember the fastest."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._compile_ahead import CompileAhead
from ..testing import arrays as array_libraries
from ..testing import measure, problem_operands
from ..testing.errors import ToolError, one_line
from . import shape_log
from .console import Console
from .operations import add_operations
from .options import add_candidates_option, add_device_option

# The best of a first, short measurement are measured again, more carefully.
FINALISTS = 4
# What is faster by less than this may be so by chance: the planner's choice stays.
NOISE = 1.01
# Problems whose kernels are compiled before their turn.
AHEAD = 4
_CANDIDATES = 48


@dataclass(frozen=True)
class Problem:
    """What is to be tuned. planned: as the planner has it. sizes: of its groups, where they are known."""

    title: str
    planned: Any
    sizes: Sequence[int] | None = None


@dataclass(frozen=True)
class Tuned:
    """A winner, its microseconds, and those of the planner's choice."""

    winner: Any
    us: float
    planned_us: float

    @property
    def gain(self) -> float:
        return self.planned_us / self.us


@dataclass
class Summary:
    begun: float = field(default_factory=time.monotonic)
    gains: list[float] = field(default_factory=list)
    failed: int = 0
    skipped: int = 0
    path: str | None = None

    def lines(self, left: int) -> Iterator[str]:
        """left: problems that were not come to."""
        faster = [gain for gain in self.gains if gain > 1]
        mean = math.exp(sum(map(math.log, faster)) / len(faster)) if faster else 1.0
        gained = f", {mean:.3f} times in the mean and {max(faster):.3f} at most" if faster else ""
        yield (
            f"tuned {_problems(len(self.gains))} in {time.monotonic() - self.begun:.0f} s: {len(faster)} became "
            f"faster{gained}"
        )
        if self.skipped:
            yield f"skipped {self.skipped} that were measured before; --again measures them, too"
        if left:
            yield f"stopped before {_problems(left)}; the same command goes on with what is left"
        if self.path:
            yield f"stored in {self.path}"


def _problems(count: int) -> str:
    return f"{count} problem{'s' * (count != 1)}"


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "tune",
        help="measure candidates and remember the fastest",
        description="Measures candidates of each problem on this GPU and stores the fastest in the tuning file beside "
        "the kernel cache, where later plans find it: of one operation's problems, or of all that an application met "
        "(--from).",
        epilog="Example: cleave tune --from shapes.txt",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--from",
        dest="log",
        type=Path,
        metavar="FILE",
        help="tune the problems of this file, which an application wrote that ran with CLEAVE_LOG_SHAPES=FILE",
    )
    parser.add_argument("--again", action="store_true", help="with --from: also what this GPU was tuned for before")
    _add_options(parser, inherited=False)
    parser.set_defaults(run=run, cases=None)
    description = "Measures candidates of each on this GPU and stores the fastest in the tuning file."
    operations = add_operations(parser, run, description, _add_options)
    merge = operations.add_parser(
        "merge",
        help="take over what another tuning file has",
        description="Adds the choices of another tuning file, measured by another user or on another machine, to this "
        "user's. A choice serves GPUs of the name that it was measured on.",
        epilog="Example: cleave tune merge tuned.txt",
        allow_abbrev=False,
    )
    merge.add_argument("file", type=Path, metavar="FILE")
    merge.add_argument("--replace", action="store_true", help="also choices for problems that this user has tuned")
    merge.set_defaults(run=run_merge)


def _add_options(parser: argparse.ArgumentParser, inherited: bool = True) -> None:
    add_device_option(parser, "cuda or cuda:<index>; default: cuda:0", inherited)
    add_candidates_option(parser, _CANDIDATES, "candidates to measure, cheapest by prediction first", inherited)


def run(arguments: argparse.Namespace) -> int:
    device = arguments.device or "cuda:0"
    if device == "cpu":
        raise ToolError("tuning is for GPUs: use --device cuda")
    if bool(arguments.log) == bool(arguments.cases):
        raise ToolError("name an operation (gemm, grouped, conv), or give --from FILE, and not both")
    array_libraries.select(device, frozenset())  # says what is missing before anything is planned
    console, summary = Console(), Summary()
    if arguments.log:
        problems = list(_logged(arguments.log, device, arguments.again, summary, console))
    else:
        problems = list(_of_cases(arguments, device, summary, console))
    done, status = 0, 0
    try:
        with CompileAhead() as compilers:
            for problem, contenders in console.progress(
                _compiled(problems, arguments.candidates, compilers), "tuning", len(problems)
            ):
                _tune(problem, contenders, device, summary, console, f"{done + 1}/{len(problems)}")
                done += 1
    except KeyboardInterrupt:
        status = 130
    for line in summary.lines(len(problems) - done):
        console.print(line)
    return status or (1 if summary.failed else 0)


def run_merge(arguments: argparse.Namespace) -> int:
    from cleave import _core

    merged = _core.tune_merge(arguments.file.read_text(), arguments.replace)
    if merged["problem"]:
        Console().print(f"{arguments.file} {merged['problem']}")
    kept = f"; {merged['kept']} of problems that were tuned here stay as they are (--replace)" if merged["kept"] else ""
    Console().print(f"{merged['added']} choices added, {merged['replaced']} replaced{kept}")
    return 0 if merged["added"] + merged["replaced"] + merged["kept"] else 1


def _of_cases(arguments: argparse.Namespace, device: str, summary: Summary, console: Console) -> Iterator[Problem]:
    for case in arguments.cases(arguments):
        ranges = getattr(case, "ranges", None)
        sizes = None if ranges is None else [end - begin for begin, end in ranges]
        try:
            yield Problem(case.title, case.plan(device), sizes)
        except (ValueError, TypeError) as error:  # this combination has no kernel; the others may
            _report_failure(case.title, error, summary, console)


def _logged(log: Path, device: str, again: bool, summary: Summary, console: Console) -> Iterator[Problem]:
    """Each problem once, in the order of the log."""
    from cleave import _core

    for text in shape_log.problems(log):
        try:
            planned = _core.plan_text(text, device)
        except (ValueError, TypeError) as error:
            _report_failure(text, error, summary, console)
            continue
        if _core.is_tuned(planned) and not again:
            summary.skipped += 1
        elif "d" in {array["name"] for array in _core.arrays_of(planned)}:  # else there is nothing to choose
            yield Problem(text, planned)


def _report_failure(title: str, error: Exception, summary: Summary, console: Console) -> None:
    summary.failed += 1
    console.print(f"{title}: {one_line(error)}")


def _compiled(
    problems: Sequence[Problem], limit: int | None, compilers: CompileAhead
) -> Iterator[tuple[Problem, list[Any]]]:
    """Each problem with its candidates' plans, whose kernels are compiled; those of the next compile meanwhile."""
    from cleave import _core

    started: list[tuple[Problem, list[Any]]] = []
    for i in range(len(problems)):
        for problem in problems[i + len(started) : i + AHEAD]:
            plans = [_core.plan_as(problem.planned, it["kernel"]) for it in problem.planned.candidates[:limit]]
            for plan in plans:
                compilers.submit(plan)
            started.append((problem, plans))
        problem, plans = started.pop(0)
        compilers.wait(plans)
        yield problem, plans


def _tune(problem: Problem, plans: list[Any], device: str, summary: Summary, console: Console, place: str) -> None:
    from cleave import _core

    try:
        library = array_libraries.select(device, problem_operands.dtypes_of(problem.planned))
        tuned = tune_problem(library, problem, plans)
        summary.path = _core.tune_store(tuned.winner)
    except (ToolError, ValueError, TypeError, RuntimeError) as error:  # too large for the GPU's memory, say
        _report_failure(f"[{place}] {problem.title}", error, summary, console)
        return
    summary.gains.append(tuned.gain)
    console.print(
        f"[{place}] {problem.title}: {tuned.winner.kernel_name}, {tuned.us:.2f} us; the planner's "
        f"{tuned.planned_us:.2f} us, {tuned.gain:.3f} times"
    )


def tune_problem(library: array_libraries.Arrays, problem: Problem, plans: Sequence[Any]) -> Tuned:
    """The fastest of `plans` and of the planner's choice. RuntimeError if none runs."""
    planned = problem.planned
    sets = measure.set_count(problem_operands.bytes_of(planned))
    operands = [problem_operands.make_operands(library, planned, problem.sizes, seed) for seed in range(sets)]

    def times(contenders: Sequence[Any], rounds: int) -> list[float]:
        calls = [lambda i, plan=plan: problem_operands.run(plan, operands[i], library.stream) for plan in contenders]
        return measure.interleaved(measure.rotating_graphs(library, calls, sets), rounds)

    library.synchronize()
    able = [plan for plan in plans if _runs(plan, operands[0], library)]
    if not able:
        raise RuntimeError("none of its kernels runs on this GPU")
    ranked = sorted(zip(times(able, 3), range(len(able)), strict=True))
    finalists = [planned, *(able[i] for _, i in ranked[:FINALISTS])]
    planned_us, *rest = times(finalists, 7)
    best = min(range(len(rest)), key=rest.__getitem__)
    if planned_us < rest[best] * NOISE:
        return Tuned(planned, planned_us, planned_us)
    return Tuned(finalists[best + 1], rest[best], planned_us)


def _runs(plan: Any, operands: problem_operands.ProblemOperands, library: array_libraries.Arrays) -> bool:
    """False where the GPU has no room for its clusters, say."""
    try:
        problem_operands.run(plan, operands, library.stream)
    except (ValueError, RuntimeError):
        return False
    library.synchronize()
    return True
