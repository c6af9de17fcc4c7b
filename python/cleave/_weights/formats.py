"""What the 16 codes of a format mean, and which of them stand for a float."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from .. import _core
from .arrays import cast, dtype_of

_LARGEST_E2M1, _LARGEST_E4M3 = 6.0, 448.0


@dataclass(frozen=True)
class Format:
    """A format of codes and scales.

    padding: a code of value 0. group_sizes: columns of a row that may share a scale, the first by default; with
    `wide_groups` also multiples of the first, and all of them. scale_dtypes: of a scale.
    """

    name: str
    padding: int
    group_sizes: tuple[int, ...]
    scale_dtypes: tuple[str, ...]
    wide_groups: bool = False
    zero_points: bool = False
    global_scale: bool = False

    @property
    def usual_group(self) -> int:
        return self.group_sizes[0]

    def serves(self, group: int) -> bool:
        """Whether so many columns of a row may share a scale, of rows that are longer."""
        return group in self.group_sizes or (self.wide_groups and group > 0 and group % self.usual_group == 0)


# What codes 0 to 7 stand for, and all.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, _LARGEST_E2M1)
E2M1 = _E2M1 + tuple(-value for value in _E2M1)

INT4 = Format(
    "int4",
    padding=8,
    group_sizes=(_core.weight_groups["int4"], 64, 32),
    scale_dtypes=("bfloat16", "float16"),
    wide_groups=True,
    zero_points=True,
)
MXFP4 = Format("mxfp4", padding=0, group_sizes=(_core.weight_groups["mxfp4"],), scale_dtypes=("uint8",))
NVFP4 = Format(
    "nvfp4",
    padding=0,
    group_sizes=(_core.weight_groups["nvfp4"],),
    scale_dtypes=("float8_e4m3fn",),
    global_scale=True,
)

FORMATS = {form.name: form for form in (INT4, MXFP4, NVFP4)}


def find_format(name: str) -> Format:
    if isinstance(name, str) and name in FORMATS:
        return FORMATS[name]
    near = difflib.get_close_matches(str(name).lower(), FORMATS, 1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    raise ValueError(f'format is {name!r}; it must be "int4", "mxfp4" or "nvfp4"{hint}')


class Quantized(NamedTuple):
    """codes: uint8, as the weight. scales: [rows, groups]. global_scale: [1], float32, or None."""

    codes: Any
    scales: Any
    global_scale: Any


def quantize(form: Format, xp: Any, weight: Any, scale_dtype: str) -> Quantized:
    """The codes next to a weight of [rows, groups, columns of a group], float32 and finite."""
    return _RULES[form.name](xp, weight, scale_dtype)


def _quantize_int4(xp: Any, weight: Any, scale_dtype: str) -> Quantized:
    # The codes of -8 to 7 are those next to -7.5 to 7.5: what is largest is off by half a step, as anything may be,
    # and steps are smaller than of amax / 7.
    scales = cast(xp.amax(xp.abs(weight), axis=2) / 7.5, scale_dtype)
    if not bool(xp.isfinite(cast(scales, "float32")).all()):
        raise ValueError(f"scale_dtype is {scale_dtype}, in which the weight's scales are infinite; pass 'bfloat16'")
    steps = _or_one(xp, cast(scales, "float32"))[:, :, None]
    codes = xp.clip(xp.round(weight / steps), -8, 7) + 8
    return Quantized(cast(codes, "uint8"), scales, None)


def _quantize_mxfp4(xp: Any, weight: Any, _: str) -> Quantized:
    # OCP Microscaling Formats 1.0, 6.3: the exponent of the largest magnitude less that of e2m1's largest, 2.
    amax = xp.amax(xp.abs(weight), axis=2)
    exponent = xp.clip(xp.frexp(amax)[1] - 1 - 2, -127, 127)
    exponent = xp.where(amax == 0, xp.zeros_like(exponent), exponent)
    scales = cast(exponent + 127, "uint8")
    return Quantized(_codes_of_e2m1(xp, weight / exponents_as_scales(xp, scales)[:, :, None]), scales, None)


def _quantize_nvfp4(xp: Any, weight: Any, scale_dtype: str) -> Quantized:
    amax = xp.amax(xp.abs(weight), axis=2)
    # Such that the largest group's scale is the largest e4m3.
    global_scale = _or_one(xp, xp.amax(amax).reshape(1) / (_LARGEST_E2M1 * _LARGEST_E4M3))
    scales = cast(xp.clip(amax / _LARGEST_E2M1 / global_scale, 0, _LARGEST_E4M3), scale_dtype)
    steps = _or_one(xp, cast(scales, "float32") * global_scale)[:, :, None]
    return Quantized(_codes_of_e2m1(xp, weight / steps), scales, global_scale)


_RULES = {"int4": _quantize_int4, "mxfp4": _quantize_mxfp4, "nvfp4": _quantize_nvfp4}


def exponents_as_scales(xp: Any, exponents: Any) -> Any:
    """E8M0: 2^(byte - 127), as float32."""
    powers = cast(exponents, "int32") - 127
    return xp.ldexp(xp.ones_like(cast(powers, "float32")), powers)


def scales_as_floats(xp: Any, scales: Any) -> Any:
    return exponents_as_scales(xp, scales) if dtype_of(scales) == "uint8" else cast(scales, "float32")


def int4_values(codes: Any, scales: Any, zeros: Any) -> Any:
    """[N, K], of codes [N, K], scales [groups, N] and zero points, or None; all float32."""
    if zeros is None:
        return scaled(codes - 8, scales)
    groups, rows = scales.shape
    return scaled((codes.reshape(rows, groups, -1) - zeros.T[:, :, None]).reshape(rows, -1), scales)


def scaled(values: Any, scales: Any) -> Any:
    """Values [N, K] times scales [groups, N]."""
    groups, rows = scales.shape
    return (values.reshape(rows, groups, -1) * scales.T[:, :, None]).reshape(rows, -1)


def _codes_of_e2m1(xp: Any, x: Any) -> Any:
    """Rounded to nearest, ties to the even code; what is beyond 6 becomes 6."""
    magnitude = xp.abs(x)
    codes = cast(x < 0, "uint8") * 8
    for code, (low, high) in enumerate(pairwise(_E2M1)):
        middle = (low + high) / 2
        codes = codes + cast(magnitude >= middle if code % 2 else magnitude > middle, "uint8")
    return codes


def _or_one(xp: Any, scales: Any) -> Any:
    """To divide by: what is all zeros has scale 0."""
    return xp.where(scales == 0, xp.ones_like(scales), scales)
