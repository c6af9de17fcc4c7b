"""How far from float64 a result may be, and why.

Sums. A float32 accumulator that adds K products in any order, rounding to the nearest, is off by at
most K 2^-24 times the sum of their magnitudes, |A| |B| (Higham). Tensor cores add a step of s
products to the accumulator at once: all s + 1 addends are aligned with the largest and cut off, 23
bits below it in the 16- and 32-bit types, 13 in the 8-bit floats of Hopper. Since no addend exceeds
the sum of magnitudes so far, a step loses at most (s + 1) 2^-23 of that, and K / s steps
K (1 + 1/s) 2^-23. To this come the sums of up to 264 parts where K is split, each one rounding.
8-bit floats lose (32 + 1) 2^-13 in each step of 32, of four steps before float32 takes over, or,
with fast accumulation, of all of K. The tensor cores read float32 as tf32, cut off after 10 bits:
each product is off by at most 2^-9 (1 + 2^-11) of itself, but not with precision="ieee"; parts of
float32 are off by what tests/support/float32_errors.py has of a product, and multiplied one after another.
All sums of int8 are exact.

Integers. Where all products are multiples of a unit and the magnitudes of a sum stay below 2^24
units (2^13 of the 8-bit floats), nothing is ever cut off: the sum, and likewise what the epilogue
adds to it, is exact, and D must be its nearest neighbour, bit by bit. Most problems are of this
kind, so that one product too few or too many shows in the longest sum.

Epilogue. alpha, the scales, beta * c and the bias are up to eight roundings of float32 more, each
of at most the magnitude of what it is made of. An activation carries an error on as its slope says;
its own is at most 8 roundings of its argument or its value, whichever is larger, since tanh, erf
and exp are within two units in the last place and what they are summed with is below 2. D is
rounded once more, to its own type, and saturates (float16 overflows) beyond its range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from cleave._epilogue.activations import GATED
from cleave.testing.activations import activate, carried, opened
from cleave.testing.arrays import TorchArrays
from tests.gpu.products import stored
from tests.support.float32_errors import PRODUCTS
from tests.support.gemm_reference import RANGE, ROUNDOFF, SMALLEST

from .operand import float64

_EPS = 2.0**-24
_MOST_PARTS = 264
_ARRAYS = TorchArrays("cpu")


@dataclass(frozen=True)
class Accumulator:
    """How the sums of one dtype are made. exact_units: what a sum of integers may reach."""

    relative: float  # of the sum of magnitudes
    exact_units: float


def accumulator(dtype: str, k: int, device: str, fast: bool = False, precision: str = "tf32") -> Accumulator:
    """How sums of k products of `dtype` are accumulated, on "cpu" or "cuda"."""
    if dtype == "int8":
        return Accumulator(0.0, 2.0**31)
    of_parts = PRODUCTS[precision] if precision.endswith("x3") else 0.0
    if of_parts:
        k *= 3
    if device == "cpu":
        return Accumulator((k + 8) * _EPS + of_parts, 2.0**24)
    parts = min(k, _MOST_PARTS)
    relative = (1.125 * k + parts / 2 + 8) * 2 * _EPS
    if dtype.startswith("float8"):
        steps = math.ceil(k / 32) if fast else min(4, math.ceil(k / 32))
        return Accumulator(relative + steps * 33 * 2.0**-13, 2.0**13)
    if dtype == "float32" and precision == "tf32":
        relative += 2.0**-9 * (1 + 2.0**-11)
    return Accumulator(relative + of_parts, 2.0**24)


@dataclass
class Sums:
    """float64 values, how far float32 may be from them, and the magnitudes they are made of.

    bound None: they are exact.
    """

    value: torch.Tensor
    bound: torch.Tensor | None = None
    magnitude: torch.Tensor | None = None

    def add(self, x: torch.Tensor) -> Sums:
        if self.bound is None:
            return Sums(self.value + x)
        return Sums(self.value + x, self.bound, self.magnitude + x.abs())

    def times(self, x: torch.Tensor | float) -> Sums:
        if self.bound is None:
            return Sums(self.value * x)
        return Sums(self.value * x, self.bound * abs(x), self.magnitude * abs(x))


def product(a: torch.Tensor, b: torch.Tensor, relative: float | None) -> Sums:
    """The product of float64 matrices; relative None where it is exact."""
    value = a @ b
    if relative is None:
        return Sums(value)
    magnitude = a.abs() @ b.abs()
    return Sums(value, relative * magnitude, magnitude)


def rounded(sums: Sums) -> Sums:
    """After the epilogue's own roundings."""
    if sums.bound is None:
        return sums
    return Sums(sums.value, sums.bound + 8 * _EPS * sums.magnitude, sums.magnitude)


def activated(sums: Sums, name: str) -> Sums:
    if name == "none":
        return sums
    x = sums.value
    if name == "relu":
        return Sums(activate(_ARRAYS, name, x), sums.bound, x.abs())
    bound = torch.zeros_like(x) if sums.bound is None else sums.bound
    if name in GATED:
        gate, up = opened(name, x)
        of_gate, of_up = opened(name, bound)
        of_gate = carried("silu", gate, of_gate) + 8 * _EPS * gate.abs()
        gate = activate(_ARRAYS, "silu", gate)
        value = gate * up
        bound = of_gate * (up.abs() + of_up) + gate.abs() * of_up + 2 * _EPS * value.abs()
        return Sums(value, bound, value.abs())
    value, carried_on = activate(_ARRAYS, name, x), carried(name, x, bound)
    own = 8 * _EPS * (torch.maximum(x.abs(), value.abs()) + torch.maximum(bound, carried_on))
    return Sums(value, carried_on + own, x.abs())


@dataclass
class Expected:
    """What one output should hold: an element is right within its tolerance, or, without one, if
    it is the nearest. written: which elements are written at all; the others keep their bits."""

    value: torch.Tensor
    tolerance: torch.Tensor | None = None
    written: torch.Tensor | None = None

    def wrong(self, result: torch.Tensor) -> torch.Tensor:
        """Whether each element is wrong."""
        got = float64(result)
        if self.tolerance is None:
            want = float64(stored(self.value, result.dtype))
            right = (got == want) | (got.isnan() & want.isnan())
        else:
            want = self.value
            name = str(result.dtype).removeprefix("torch.")
            if name in RANGE:
                got, want = got.clamp(*RANGE[name]), want.clamp(*RANGE[name])
            right = (got - want).abs() <= self.tolerance
            right |= got.isnan() & want.isnan()
        return ~right if self.written is None else ~right & self.written


def expected(sums: Sums, dtype: torch.dtype, written: torch.Tensor | None = None) -> Expected:
    """What an output of that dtype may have."""
    if sums.bound is None:
        return Expected(sums.value, None, written)
    name = str(dtype).removeprefix("torch.")
    roundoff, smallest = ROUNDOFF.get(name, 0.0), SMALLEST.get(name, 0.0)
    tolerance = sums.bound + 1.01 * roundoff * (sums.value.abs() + sums.bound) + smallest
    return Expected(sums.value, tolerance, written)
