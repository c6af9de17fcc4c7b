"""Terminal output: rich on a terminal, plain aligned text everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO


class Console:
    """Prints text, tables and progress on `stream` (standard output unless told)."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream or sys.stdout
        self._rich = _rich_console(self.stream)

    def print(self, text: str = "") -> None:
        if self._rich:
            self._rich.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self.stream, flush=True)

    def heading(self, text: str) -> None:
        if self._rich:
            self._rich.print(f"\n{text}", style="bold", markup=False, highlight=False)
        else:
            print(f"\n{text}", file=self.stream)

    def pairs(self, rows: Iterable[tuple[str, Any]]) -> None:
        """Names and values, one pair a line, the values aligned."""
        rows = [(name, str(value)) for name, value in rows]
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            self.print(f"  {name:<{width}}  {value}")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Numbers align right, everything else left. None prints as a dash."""
        rows = [list(row) for row in rows]
        numeric = [_is_numeric(row[i] for row in rows) for i in range(len(columns))]
        cells = [[format_cell(value) for value in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        # rich would squeeze a table that is too wide until nobody can read it.
        if self._rich and sum(widths) + 3 * len(widths) <= self._rich.width:
            self._rich.print(_rich_table(columns, numeric, cells))
            return
        for line in [list(columns), ["-" * width for width in widths], *cells]:
            aligned = (
                f"{cell:>{width}}" if right else f"{cell:<{width}}"
                for cell, width, right in zip(line, widths, numeric, strict=True)
            )
            print("  ".join(aligned).rstrip(), file=self.stream)

    def progress(self, items: Iterable[Any], description: str, total: int | None = None) -> Iterator[Any]:
        """Yields the items behind a progress bar; without a terminal, silently. total: how many, where `items` does
        not say."""
        if not self._rich:
            yield from items
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._rich, transient=True) as progress:
            yield from progress.track(items, total=total, description=description)


def format_cell(value: Any) -> str:
    """Four significant digits for fractions, two for tiny ones; counts in full."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if abs(value) >= 1000:
            return f"{value:.0f}"
        return f"{value:.1e}" if 0 < abs(value) < 0.01 else f"{value:#.4g}"
    return str(value)


def format_bytes(count: int) -> str:
    """1536 -> '1.5 KiB'."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def format_path(path: str) -> str:
    """As it is if it can be printed; bytes that are no text as \\xff."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _is_numeric(values: Iterable[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in present)


def _rich_console(stream: TextIO) -> Any:
    if not stream.isatty():
        return None
    from rich.console import Console as RichConsole

    return RichConsole(file=stream)


def _rich_table(columns: Sequence[str], numeric: Sequence[bool], cells: Sequence[Sequence[str]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left")
    for row in cells:
        table.add_row(*map(Text, row))
    return table
