"""Epilogue functions drawn from a grammar, and what they make of float64 values, with bounds of what float32 may err.

A drawn function is the text of a Python function, which Cleave traces, and which here runs on values with bounds:
the same text, with another meaning of `cleave`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

import cleave

_erf = np.vectorize(math.erf, otypes=[np.float64])

ROUNDOFF = 2.0**-24
SHAPES = ("scalar", "row", "column", "matrix")
# What a rounding has: half a unit in the last place, the smallest step, the largest value.
CASTS = {
    "float16": (2.0**-11, 2.0**-25, 65504.0),
    "bfloat16": (2.0**-8, 2.0**-133, 3.3e38),
    "float8_e4m3fn": (2.0**-4, 2.0**-10, 448.0),
    "float8_e5m2": (2.0**-3, 2.0**-17, 57344.0),
    "int8": (0.0, 0.5, 127.0),
}


@dataclass
class Bounded:
    """Values, and how far float32 may be from them; an infinite bound: anything."""

    value: Any
    error: Any

    @staticmethod
    def of(x: Any) -> Bounded:
        if isinstance(x, Bounded):
            return x
        return Bounded(np.float64(np.float32(x)), np.float64(0.0))

    @staticmethod
    def made(value: Any, error: Any, rounding: float = 4 * ROUNDOFF) -> Bounded:
        """What an operation makes: a few units in the last place more, and nothing that float32 does not hold."""
        error = error + rounding * np.abs(value) + 1e-37
        return Bounded(value, np.where(np.isfinite(value) & (np.abs(value) < 1e37), error, np.inf))

    def __add__(self, other: Any) -> Bounded:
        y = Bounded.of(other)
        return Bounded.made(self.value + y.value, self.error + y.error)

    __radd__ = __add__

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.error)

    def __sub__(self, other: Any) -> Bounded:
        return self + -Bounded.of(other)

    def __rsub__(self, other: Any) -> Bounded:
        return Bounded.of(other) + -self

    def __mul__(self, other: Any) -> Bounded:
        x, y = self, Bounded.of(other)
        error = np.abs(x.value) * y.error + np.abs(y.value) * x.error + x.error * y.error
        return Bounded.made(x.value * y.value, np.nan_to_num(error, nan=np.inf))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Bounded:
        x, y = self, Bounded.of(other)
        least = np.abs(y.value) - y.error
        value = x.value / y.value
        error = (x.error + np.abs(value) * y.error) / least
        return Bounded.made(value, np.where(least > 0, error, np.inf))

    def __rtruediv__(self, other: Any) -> Bounded:
        return Bounded.of(other) / self

    def __abs__(self) -> Bounded:
        return Bounded(np.abs(self.value), self.error)

    def __lt__(self, other: Any) -> Bounded:
        y = Bounded.of(other)
        return Bounded.made(self.value < y.value, 1.0 * (np.abs(self.value - y.value) <= self.error + y.error), 0.0)

    def __gt__(self, other: Any) -> Bounded:
        return Bounded.of(other) < self

    def __le__(self, other: Any) -> Bounded:
        return ~(self > other)

    def __ge__(self, other: Any) -> Bounded:
        return ~(self < other)

    def __and__(self, other: Bounded) -> Bounded:
        return Bounded((self.value != 0) & (other.value != 0), np.maximum(self.error, other.error))

    def __or__(self, other: Bounded) -> Bounded:
        return Bounded((self.value != 0) | (other.value != 0), np.maximum(self.error, other.error))

    def __invert__(self) -> Bounded:
        return Bounded(self.value == 0, self.error)

    def to(self, dtype: str) -> Bounded:
        if dtype == "float32":
            return self
        relative, step, largest = CASTS[dtype]
        value = np.clip(self.value, -largest - (dtype == "int8"), largest)
        # float16 has infinities, and the others saturate: at the end of its range anything may be.
        too_large = np.abs(self.value) + self.error > largest * 0.999
        error = self.error + relative * (np.abs(self.value) + self.error) + step
        return Bounded(value, np.where(too_large & (dtype in ("float16", "bfloat16")), np.inf, error))


def _of_one(function: Any, steepness: Any, rounding: float = 8 * ROUNDOFF) -> Any:
    def apply(x: Bounded) -> Bounded:
        with np.errstate(all="ignore"):
            return Bounded.made(function(x.value), np.nan_to_num(steepness(x.value, x.error), nan=np.inf), rounding)

    return apply


def _where(condition: Bounded, then: Any, otherwise: Any) -> Bounded:
    x, y = Bounded.of(then), Bounded.of(otherwise)
    value = np.where(condition.value != 0, x.value, y.value)
    either = np.abs(x.value - y.value) + np.maximum(x.error, y.error)
    return Bounded(value, np.where(condition.error > 0.5, either, np.where(condition.value != 0, x.error, y.error)))


def _extreme(pick: Any) -> Any:
    def apply(x: Any, y: Any) -> Bounded:
        x, y = Bounded.of(x), Bounded.of(y)
        return Bounded(pick(x.value, y.value), np.maximum(x.error, y.error))

    return apply


def _clamp(x: Bounded, low: float, high: float) -> Bounded:
    return _extreme(np.minimum)(_extreme(np.maximum)(x, low), high)


EXACT = SimpleNamespace(
    scalar=None,
    row=None,
    column=None,
    matrix=None,
    # exp's own error grows with its argument, which is multiplied by log2(e) in float32.
    exp=lambda x: Bounded.made(np.exp(x.value), np.exp(x.value) * np.expm1(x.error + 8 * ROUNDOFF * np.abs(x.value))),
    log=_of_one(np.log, lambda x, e: np.where(x > 2 * e, 2 * e / np.abs(x), np.inf) + ROUNDOFF),
    sqrt=_of_one(np.sqrt, lambda x, e: np.where(x > 2 * e, e / np.sqrt(np.abs(x)), np.inf)),
    rsqrt=_of_one(lambda x: 1 / np.sqrt(x), lambda x, e: np.where(x > 2 * e, 2 * e * np.abs(x) ** -1.5, np.inf)),
    tanh=_of_one(np.tanh, lambda x, e: e + ROUNDOFF),
    erf=_of_one(_erf, lambda x, e: 1.13 * e + ROUNDOFF),
    sigmoid=_of_one(lambda x: 1 / (1 + np.exp(-x)), lambda x, e: e / 4 + ROUNDOFF),
    where=_where,
    minimum=_extreme(np.minimum),
    maximum=_extreme(np.maximum),
    clamp=_clamp,
    relu=lambda x: _where(x < 0, 0.0, x),
    relu2=lambda x: _where(x < 0, 0.0, x * x),
    silu=lambda x: x / (1.0 + EXACT.exp(-x)),
    gelu=lambda x: 0.5 * x * (1.0 + EXACT.erf(x * 0.7071067811865476)),
)


@dataclass
class Drawn:
    """A function as text; `shapes`: of its inputs by name; `outputs`: names and types, D's first."""

    text: str
    shapes: dict[str, str]
    outputs: dict[str, str | None]

    def traced(self) -> cleave.Epilogue:
        return cleave.epilogue(self._defined(cleave))

    def exact(self, acc: Any, inputs: dict[str, Any]) -> dict[str, Bounded]:
        """`acc`, and inputs that broadcast with it: float64 or Bounded."""
        space = SimpleNamespace(**vars(EXACT), outputs=lambda **values: values)
        with np.errstate(all="ignore"):
            return self._defined(space)(Bounded.of(acc) if not isinstance(acc, Bounded) else acc, **inputs)

    def _defined(self, space: Any) -> Any:
        names: dict[str, Any] = {"cleave": space}
        exec(compile(self.text, "<drawn>", "exec"), names)
        return names["drawn"]


