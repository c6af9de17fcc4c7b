"""One custom call of XLA's: a product of arrays in given layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from .._core import check_activation
from ._library import TARGET

Given = Array | None


@dataclass(frozen=True)
class Product:
    """What a product is but for its arrays; hashable, as jax wants what is static.

    a_major, b_major: the dimension along which neighbours in memory lie, "m" or "k" of a, "k" or "n" of b. An operand
    that does not lie in order goes to XLA transposed: where it is a transposition itself, XLA drops both.
    """

    grouped: bool = False
    a_major: str = "k"
    b_major: str = "n"
    alpha: float = 1.0
    beta: float = 1.0
    activation: str = "none"
    out_dtype: Any = None
    use_fast_accum: bool = False
    split_k_mode: str = "auto"
    split_k_slices: int | None = None
    precision: str = "tf32"

    def __post_init__(self) -> None:
        check_activation(self.activation)  # before a gradient looks for its derivative
        for name in ("alpha", "beta"):
            if isinstance(getattr(self, name), jax.core.Tracer):
                raise TypeError(
                    f"{name} is traced by jax; it must be a number: multiply the result instead, or make it static"
                )
        for name, value, known in (("a_major", self.a_major, "mk"), ("b_major", self.b_major, "kn")):
            if value not in tuple(known):
                raise ValueError(f"{name} is {value!r}; it must be {known[0]!r} or {known[1]!r}")
        if self.split_k_slices is not None and self.split_k_slices < 1:
            raise ValueError(f"split_k_slices is {self.split_k_slices}; it must be 1 or more, or None")

    def but(self, **changes: Any) -> Product:
        return replace(self, **changes)

    def transposed(self) -> list[str]:
        """Operands that go to XLA so."""
        return [name for name, is_so in (("a", self.a_major == "m"), ("b", self.b_major == "k")) if is_so]

    def gradient_of_a(self) -> Product:
        """As a product of D's gradient and b transposed."""
        return self._linear(a_major="k", b_major="n" if self.b_major == "k" else "k")

    def gradient_of_b(self) -> Product:
        """As a product of a transposed and D's gradient."""
        return self._linear(a_major="m" if self.a_major == "k" else "k", b_major="n")

    def _linear(self, **majors: str) -> Product:
        """beta is c's, which a gradient has not; slices were chosen for other sizes."""
        return Product(grouped=self.grouped, alpha=self.alpha, precision=self.precision, **majors)

    def __call__(self, shape: Sequence[int], **operands: Given) -> Array:
        """D of that shape, in out_dtype. Operands are named as in `cleave.grouped_gemm`; those that are None are left
        out."""
        given = {name: array for name, array in operands.items() if array is not None}
        transposed = self.transposed()
        d = _beside(next(iter(given.values())), shape, self.out_dtype)
        call = jax.ffi.ffi_call(TARGET, d, vmap_method="sequential")
        return call(
            *(array.mT if name in transposed else array for name, array in given.items()),
            operands=",".join(given),
            transposed=",".join(transposed),
            grouped=self.grouped,
            alpha=numpy.float32(self.alpha),
            beta=numpy.float32(self.beta),
            activation=self.activation,
            use_fast_accum=self.use_fast_accum,
            split_k_mode=self.split_k_mode,
            split_k_slices=numpy.int64(self.split_k_slices or 0),
            precision=self.precision,
        )


def alike(*arrays: Given) -> list[Given]:
    """The same arrays, which inside shard_map all vary over the axes that any of them does: a custom call takes no
    others. The gradient of what was made to vary is summed over those axes."""
    given = [None if array is None else jax.numpy.asarray(array) for array in arrays]
    every = frozenset().union(*(_varying(array) for array in given if array is not None))

    def vary(array: Given) -> Given:
        missing = () if array is None else tuple(sorted(every - _varying(array)))
        return jax.lax.pcast(array, missing, to="varying") if missing else array

    return [vary(array) for array in given]


def _beside(array: Array, shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """What varies over the axes that `array` does."""
    like = jax.typeof(array)
    if not like.manual_axis_type.varying:
        return jax.ShapeDtypeStruct(shape, dtype)
    whole = NamedSharding(like.sharding.mesh, PartitionSpec(*(None for _ in shape)))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=whole, manual_axis_type=like.manual_axis_type)


def _varying(array: Array) -> frozenset[str]:
    return jax.typeof(array).manual_axis_type.varying
