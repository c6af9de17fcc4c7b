"""`cleave.pack_weights`, and back."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from .. import _core
from .arrays import bits, cast, contiguous, device_of, dtype_of, made, namespace
from .experts import experts_of, parts_of_experts, stack, stacked
from .formats import E2M1, INT4, Format, find_format, int4_values, quantize, scaled, scales_as_floats
from .layout import gate_rows, inverse, pack_codes, unpack_codes
from .packed import PackedWeights, check_gate_rows, check_gated, check_packed, check_perm

_VALUES = ("float16", "bfloat16", "float32")  # of what is dequantised
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def pack_weights(
    weight: Any,
    group_size: int | None = None,
    format: str = "int4",
    *,
    scales: Any = None,
    zeros: Any = None,
    global_scale: Any = None,
    g_idx: Any = None,
    scale_dtype: Any = None,
    gated: bool = False,
) -> PackedWeights:
    """A weight of 4 bits in the order in which kernels read it: once, when a model is loaded.

        packed = cleave.pack_weights(linear.weight)                    # floats are quantised
        packed = cleave.pack_weights(codes, 128, scales=scales)        # what is quantised keeps its codes and scales

    A float weight is rounded to nearest, with a scale for each group:

    | format | scale of a group whose largest magnitude is amax                   |
    |--------|-----------------------------------------------------------------|
    | int4   | amax / 7.5, rounded to scale_dtype; codes of -8 to 7              |
    | mxfp4  | 2^(floor(log2(amax)) - 2), as OCP's MX formats have it            |
    | nvfp4  | e4m3(amax / 6 / global_scale); global_scale = the weight's / 2688 |

    Args:
        weight: [N, K] (outputs x inputs, as torch.nn.Linear has it), or [E, N, K] of E experts, then scales, zeros
            and global_scale have [E, ...], too. torch or NumPy, of any strides, on the CPU or a GPU. Floats are
            quantised. uint8 are codes, 0 to 15, a byte each; int8 are values of "int4", -8 to 7, which are stored
            plus 8.
        group_size: columns of a row that share a scale. "int4": 128 (the default) and multiples of it, 64, 32, or -1
            for whole rows; "mxfp4": 32; "nvfp4": 16. It must divide K.
        format: "int4", "mxfp4" (e2m1 with E8M0 scales) or "nvfp4" (e2m1 with e4m3 scales and a float32 one).
        scales: of codes: [K / group_size, N]; bfloat16 or float16 ("int4"), uint8 or float8_e8m0fnu ("mxfp4"),
            float8_e4m3fn ("nvfp4").
        zeros: of codes of "int4": [K / group_size, N]; uint8, 0 to 15, or int8, -8 to 7, as the codes are. By
            default the value 0 is code 8.
        global_scale: of codes of "nvfp4": one number, or [N], by which values are multiplied.
        g_idx: [K], integers: the group of each column, in any order (act-order), each group of group_size columns.
            Columns are then sorted by group, and `perm` says how. Not of experts.
        scale_dtype: of the scales of a float weight in "int4": "bfloat16" or "float16". By default the weight's
            dtype, or for wider ones bfloat16 (torch) and float16 (NumPy).
        gated: True for the rows of a gate projection and, after them, as many of an up projection, which
            `mixed_gemm` then joins in its epilogue: activation="swiglu", or a function of acc.gate and acc.up. N is a
            multiple of 16. Products that do not join them take a weight that is packed without it.

    Returns:
        A PackedWeights, on the weight's device and of its framework.

    Raises:
        TypeError: another dtype, or no array. ValueError: a group size that does not divide K, codes or zero points
        out of range, scales that are NaN or infinite, weights that are not finite, groups of g_idx of other
        sizes, shapes and devices that do not fit.
    """
    form = find_format(format)
    xp = namespace(weight, "weight")
    if getattr(weight, "is_meta", False):
        raise ValueError(
            "weight is on the meta device, without values to pack; load them first, or make a layer without them, as "
            "W4A16Linear(in_features, out_features, device='meta'), for a state_dict"
        )
    if len(weight.shape) == 3 and 0 not in weight.shape:
        if g_idx is not None:
            raise ValueError("g_idx is given, but weight is of experts, whose inputs have one order; leave it out")
        parts = parts_of_experts(len(weight), scales=scales, zeros=zeros, global_scale=global_scale)
        pack = partial(pack_weights, group_size=group_size, format=format, scale_dtype=scale_dtype, gated=gated)
        return stacked([pack(each, **part) for each, part in zip(weight, parts, strict=True)])
    rows, columns = _sizes(weight)
    group = group_size_of(form, group_size, columns)
    perm = _permutation(g_idx, columns, group)
    if dtype_of(weight) in _FLOATS:
        given = {"scales": scales, "zeros": zeros, "global_scale": global_scale}
        for name, array in given.items():
            if array is not None:
                raise ValueError(
                    f"{name} is given, but weight is {dtype_of(weight)}, which is quantised here; leave it out"
                )
        if perm is not None:
            weight = weight[:, made(weight, perm, "int64")]
        codes, scales, global_scale = _quantized(form, xp, weight, group, scale_dtype)
        scales = contiguous(scales.T)
        if dtype_of(scales) == "bfloat16":
            check_scales(xp, scales)
    else:
        if scale_dtype is not None:
            raise ValueError("scale_dtype is given, but weight has codes, whose scales stay as they are; leave it out")
        grouped = (columns // group, rows)
        codes = _codes(form, weight, "weight")
        if perm is not None:
            codes = codes[:, made(weight, perm, "int64")]
        scales = _given_scales(form, xp, scales, grouped, weight)
        zeros = None if zeros is None else _given_zeros(form, zeros, grouped, weight)
        global_scale = _given_global_scale(form, xp, global_scale, weight)
    check_gated(gated)
    if gated:
        check_gate_rows(rows)
        order = made(weight, gate_rows(rows), "int64")
        codes, scales = codes[order], contiguous(scales[:, order])
        zeros = None if zeros is None else contiguous(zeros[:, order])
    return PackedWeights(
        pack_codes(codes, form.padding),
        scales,
        zeros,
        (rows, columns),
        group,
        form.name,
        None if perm is None else made(weight, perm, "int32"),
        global_scale,
        gated=gated,
    )


def unpack_weights(weights: PackedWeights) -> Any:
    """The codes of a packed weight, exactly, in the order that was given: uint8 [N, K], or [E, N, K], 0 to 15."""
    check_packed(weights)
    if len(weights.shape) == 3:
        return stack([unpack_weights(each) for each in experts_of(weights)])
    rows, columns = weights.shape
    return _in_given_order(weights, unpack_codes(weights.packed, rows, columns))


def dequantize_weights(weights: PackedWeights, dtype: Any = "float32") -> Any:
    """What a packed weight stands for: [N, K], or [E, N, K], of `dtype`, a float of 16 or 32 bits: a name or a torch or
    NumPy dtype.

    In float32 values of "int4" and "mxfp4" are exact, those of "nvfp4" rounded once.
    """
    check_packed(weights)
    name = _core.dtype_name(dtype, "dtype")
    if name not in _VALUES:
        raise TypeError(f"dtype is {name}; it must be one of {', '.join(_VALUES)}")
    if len(weights.shape) == 3:
        return stack([dequantize_weights(each, dtype) for each in experts_of(weights)])
    xp = namespace(weights.packed, "weights.packed")
    form = find_format(weights.format)
    rows, columns = weights.shape
    codes = unpack_codes(weights.packed, rows, columns)
    scales = scales_as_floats(xp, weights.scales)
    if weights.global_scale is not None:
        by_row = weights.global_scale
        if weights.gated and by_row.shape != (1,):
            by_row = by_row[made(weights.packed, gate_rows(rows), "int64")]
        scales = scales * by_row
    if form is INT4:
        zeros = None if weights.zeros is None else cast(weights.zeros, "float32")
        values = int4_values(cast(codes, "float32"), scales, zeros)
    else:
        values = scaled(made(weights.packed, E2M1, "float32")[cast(codes, "int32")], scales)
    return cast(_in_given_order(weights, values), name)


def _in_given_order(weights: PackedWeights, values: Any) -> Any:
    if weights.gated:
        values = values[made(weights.packed, inverse(gate_rows(len(values))), "int64")]
    if weights.perm is None:
        return values
    check_perm(weights.perm)
    return values[:, made(weights.packed, inverse(weights.perm.tolist()), "int64")]


def _sizes(weight: Any) -> tuple[int, int]:
    if len(weight.shape) != 2 or 0 in weight.shape:
        raise ValueError(
            f"weight is {list(weight.shape)}; it must be [N, K] (outputs, inputs) or [E, N, K], none of them 0"
        )
    if dtype_of(weight) not in (*_FLOATS, "uint8", "int8"):
        raise TypeError(
            f"weight is {dtype_of(weight)}; pass floats, which are quantised, codes of 0 to 15 as uint8, or values of "
            "-8 to 7 as int8"
        )
    rows, columns = weight.shape
    return rows, columns


def group_size_of(form: Format, asked: int | None, columns: int) -> int:
    """The columns of a group, K where it is all of them."""
    group = form.usual_group if asked is None else asked
    if form.wide_groups and (group == -1 or (type(group) is int and group == columns)):
        return columns
    if type(group) is not int or not form.serves(group):
        sizes = ", ".join(map(str, form.group_sizes))
        wide = f", a multiple of {form.usual_group}, or -1 for whole rows" if form.wide_groups else ""
        raise ValueError(f'group_size is {group!r}; in format "{form.name}" it is {sizes}{wide}')
    if columns % group:
        fitting = [str(size) for size in form.group_sizes if columns % size == 0] + ["-1"] * form.wide_groups
        remedy = f"pass {' or '.join(fitting)}, or pad the weight and x" if fitting else "pad the weight and x"
        raise ValueError(f"group_size is {group}, which does not divide K = {columns}; {remedy} with columns of zeros")
    return group


def _permutation(g_idx: Any, columns: int, group: int) -> list[int] | None:
    """The columns sorted by group; None if they are already."""
    if g_idx is None:
        return None
    namespace(g_idx, "g_idx")
    if tuple(g_idx.shape) != (columns,) or "int" not in dtype_of(g_idx):
        raise ValueError(f"g_idx is {list(g_idx.shape)}, {dtype_of(g_idx)}; it must be [{columns}], of integers")
    groups: list[int] = g_idx.tolist()
    perm = inverse(groups)
    for position, column in enumerate(perm):
        if groups[column] != position // group:
            raise ValueError(
                f"g_idx has column {column} in group {groups[column]}, but sorted by group it comes to group "
                f"{position // group}: each of the groups 0 to {columns // group - 1} must have group_size = {group} "
                "columns; pass the group_size that it was made with"
            )
    return None if perm == list(range(columns)) else perm


def _quantized(form: Format, xp: Any, weight: Any, group: int, scale_dtype: Any) -> tuple[Any, Any, Any]:
    rows, columns = weight.shape
    own = dtype_of(weight)
    weight = cast(weight, "float32")
    if not bool(xp.isfinite(weight).all()):
        count = int((~xp.isfinite(weight)).sum())
        raise ValueError(f"weight has {count} elements that are NaN or infinite; mend them before it is quantised")
    if form.scale_dtypes == INT4.scale_dtypes:
        default = own if own in form.scale_dtypes else "bfloat16" if xp.__name__ == "torch" else "float16"
        dtype = default if scale_dtype is None else _core.dtype_name(scale_dtype, "scale_dtype")
        if dtype not in form.scale_dtypes:
            raise ValueError(f'scale_dtype is {dtype}; in format "{form.name}" it is {" or ".join(form.scale_dtypes)}')
    else:
        (dtype,) = form.scale_dtypes
        if scale_dtype is not None:
            raise ValueError(f'scale_dtype is given, but scales of format "{form.name}" are {dtype}; leave it out')
    codes, scales, global_scale = quantize(form, xp, weight.reshape(rows, columns // group, group), dtype)
    return codes.reshape(rows, columns), scales, global_scale


def _codes(form: Format, array: Any, name: str) -> Any:
    """uint8, 0 to 15, of codes or of signed values."""
    signed = dtype_of(array) == "int8"
    if signed and not form.zero_points:
        raise TypeError(f'{name} is int8, but codes of format "{form.name}" are uint8; pass them as uint8, 0 to 15')
    if dtype_of(array) not in ("int8", "uint8"):
        raise TypeError(f"{name} is {dtype_of(array)}; it must be uint8, 0 to 15, or int8, -8 to 7")
    low, high = (-8, 7) if signed else (0, 15)
    least, most = int(array.min()), int(array.max())
    if least < low or most > high:
        seen = least if least < low else most
        hint = "; packed bytes of two codes must be taken apart first" if name == "weight" else ""
        raise ValueError(f"{name} has {seen}; {dtype_of(array)} is from {low} to {high}{hint}")
    return bits(array + 8, "uint8") if signed else array


def _given_zeros(form: Format, zeros: Any, shape: tuple[int, int], weight: Any) -> Any:
    if not form.zero_points:
        raise ValueError(f'zeros are given, but format is "{form.name}", which has none; leave them out')
    _check_place(zeros, "zeros", weight)
    _check_shape(zeros, "zeros", shape)
    return contiguous(_codes(form, zeros, "zeros"))


def _given_scales(form: Format, xp: Any, scales: Any, shape: tuple[int, int], weight: Any) -> Any:
    if scales is None:
        raise ValueError("scales is None, but weight has codes; pass their scales, or a weight of floats")
    _check_place(scales, "scales", weight)
    if dtype_of(scales) == "float8_e8m0fnu":
        scales = bits(scales, "uint8")
    if dtype_of(scales) not in form.scale_dtypes:
        raise TypeError(
            f'scales are {dtype_of(scales)}; in format "{form.name}" they are {" or ".join(form.scale_dtypes)}: '
            "convert them"
        )
    _check_shape(scales, "scales", shape)
    if dtype_of(scales) == "uint8":
        if int(scales.max()) == 255:
            first = [int(i[0]) for i in xp.where(scales == 255)]
            raise ValueError(f"scales{first} is NaN (E8M0's 255); mend the checkpoint")
    else:
        check_scales(xp, scales)
    return contiguous(scales)


def check_scales(xp: Any, scales: Any, name: str = "scales") -> None:
    """[groups, rows], also of experts. Kernels multiply those of bfloat16 by 2^106."""
    values = cast(scales, "float32")
    sound = xp.abs(values) < 2.0**21 if dtype_of(scales) == "bfloat16" else xp.isfinite(values)
    if not bool(sound.all()):
        first = [int(i[0]) for i in xp.where(~sound)]
        most = " and below 2^21" if dtype_of(scales) == "bfloat16" else ""
        raise ValueError(
            f"{name}{first} is {float(values[tuple(first)])}; in {dtype_of(scales)} they are finite{most}: mend "
            "the weight, or divide it by what the product's alpha is then multiplied by"
        )


def _given_global_scale(form: Format, xp: Any, value: Any, weight: Any) -> Any:
    if not form.global_scale:
        if value is not None:
            raise ValueError(f'global_scale is given, but format is "{form.name}", which has none; leave it out')
        return None
    if value is None:
        raise ValueError('global_scale is None, but codes of format "nvfp4" have one; pass it')
    rows = len(weight)
    if math.prod(getattr(value, "shape", ())) == 1:
        value = made(weight, [float(value)], "float32")
    _check_place(value, "global_scale", weight)
    value = contiguous(cast(value, "float32"))
    if tuple(value.shape) not in ((1,), (rows,)):
        raise ValueError(f"global_scale is {list(value.shape)}; it must be one number, or [N] = [{rows}]")
    sound = (value > 0) & xp.isfinite(value)
    if not bool(sound.all()):
        raise ValueError(f"global_scale has {float(value[~sound][0])}; it must be positive and finite")
    return value


def _check_shape(array: Any, name: str, shape: tuple[int, int]) -> None:
    if tuple(array.shape) != shape:
        hint = ": transpose it" if tuple(array.shape) == shape[::-1] else ""
        raise ValueError(f"{name} is {list(array.shape)}; it must be [K / group_size, N] = {list(shape)}{hint}")


def _check_place(array: Any, name: str, weight: Any) -> None:
    if namespace(array, name) is not namespace(weight, "weight"):
        raise TypeError(
            f"{name} is {type(array).__name__}, weight {type(weight).__name__}; pass arrays of one framework"
        )
    if device_of(array) != device_of(weight):
        raise ValueError(f"{name} is on {device_of(array)}, weight on {device_of(weight)}; move one of them")
