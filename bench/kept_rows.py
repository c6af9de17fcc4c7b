"""Rows that are measured in slices of time: one JSON file keeps them, and what it has is not measured again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from cleave.testing.errors import ToolError

from . import machine, report, tables

Case = TypeVar("Case")

# Times of other GPUs, and of other kernels, do not compare.
SAME = ("gpu", "commit")


class KeptRows:
    """A row has a `job` and a `case`, which together name it."""

    def __init__(self, path: Path, seconds: float):
        """ToolError where the file is of another GPU or commit. seconds: of this slice."""
        self._path, self._machine = path, machine.describe(0)
        self._deadline = time.monotonic() + seconds
        self.rows: list[dict[str, Any]] = []
        if not path.exists():
            return
        kept = report.load(path)
        for key in SAME:
            was, now = kept["machine"].get(key), self._machine[key]
            if was != now:
                raise ToolError(f"the rows of {path} are of {key} {was}, this is {now}: move it, or use another --out")
        self.rows = kept["rows"]

    def missing(self, job: str, cases: Iterable[tuple[str, Case]]) -> list[Case]:
        """Those of `cases`, each with its title before it, that have no row, each once."""
        known = {row["case"] for row in self.rows if row["job"] == job}
        return [case for title, case in dict(cases).items() if title not in known]

    @property
    def time_is_up(self) -> bool:
        return time.monotonic() > self._deadline

    def add(self, row: dict[str, Any]) -> None:
        """Writes the file anew."""
        self.rows.append(row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {"suite": self._path.stem, "machine": self._machine, **tables.pack(self.rows)}
        self._path.write_text(tables.text(content))
