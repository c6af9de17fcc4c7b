"""The fuzzer's loop: problems run one after the other and are checked where they run."""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .ahead import Ahead, Planned
from .draw import SHARING, draw
from .problem import Problem, Target
from .script import script
from .shrink import shrink
from .trial import Place, Refused, explain, mistakes, run

Print = Callable[[str], None]


@dataclass
class Settings:
    """first: the first problem's number. count, seconds: when to stop, whichever comes first.

    small: no large problems, as always on the CPU. every: problems between two waits for the
    device. hang: seconds without a result after which the process ends. progress: seconds between
    two lines that say how far it is.
    """

    seed: int = 0
    first: int = 0
    count: int | None = None
    seconds: float | None = None
    operations: Sequence[str] = ()
    sharing: int = SHARING
    every: int = 64
    small: bool = False
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    most_failures: int = 5
    shrink_seconds: float = 60.0
    hang: float = 180.0
    progress: float = 30.0


@dataclass
class Failure:
    index: int
    problem: Problem
    smallest: Problem
    complaint: str
    script: str


@dataclass
class Report:
    """runs: problems by operation, kernel family and mode. refused: by message, with the numbers.

    waited: seconds for kernels that were not compiled in time.
    """

    runs: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    refused: dict[str, list[int]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    kernels: int = 0
    waited: float = 0.0
    seconds: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.runs.values())


class Watchdog:
    """Ends the process, saying where it was, if nothing happens for a while."""

    def __init__(self, seconds: float, say: Print):
        self._seconds, self._say = seconds, say
        self._at = (time.monotonic(), "the start")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def alive(self, where: str) -> None:
        self._at = (time.monotonic(), where)

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            then, where = self._at
            if time.monotonic() - then > self._seconds:
                self._say(f"HANG: nothing for {self._seconds:.0f} s after {where}")
                faulthandler.dump_traceback(all_threads=True)
                os._exit(3)


class Fuzzer:
    def __init__(self, settings: Settings, place: Place, say: Print = print):
        self._settings, self._place, self._say = settings, place, say
        self._report = Report()
        self._pending: list[tuple[Planned, torch.Tensor]] = []

    @property
    def target(self) -> Target:
        device = self._place.device.type
        return Target(device, self._settings.small or device == "cpu")

    def run(self) -> Report:
        settings = self._settings
        begin = time.monotonic()
        last = None if settings.count is None else settings.first + settings.count
        end = None if settings.seconds is None else begin + settings.seconds
        ahead = Ahead(self._place.device, settings.threads, 24 * settings.sharing)
        self._watchdog = Watchdog(settings.hang, self._say)
        planned, said = None, begin
        try:
            for planned in ahead(self._problems(last)):
                self._watchdog.alive(f"problem {planned.index}: {planned.problem}")
                self._step(planned)
                self._report.seconds = time.monotonic() - begin
                self._report.kernels = ahead.kernels
                if time.monotonic() - said > settings.progress:
                    said = time.monotonic()
                    self._say(total(self._report))
                if len(self._report.failures) >= settings.most_failures:
                    break
                if end is not None and time.monotonic() > end:
                    break
            self._settle()
        except Exception:
            at = planned.index if planned else settings.first
            numbers = [other.index for other, _ in self._pending]
            self._say(f"DIED at problem {at}; not yet known: {numbers}")
            self._say(self._again(numbers[0] if numbers else at))
            raise
        finally:
            self._watchdog.stop()
            ahead.close()
        self._report.seconds = time.monotonic() - begin
        return self._report

    def _problems(self, last: int | None) -> Iterator[tuple[int, Problem]]:
        settings, index = self._settings, self._settings.first
        while last is None or index < last:
            problem = draw(settings.seed, index, self.target, settings.operations, settings.sharing)
            yield index, problem
            index += 1

    def _again(self, first: int) -> str:
        settings = self._settings
        operations = f" --operation {','.join(settings.operations)}" if settings.operations else ""
        return (
            f"again: python -m tests.fuzz --device {self._place.device} --seed {settings.seed} "
            f"--first {first} --count {settings.every} --sharing {settings.sharing} --every 1"
            f"{operations}{' --small' if settings.small else ''}"
        )

    def _step(self, planned: Planned) -> None:
        problem, plan = planned.problem, planned.plan
        if planned.refused is None:
            if planned.compiled is not None:
                begin = time.monotonic()
                planned.compiled.result()
                self._report.waited += time.monotonic() - begin
            try:
                self._pending.append((planned, mistakes(run(problem, self._place))))
            except Refused as error:
                planned.refused = str(error)
        if planned.refused is not None:
            self._report.refused.setdefault(planned.refused, []).append(planned.index)
            return
        self._report.runs[problem.operation, *family_and_mode(plan)] += 1
        if len(self._pending) >= self._settings.every:
            self._settle()

    def _settle(self) -> None:
        """Waits for what is pending, and looks into what is wrong."""
        if not self._pending:
            return
        first, last = self._pending[0][0].index, self._pending[-1][0].index
        self._watchdog.alive(f"problems {first} to {last} were begun\n{self._again(first)}")
        counts = torch.stack([count for _, count in self._pending]).tolist()
        wrong = [planned for (planned, _), count in zip(self._pending, counts, strict=True) if count]
        self._pending.clear()
        for planned in wrong[: self._settings.most_failures]:
            self._fail(planned)

    def _fail(self, planned: Planned) -> None:
        problem = planned.problem
        self._watchdog.alive(f"problem {planned.index} was wrong, and was to be made smaller")

        def fails(candidate: Problem) -> bool:
            return bool(mistakes(run(candidate, self._place)).item())

        complaint = explain(run(problem, self._place))
        smallest = shrink(problem, fails, self._settings.shrink_seconds) if complaint else problem
        shown = explain(run(smallest, self._place)) or complaint or "right when run alone"
        failure = Failure(
            planned.index,
            problem,
            smallest,
            shown,
            script(smallest, shown, str(self._place.device)),
        )
        self._report.failures.append(failure)
        self._say(
            f"WRONG: problem {planned.index} of seed {self._settings.seed}\n{problem}\n"
            f"{complaint}\n{self._again(planned.index)}\n"
            f"--- the smallest that still fails: {smallest}\n{failure.script}\n---"
        )


def family_and_mode(plan: Any) -> tuple[str, str]:
    """The plan's; moe and route have no plan, and nothing at all no kernel."""
    if plan is None:
        return "moe", "none"
    names = plan.kernel_name.split()
    return names[0] if names else "empty", getattr(plan, "split_k_mode", "none")


def total(report: Report) -> str:
    rate = report.count / max(report.seconds, 1e-9)
    return (
        f"{report.count} problems in {report.seconds:.1f} s, {rate:.0f} a second, of "
        f"{report.kernels} kernels (waited {report.waited:.1f} s for them); "
        f"{len(report.failures)} wrong, {sum(map(len, report.refused.values()))} refused"
    )


def summary(report: Report) -> str:
    lines = [f"{'operation':<20}{'kernel':<10}{'mode':<10}{'problems':>9}"]
    for (operation, family, mode), count in sorted(report.runs.items()):
        lines.append(f"{operation:<20}{family:<10}{mode:<10}{count:>9}")
    lines.append(total(report))
    for message, indices in sorted(report.refused.items(), key=lambda x: -len(x[1])):
        lines.append(f"refused {len(indices)} times, first problem {indices[0]}: {message}")
    return "\n".join(lines)
