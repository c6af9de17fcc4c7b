"""Rows of results as a table, which is how files keep them.

What all rows share is said once, as `shared`; the rest is a line of values for each row, under
`columns`. A field of a field is named with a point, as peers.cublas.us; where it equals the row's own
field of that name, as a peer's error often does, it is "="; where it is a peer's time over the row's own, "/"; and
words that are those of the line above are "^".
A row that lacks a field has null there, or ends before it; one that lacks most is an object of its own. Numbers keep
five digits, more than any clock has, and errors, which are small, three.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

Row = dict[str, Any]

_SAME = "="
_OVER = "/"
_ABOVE = "^"


def pack(rows: Sequence[Row]) -> dict[str, Any]:
    """Fields that are None are left out."""
    flat = [dict(_fields(rounded(row))) for row in rows]
    most = max(map(len, flat), default=0)
    regular = [row for row in flat if 2 * len(row) > most]
    names = dict.fromkeys(name for row in regular for name in row)
    cells = {name: [_cell(row, name) for row in regular] for name in names}
    shared = {
        name: of_rows[0]
        for name, of_rows in cells.items()
        if of_rows[0] is not None and all(cell == of_rows[0] for cell in of_rows)
    }
    columns = [name for name in names if name not in shared]
    lines: list[Any] = []
    above: list[Any] = [None] * len(columns)
    for row in flat:
        if 2 * len(row) <= most:
            lines.append(row)
            continue
        line = [_cell(row, name) for name in columns]
        lines.append(_line([_ABOVE if _repeats(cell, last) else cell for cell, last in zip(line, above, strict=True)]))
        above = line
    return {"shared": shared, "columns": columns, "rows": lines}


def unpack(table: Mapping[str, Any]) -> list[Row]:
    above: list[Any] = [None] * len(table["columns"])

    def fields(values: Any) -> Mapping[str, Any]:
        if isinstance(values, Mapping):
            return values
        line = [cell for cell, _ in zip_longest(values, above)]
        above[:] = [last if cell == _ABOVE else cell for cell, last in zip(line, above, strict=True)]
        cells = table["shared"] | dict(zip(table["columns"], above, strict=True))
        own_first = sorted(cells, key=lambda name: "." in name)  # as rows are made: so the same table is made of them
        return {name: _meaning(cells, name, cells[name]) for name in own_first}

    return [_row(fields(values)) for values in table["rows"]]


def text(result: Mapping[str, Any]) -> str:
    """As JSON, with a line for each key and for each row."""

    def line(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    lines = [
        f'"{key}":[\n' + ",\n".join(map(line, value)) + "\n]" if key == "rows" else f'"{key}":{line(value)}'
        for key, value in result.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}" if abs(value) >= 0.1 else f"{value:.3g}")
    if isinstance(value, Mapping):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value


def _meaning(cells: Mapping[str, Any], name: str, value: Any) -> Any:
    if value == _OVER:
        return _over(cells, name)
    return cells[_last(name)] if value == _SAME else value


def _over(fields: Mapping[str, Any], name: str) -> float | None:
    """A peer's time over the row's own."""
    theirs, ours = fields.get(name.removesuffix("ratio") + "us"), fields.get("us")
    if theirs is None or not ours:
        return None
    return 1.0 if theirs == _SAME else theirs / ours


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _cell(row: Row, name: str) -> Any:
    value, own = row.get(name), _last(name)
    if value is None or own == name:
        return value
    if own == "ratio" and (ratio := _over(row, name)) and abs(ratio / value - 1) < 2e-4:  # of numbers of five digits
        return _OVER
    return _SAME if row.get(own) == value else value


def _repeats(cell: Any, above: Any) -> bool:
    return isinstance(cell, str) and len(cell) > 1 and cell == above


def _line(cells: list[Any]) -> list[Any]:
    while cells and cells[-1] is None:
        cells.pop()
    return cells


def _fields(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, each in value.items():
        if isinstance(each, Mapping) and each:
            yield from _fields(each, f"{prefix}{key}.")
        elif each is not None:
            yield prefix + key, each


def _row(fields: Mapping[str, Any]) -> Row:
    row: Row = {}
    for name, value in fields.items():
        if value is None:
            continue
        *path, last = name.split(".")
        at = row
        for key in path:
            at = at.setdefault(key, {})
        at[last] = value
    return row
