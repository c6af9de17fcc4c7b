"""A packed weight, as `pack_weights` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import _core
from .arrays import check_array, device_of, dtype_of, on_host
from .formats import find_format

# The layout of `packed`: kernels/cleave/memory/weight_layout.h.
VERSION = 1
GATE_ROWS = _core.weight_gate_rows
BLOCK, _BLOCK_BYTES = _core.weight_block, _core.weight_block_bytes


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """A weight W of N outputs and K inputs in 4 bits, or one of each of E experts, as `cleave.pack_weights` makes it.

    What code c of row n and column k stands for, with g = k // group_size:

        int4   (c - zeros[g, n]) * scales[g, n], with 8 where there are no zeros
        mxfp4  e2m1(c) * 2^(scales[g, n] - 127)
        nvfp4  e2m1(c) * scales[g, n] * global_scale

    Attributes; of experts all but perm have [E, ...]:
        packed: uint8 [ceil(N / 64), ceil(K / 64), 2048]: the codes, as kernels/cleave/memory/weight_layout.h has them.
        scales: [K / group_size, N], contiguous; bfloat16 or float16 (int4), uint8 (mxfp4: E8M0), float8_e4m3fn (nvfp4).
        zeros: uint8, as scales, from 0 to 15, of "int4"; or None.
        shape: (N, K), or (E, N, K).
        group_size: columns of a row that share a scale; K where it is all of them.
        format: "int4", "mxfp4" or "nvfp4".
        perm: int32 [K], or None: column k is that of number perm[k] of the weight that was given, so that x[:, perm]
            is what is multiplied.
        global_scale: float32 [1], or [E], or one for each row, [N] or [E, N], of "nvfp4"; else None.
        version: of the layout.
        gated: whether products join rows two by two, N / 2 gates and the ups that follow them, to one column of D
            each. In packed, scales and zeros eight gates and their ups take turns then: gate j is row
            j // 8 * 16 + j % 8, and its up 8 rows further on. global_scale has the gates first.

    Raises TypeError and ValueError for parts that do not fit together, such as those of another version. What arrays
    hold is not looked at but for a perm on the host: each column must be there once.
    """

    packed: Any
    scales: Any
    zeros: Any
    shape: tuple[int, ...]
    group_size: int
    format: str = "int4"
    perm: Any = None
    global_scale: Any = None
    version: int = VERSION
    gated: bool = False

    def __post_init__(self) -> None:
        check_version(self.version)
        form = find_format(self.format)
        if not isinstance(self.shape, tuple | list) or len(self.shape) not in (2, 3):
            raise TypeError(f"shape is {self.shape!r}; it must be (N, K), or (E, N, K) of experts")
        if not isinstance(self.group_size, int) or isinstance(self.group_size, bool):
            raise TypeError(f"group_size is {self.group_size!r}; it must be an integer")
        check_gated(self.gated)
        *experts, rows, columns = self.shape
        if self.group_size <= 0 or columns % self.group_size:
            raise ValueError(f"group_size is {self.group_size}, which does not divide K = {columns}")
        if self.gated:
            check_gate_rows(rows)
        grouped = (*experts, columns // self.group_size, rows)
        self._check("packed", (*experts, *packed_shape(rows, columns)), ("uint8",))
        self._check("scales", grouped, form.scale_dtypes)
        self._check("zeros", grouped, ("uint8",), form.zero_points, required=False)
        self._check("perm", (columns,), ("int32",), not experts, required=False)
        if self.perm is not None and on_host(self.perm):
            check_perm(self.perm)
        by_row = len(getattr(self.global_scale, "shape", ())) > len(experts) and tuple(self.global_scale.shape) != (1,)
        one_each = (*experts, rows) if by_row else tuple(experts) or (1,)
        self._check("global_scale", one_each, ("float32",), form.global_scale, required=form.global_scale)

    def _check(
        self, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...], allowed: bool = True, required: bool = True
    ) -> None:
        array = getattr(self, name)
        if array is None:
            if required:
                raise ValueError(f'{name} is None; a weight in format "{self.format}" has one, {list(shape)}')
            return
        if not allowed:
            whose = "a weight of experts" if name == "perm" else f'format "{self.format}"'
            raise ValueError(f"{name} is given, but {whose} has none; leave it out")
        check_array(array, name)
        if dtype_of(array) not in dtypes:
            raise TypeError(f"{name} is {dtype_of(array)}; it must be {' or '.join(dtypes)}")
        if tuple(array.shape) != shape:
            raise ValueError(
                f"{name} is {list(array.shape)}; for shape {tuple(self.shape)} and group_size {self.group_size} it "
                f"must be {list(shape)}"
            )
        if device_of(array) != device_of(self.packed):
            raise ValueError(f"{name} is on {device_of(array)}, packed on {device_of(self.packed)}; move one of them")

    def __repr__(self) -> str:
        zeros = ", zeros" if self.zeros is not None else ""
        perm = ", perm" if self.perm is not None else ""
        gated = ", gated" if self.gated else ""
        return (
            f"PackedWeights(shape={self.shape}, format={self.format!r}, "
            f"group_size={self.group_size}{zeros}{perm}{gated}, "
            f"device={device_of(self.packed)!r})"
        )


def packed_shape(rows: int, columns: int) -> tuple[int, int, int]:
    return (-(-rows // BLOCK), -(-columns // BLOCK), _BLOCK_BYTES)


def check_packed(weights: Any) -> None:
    if not isinstance(weights, PackedWeights):
        raise TypeError(f"weights is {type(weights).__name__}; it must be a PackedWeights, see pack_weights")


def check_gated(gated: Any) -> None:
    if not isinstance(gated, bool):
        raise TypeError(f"gated is {gated!r}; it must be True or False")


def check_gate_rows(rows: int) -> None:
    if rows % (2 * GATE_ROWS):
        raise ValueError(
            f"gated is True, but weight has N = {rows} rows of gates and ups, {GATE_ROWS} of each in turn: N must be "
            f"a multiple of {2 * GATE_ROWS}; pad both with rows of zeros"
        )


def check_perm(perm: Any, name: str = "perm") -> None:
    columns: list[int] = perm.tolist()
    count = [0] * len(columns)
    for position, column in enumerate(columns):
        if not 0 <= column < len(columns):
            raise ValueError(f"{name}[{position}] is {column}; it must name a column, 0 to {len(columns) - 1}")
        count[column] += 1
        if count[column] > 1:
            raise ValueError(
                f"{name}[{position}] is {column}, which is there before; each of the {len(columns)} columns must be "
                "there once: pack the weight with its g_idx, and perm follows"
            )


def check_version(version: int, name: str = "version") -> None:
    if version != VERSION:
        raise ValueError(
            f"{name} is {version}, but this Cleave reads packed weights of version {VERSION}; pack the weight anew, "
            "or use the Cleave that packed it"
        )
