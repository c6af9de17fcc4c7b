"""What the tools know about element types."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dtype:
    """An element type.

    roundoff: the largest relative error of rounding to it, but for the errors of up to half a
    `step` at small values. limits: the least and the largest finite value, where results reach
    them: beyond these, 8 bits saturate and float16 is infinite.
    """

    bytes: int
    roundoff: float
    step: float
    short: tuple[str, ...]
    limits: tuple[int, int] | None = None

    @property
    def largest(self) -> int | None:
        """What the largest of some quantised values becomes; None: not a type of such values."""
        return self.limits[1] if self.limits and self.bytes == 1 else None


DTYPES = {
    "float16": Dtype(2, 2.0**-11, 2.0**-24, ("fp16", "f16"), (-65504, 65504)),
    "bfloat16": Dtype(2, 2.0**-8, 2.0**-133, ("bf16",)),
    "float32": Dtype(4, 2.0**-24, 2.0**-149, ("fp32", "f32")),
    "int8": Dtype(1, 0.0, 1.0, ("i8",), (-128, 127)),
    "float8_e4m3fn": Dtype(1, 2.0**-4, 2.0**-9, ("e4m3",), (-448, 448)),
    "float8_e5m2": Dtype(1, 2.0**-3, 2.0**-16, ("e5m2",), (-57344, 57344)),
    "int32": Dtype(4, 0.0, 0.0, ("i32",)),
}

# Those of C and of a bias.
FLOATS = ("float16", "bfloat16", "float32")
# Those that NumPy and CuPy have no arrays of.
TORCH_ONLY = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})
