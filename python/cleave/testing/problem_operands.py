"""Operands of whatever an application multiplies, told from a plan alone: arrays at addresses, of random values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .arrays import Arrays
from .dtypes import DTYPES
from .group_sizes import ranges_of, spread_over

# Standard deviation of integers: few leave the range of 8 bits.
_INTEGERS = 20
# What the arrays that are not drawn are filled with.
_FILLED = {"d": 0, "scale_a": 1, "scale_b": 1, "scale_d": 1, "scale_out": 0, "zero_a": 0, "zero_b": 0, "amax": 0}
# Where groups' sizes are not known.
_SPREAD = "varied"


@dataclass
class ProblemOperands:
    """`arrays` are kept for as long as their `addresses` are used."""

    arrays: list[Any]
    addresses: dict[str, int]


def make_operands(arrays: Arrays, plan: Any, sizes: Sequence[int] | None = None, seed: int = 0) -> ProblemOperands:
    """What a launch of `plan` reads and writes. sizes: of its groups; by default they are spread over all there is."""
    from .. import _core

    made, addresses = [], {}
    groups = _core.groups_of(plan)
    bounds = _bounds(groups, sizes) | _list(groups, seed)
    for i, field in enumerate(_core.arrays_of(plan)):
        name, dtype = field["name"], field["dtype"]
        off = field["alignment"] % 16 // DTYPES[dtype].bytes  # no more aligned than the problem says
        shape = (field["elements"] + off,)
        if name in bounds:
            array = _integers(arrays, bounds[name])
        elif name in _FILLED:
            array = arrays.full(shape, _FILLED[name], dtype)
        else:
            array = _drawn(arrays, shape, dtype, 16 * seed + i)
        made.append(array)
        addresses[name] = arrays.address(array) + off * DTYPES[dtype].bytes * (name not in bounds)
    return ProblemOperands(made, addresses)


def dtypes_of(plan: Any) -> frozenset[str]:
    """Those of the plan's arrays."""
    from .. import _core

    return frozenset(field["dtype"] for field in _core.arrays_of(plan))


def bytes_of(plan: Any) -> int:
    """The sum over the plan's arrays."""
    from .. import _core

    return sum(field["elements"] * DTYPES[field["dtype"]].bytes for field in _core.arrays_of(plan))


def run(plan: Any, operands: ProblemOperands, stream: int | None) -> None:
    from .. import _core

    _core.run_at(plan, operands.addresses, stream)


def _drawn(arrays: Arrays, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    if DTYPES[dtype].largest is None and not dtype.startswith("int"):
        return arrays.normal(shape, dtype, seed)
    values = arrays.normal(shape, "float32", seed)
    return arrays.cast(values * _INTEGERS if dtype.startswith("int") else values, dtype)


def _list(groups: dict[str, Any], seed: int) -> dict[str, Sequence[int]]:
    """The list that names rows, if there is one."""
    if not groups["slots"]:
        return {}
    import numpy

    return {"gather": numpy.random.default_rng(seed).integers(0, groups["slots"], groups["extent"])}


def _integers(arrays: Arrays, values: Sequence[int]) -> Any:
    import numpy

    return arrays.from_numpy(numpy.array(values), "int32")


def _bounds(groups: dict[str, Any], sizes: Sequence[int] | None) -> dict[str, Sequence[int]]:
    """What of the groups' arrays there is."""
    if not groups["count"]:
        return {}
    spaced = groups["bounds"] != "ends"
    spacing = groups["spacing"] if spaced else 1
    if sizes is None:
        total = groups["expected_m"] * groups["count"] or groups["extent"]
        unit = 1 if groups["expected_m"] and groups["bounds"] == "counts" else spacing
        sizes = [min(units * unit, groups["extent"]) for units in spread_over(groups["count"], total // unit, _SPREAD)]
    if groups["bounds"] == "counts":
        return {"group_sizes": [min(size, spacing) for size in sizes]}
    return {"group_offsets": [end for _, end in ranges_of(sizes, spacing)]}