def draw(random: Random, types: tuple[str, ...] = ("float32", "float16")) -> Drawn:
    """`types`: of outputs beside D."""
    shapes = {f"x{i}": random.choice(SHAPES) for i in range(random.randint(0, 4))}
    values, conditions, lines = ["acc", "acc", *shapes], [], []

    def value() -> str:
        return random.choice(values) if random.random() < 0.85 else str(random.choice([0.5, -1.25, 3.0, 1e-3]))

    def known() -> str:
        return random.choice(values)

    def expression() -> str:
        kind = random.randrange(8)
        if kind < 3:
            return f"{known()} {random.choice('+-*')} {value()}"
        if kind == 3:
            return f"{random.choice(['tanh', 'erf', 'sigmoid', 'relu', 'silu', 'gelu', 'relu2'])}({known()})"
        if kind == 4:
            return random.choice(
                [f"{value()} / (1.5 + abs({known()}))", f"cleave.exp(-abs({known()}))", f"-{known()}"]
                + [f"cleave.{f}(0.25 + abs({known()}))" for f in ("log", "sqrt", "rsqrt")]
            )
        if kind == 5:
            return f"cleave.{random.choice(['minimum', 'maximum'])}({known()}, {value()})"
        if kind == 6 and conditions:
            return f"cleave.where({random.choice(conditions)}, {value()}, {known()})"
        rounded = f"0.0 + {known()}.to({random.choice(list(CASTS))!r})"
        return random.choice([f"cleave.clamp({known()}, -2.0, 1.5)", rounded])

    for i in range(random.randint(1, 10)):
        if random.random() < 0.2:
            lines.append(f"c{i} = {known()} {random.choice(['<', '<=', '>', '>='])} {value()}")
            if conditions and random.random() < 0.5:
                lines.append(f"c{i} = {random.choice(['', '~'])}c{i} {random.choice('&|')} {random.choice(conditions)}")
            conditions.append(f"c{i}")
        else:
            text = expression()  # a sum, too, where a value is rounded: as an output it would set the type
            call = text.split("(")[0]
            lines.append(f"v{i} = {'cleave.' if call.isidentifier() and '(' in text else ''}{text}")
            values.append(f"v{i}")
    names = ["d", "pre", "other"][: random.randint(1, 3)]
    types = {name: None if name == "d" else random.choice([None, *types]) for name in names}
    parts = [f"{n}={random.choice(values[1:])}" + (f".to({types[n]!r})" if types[n] else "") for n in names]
    parameters = ", ".join(["acc", *(f"{n}: cleave.{s}" for n, s in shapes.items())])
    body = "\n    ".join([*lines, f"return cleave.outputs({', '.join(parts)})"])
    return Drawn(f"def drawn({parameters}):\n    {body}\n", shapes, types)


def values(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def assert_close(got: Any, exact: Bounded, dtype: str, text: str) -> None:
    """`got`: float64 of what was stored as `dtype`."""
    with np.errstate(all="ignore"):
        relative, step, largest = CASTS.get(dtype, (ROUNDOFF, 1e-45, 3.4e38))
        value, error = np.broadcast_to(exact.value, got.shape), np.broadcast_to(exact.error, got.shape)
        known = np.isfinite(error) & (np.abs(value) + error < largest)
        allowed = error + relative * (np.abs(value) + error) + step
        wrong = known & ~(np.abs(got - value) <= allowed)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(f"{at}: {got[at]}, expected {value[at]} within {allowed[at]} ({dtype})\n{text}")
