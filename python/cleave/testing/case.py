"""One matrix product to plan, run or time: sizes and options, no data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from .._epilogue.activations import GATED
from .._weights.formats import FORMATS
from .dtypes import DTYPES, FLOATS

Block = tuple[int | None, int | None]
Case = TypeVar("Case")

# The formats of B as a packed weight: bytes of a scale.
WEIGHTS = {"none": 0, "int4": 2, "mxfp4": 1, "nvfp4": 1}

# How operands may be scaled: the [rows, K] block that shares a scale in A, and in B's transpose.
# None: as far as the matrix goes.
SCALINGS: dict[str, tuple[Block, Block] | None] = {
    "none": None,
    "tensor": ((None, None), (None, None)),
    "row": ((1, None), (1, None)),
    "block_1x128": ((1, 128), (1, 128)),
    "block_128x128": ((1, 128), (128, 128)),
}


def block_counts(shape: Sequence[int], block: Block) -> tuple[int, int]:
    """Blocks along a matrix's rows and K."""
    rows, k = (-(-extent // (own or max(extent, 1))) for extent, own in zip(shape[-2:], block, strict=True))
    return rows, k


def slice_count(mode: str, slices: int) -> int | None:
    """What tables say of a plan's slices: nothing of a mode that cuts no tile into them."""
    return slices if mode in ("serial", "parallel", "cluster") else None


def options(case: Any, *names: str) -> dict[str, Any]:
    """Fields that are arguments of the library by the same names, and how K is split."""
    return {name: getattr(case, name) for name in (*names, "activation", "split_k_mode", "split_k_slices")}


@dataclass(frozen=True)
class GemmCase:
    """D = activation(A @ B + bias), contiguous operands.

    layout: a letter for A, then one for B, as in BLAS: 't' is row-major, 'n' column-major. So 'tn'
    is the product whose operands both have K as their unit stride. precision: of float32, as in
    `cleave.gemm`. scaling: one of SCALINGS; 8-bit operands stand for scale * value, where one scale
    serves a matrix ("tensor"), a row of A or column of B ("row"), or a block; "block_128x128" has
    blocks of 1x128 in A; beside weights it is of A. out_dtype: by default that of the operands;
    bfloat16 for 8-bit ones, int32 for integers without scales. 8-bit D has a static scale, or with
    out_scale (None or "block_1x128") those that the product finds, in the order of scale_major ("k"
    or "mn"), with use_ue8m0 powers of two. use_fast_accum: 8-bit floats are summed in the tensor
    cores alone. deterministic, sum_order, kernel, static_b: as in `cleave.gemm`. weights: one of
    WEIGHTS, of B in 4 bits, in groups of group_size columns (-1: of whole rows; None: as is usual),
    with zeros with zero points. accumulate: D, which is zero at first, is C as well.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str = "bfloat16"
    precision: str = "tf32"
    layout: str = "tn"
    out_dtype: str | None = None
    activation: str = "none"
    bias: str = "none"
    scaling: str = "none"
    out_scale: str | None = None
    scale_major: str = "k"
    use_ue8m0: bool = False
    use_fast_accum: bool = False
    deterministic: bool | str = True
    sum_order: str | None = None
    kernel: str = "auto"
    static_b: bool = False
    weights: str = "none"
    group_size: int | None = None
    zeros: bool = False
    accumulate: bool = False
    split_k_mode: str = "auto"
    split_k_slices: int | None = None

    @property
    def columns(self) -> int:
        """Columns of B: gates and what they open, under swiglu."""
        return self.n * (2 if self.activation in GATED else 1)

    @property
    def quantized(self) -> bool:
        """Whether the operands are 8-bit values."""
        return DTYPES[self.dtype].largest is not None

    @property
    def plain(self) -> bool:
        """Whether it is one product of two matrices with nothing but scales around it."""
        alone = self.activation == "none" and self.bias == "none" and self.out_scale is None
        return self.batch == 1 and alone and self.weights == "none" and not self.accumulate

    @property
    def result_dtype(self) -> str:
        return self.out_dtype or self.default_result_dtype

    @property
    def result_shape(self) -> tuple[int, int, int]:
        """How many matrices D is, and the rows and columns of each."""
        return self.batch, self.m, self.n

    @property
    def bias_dtype(self) -> str:
        """The first that a bias can have: the operands', the output's, bfloat16."""
        return next(d for d in (self.dtype, self.result_dtype, "bfloat16") if d in FLOATS)

    @property
    def dtypes(self) -> frozenset[str]:
        """Those of all matrices and the bias."""
        bias = () if self.bias == "none" else (self.bias_dtype,)
        scales = ("float8_e4m3fn",) if self.weights == "nvfp4" else ()
        return frozenset((self.dtype, self.result_dtype, *bias, *scales))

    @property
    def scale_blocks(self) -> tuple[Block, Block] | None:
        """The blocks of A, and of B's transpose, that share a scale."""
        return SCALINGS[self.scaling]

    @property
    def out_scale_shape(self) -> tuple[int, int]:
        """The scales that each matrix of D has, if they are found."""
        return self.m, -(-self.n // 128)

    @property
    def columns_of_scale(self) -> int:
        """Those of a row of a packed weight that share one."""
        usual = FORMATS[self.weights].usual_group if self.group_size is None else self.group_size
        return max(self.k, 1) if usual == -1 else usual

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.columns * self.k

    @property
    def bytes(self) -> int:
        """Each input read once, C among them, the output written once."""
        a = self.batch * self.m * self.k * DTYPES[self.dtype].bytes
        bias = {"none": 0, "row": self.columns, "column": self.m}[self.bias]
        output = self.batch * self.m * self.n * (2 if self.accumulate else 1)
        return (
            a
            + self._bytes_of_b
            + bias * DTYPES[self.bias_dtype].bytes
            + output * DTYPES[self.result_dtype].bytes
            + self._scale_count * DTYPES["float32"].bytes
        )

    @property
    def title(self) -> str:
        """For people: sizes and whatever is not plain. The split is no part of it."""
        parts = [f"{self.m}x{self.n}x{self.k}", self.dtype, self.layout]
        if self.batch != 1:
            parts.insert(0, f"{self.batch} of")
        if self.precision != "tf32":
            parts.append(self.precision)
        if self.scaling != "none":
            parts.append(f"scales {self.scaling}")
        if self.result_dtype != self.default_result_dtype:
            parts.append(f"to {self.result_dtype}")
        if self.out_scale:
            parts.append(f"out_scale {self.out_scale}")
            parts += ["mn-major"] * (self.scale_major == "mn") + ["ue8m0"] * self.use_ue8m0
        if self.bias != "none":
            parts.append(f"{self.bias} bias")
        if self.activation != "none":
            parts.append(self.activation)
        if self.use_fast_accum:
            parts.append("fast")
        if self.deterministic == "batch_invariant":
            parts.append("batch-invariant")
        if self.sum_order:
            parts.append(f"sum order {self.sum_order}")
        if self.kernel != "auto":
            parts.append(f"kernel {self.kernel}")
        if self.static_b:
            parts.append("static B")
        if self.accumulate:
            parts.append("accumulated")
        if self.weights != "none":
            parts.append(f"B {self.weights} {self.columns_of_scale}" + " zeros" * self.zeros)
        return " ".join(parts)

    def plan(self, device: str, epilogue: Any = None) -> Any:
        """The library's plan for `device` ('cpu', 'cuda:0', or 'h100' or 'h200' to plan without a GPU). epilogue: a
        function, called with types."""
        import cleave

        return cleave.plan_problem(**asdict(self), epilogue=epilogue, device=device)

    @classmethod
    def of(cls, case: Any, m: int, n: int, k: int, **own: Any) -> GemmCase:
        """A product of these sizes with all options that `case`, which need not be a product, has too."""
        names = {field.name for field in fields(cls)} & {field.name for field in fields(case)}
        return cls(**{name: getattr(case, name) for name in names} | {"m": m, "n": n, "k": k} | own)

    @property
    def default_result_dtype(self) -> str:
        if not self.quantized:
            return self.dtype
        exact = self.dtype == "int8" and self.scaling == "none" and self.weights == "none"
        return "int32" if exact else "bfloat16"

    @property
    def _bytes_of_b(self) -> int:
        elements = self.batch * self.k * self.columns
        if self.weights == "none":
            return elements * DTYPES[self.dtype].bytes
        return elements // 2 + elements // self.columns_of_scale * (WEIGHTS[self.weights] + self.zeros)

    @property
    def _scale_count(self) -> int:
        found = self.batch * math.prod(self.out_scale_shape) if self.out_scale else 0
        if not self.scale_blocks:
            return found
        extents = ((self.m, self.k), (self.columns, self.k))
        blocks = list(zip(extents, self.scale_blocks, strict=True))
        if self.weights != "none":
            blocks = blocks[:1]  # B's are of its own kind
        return found + self.batch * sum(math.prod(block_counts(matrix, block)) for matrix, block in blocks)


class IsProduct:
    """What a case has of `product`, which is a product of one group, or of all together."""

    product: GemmCase

    quantized = property(lambda self: self.product.quantized)
    plain = property(lambda self: self.product.plain)
    result_dtype = property(lambda self: self.product.result_dtype)
    bias_dtype = property(lambda self: self.product.bias_dtype)
    dtypes = property(lambda self: self.product.dtypes)


def product(make: Callable[..., Case], options: Mapping[str, Sequence[Any]]) -> Iterator[Case]:
    """Every combination of the options' values, the last option varying fastest; each case once."""
    seen = set()
    for values in itertools.product(*options.values()):
        chosen = dict(zip(options, values, strict=True))
        if chosen.get("split_k_mode") == "none":
            chosen["split_k_slices"] = None  # an unsplit product has no slice count to vary
        if chosen.get("out_scale", ...) is None and "scale_major" in chosen:
            chosen["scale_major"] = "k"  # and one without found scales no order of them
        if chosen.get("weights") == "none":
            chosen |= {"group_size": None, "zeros": False}  # nor B of floats groups
        case = make(**chosen)
        if case not in seen:
            seen.add(case)
            yield case
