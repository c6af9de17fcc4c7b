"""From a table of flights to a linear model: intercept, standardised numbers, one-hot columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .flights import Flights

COLUMNS = 128
_NUMBERS = ("dep_delay", "distance")
_CATEGORIES = ("carrier", "origin", "month", "hour", "weekday")


@dataclass(frozen=True)
class Regression:
    """x [rows, COLUMNS] and y [rows], float16; exact but for the standardised columns."""

    x: np.ndarray
    y: np.ndarray
    names: list[str]
    scales: dict[str, float]  # standard deviation of each standardised column


def encode(flights: Flights) -> Regression:
    """Drops rows with missing values; the commonest destinations fill what is left of COLUMNS."""
    present = ~np.isnan(flights.dep_delay) & ~np.isnan(flights.arr_delay) & ~np.isnan(flights.distance)
    rows = int(present.sum())
    x = np.zeros((rows, COLUMNS), np.float16)
    x[:, 0] = 1
    names = ["intercept"]
    scales = {}
    for name in _NUMBERS:
        values = getattr(flights, name)[present]
        scales[name] = float(values.std())
        x[:, len(names)] = (values - values.mean()) / scales[name]
        names.append(name)
    for name in _CATEGORIES:
        # The commonest value is the baseline: columns for all would sum to the intercept.
        _one_hot(x, names, name, getattr(flights, name)[present], skip=1, limit=COLUMNS)
    room = COLUMNS - len(names)
    _one_hot(x, names, "dest", flights.dest[present], skip=0, limit=room)
    if len(names) != COLUMNS:
        raise ValueError(f"the table encodes to {len(names)} columns; it needs more than {room} destinations")
    return Regression(x, flights.arr_delay[present].astype(np.float16), names, scales)


def _one_hot(x: np.ndarray, names: list[str], name: str, values: np.ndarray, skip: int, limit: int) -> None:
    """Appends a column for each of the commonest `limit` values but the commonest `skip`."""
    distinct, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranked = np.argsort(-counts, kind="stable")[:limit]
    column = np.full(len(distinct), -1)
    column[ranked[skip:]] = len(names) + np.arange(len(ranked) - skip)
    rows = np.flatnonzero(column[codes] >= 0)
    x[rows, column[codes[rows]]] = 1
    names.extend(f"{name} {value}" for value in distinct[ranked[skip:]])
