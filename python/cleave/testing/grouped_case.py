"""One grouped product to run or time, as a mixture of experts has them; no data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from .case import GemmCase, IsProduct
from .group_sizes import ranges_of, spread_over

# For a layer with weights W [groups, n, k], inputs X [tokens, k] and outputs [tokens, n]:
#
# | form    | computes                            | A, B, and the layout in which they are at hand |
# |---------|-------------------------------------|------------------------------------------------|
# | forward | Y_g = X_g @ W[g].T                  | X, W.T: tn                                     |
# | dgrad   | dX_g = dY_g @ W[g]                  | dY, W: tt                                      |
# | wgrad   | dW[g] = dY_g.T @ X_g                | dY.T, X: nt                                    |
_LAYOUTS = {"forward": "tn", "dgrad": "tt", "wgrad": "nt"}
FORMS = tuple(_LAYOUTS)

# Where one scale serves 128 tokens, no group may begin within them.
_SCALED_TOKENS = 128


@dataclass(frozen=True)
class GroupedCase(IsProduct):
    """A product of each group of a layer's tokens: n features out, k features in.

    sizes: how the tokens are spread over the groups, one of SPREADS, or how many each group has;
    form: one of FORMS. layout: by default the one of the form's table; K-major ("tn") for 8-bit
    operands, which tensor cores read in no other, and packed weights. alignment: groups begin at its multiples; None:
    at 128's where scales of blocks run along the tokens (the weight gradient), else anywhere.
    bias: a row per group. The others are those of GemmCase.
    """

    groups: int
    tokens: int
    n: int
    k: int
    sizes: str | tuple[int, ...] = "varied"
    form: str = "forward"
    dtype: str = "bfloat16"
    precision: str = "tf32"
    layout: str | None = None
    out_dtype: str | None = None
    activation: str = "none"
    bias: str = "none"
    scaling: str = "none"
    out_scale: str | None = None
    scale_major: str = "k"
    use_ue8m0: bool = False
    use_fast_accum: bool = False
    alignment: int | None = None
    deterministic: bool | str = True
    sum_order: str | None = None
    kernel: str = "auto"
    weights: str = "none"
    group_size: int | None = None
    zeros: bool = False
    accumulate: bool = False
    split_k_mode: str = "auto"
    split_k_slices: int | None = None

    def group(self, tokens: int) -> GemmCase:
        """The product of a group of so many tokens."""
        m, n, k = {
            "forward": (tokens, self.n, self.k),
            "dgrad": (tokens, self.k, self.n),
            "wgrad": (self.n, self.k, tokens),
        }[self.form]
        along_k = GemmCase(m, n, k, dtype=self.dtype).quantized or self.weights != "none"
        layout = self.layout or ("tn" if along_k else _LAYOUTS[self.form])
        return GemmCase.of(self, m, n, k, layout=layout)

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """Where each group begins and ends."""
        sizes = self.sizes
        if isinstance(sizes, str):
            sizes = spread_over(self.groups, self.tokens, sizes)
        return ranges_of(sizes, self.spacing)

    @property
    def rows(self) -> int:
        """Rows of the matrices that hold the tokens: the last group's end, rounded up."""
        return -(-self.ranges[-1][1] // self.spacing) * self.spacing

    @property
    def spacing(self) -> int:
        along_tokens = self.form == "wgrad" and self.scaling.startswith("block")
        return self.alignment or (_SCALED_TOKENS if along_tokens else 1)

    @property
    def product(self) -> GemmCase:
        """The product whose grouped dimension is that of all groups together."""
        return self.group(self.rows)

    @property
    def result_shape(self) -> tuple[int, int, int]:
        """As of GemmCase."""
        return self.groups if self.form == "wgrad" else 1, self.product.m, self.product.n

    @property
    def flops(self) -> int:
        return self.group(self.tokens).flops

    @property
    def bytes(self) -> int:
        """Each input read once, the output written once; no weights of groups without tokens."""
        sizes = [end - begin for begin, end in self.ranges]
        return sum(self.group(size).bytes for size in sizes if size or self.form == "wgrad")

    def plan(self, device: str, epilogue: Any = None) -> Any:
        """As GemmCase has it."""
        import cleave

        groups = {
            "batch": self.groups,
            "grouping": "k" if self.form == "wgrad" else "m",
            "bounds": "ends" if self.spacing == 1 else "aligned_ends",
            "spacing": self.spacing,
        }
        return cleave.plan_problem(**asdict(self.product) | groups, epilogue=epilogue, device=device)

    @property
    def title(self) -> str:
        """For people: sizes and whatever is not plain. The split is no part of it."""
        spread = self.sizes if isinstance(self.sizes, str) else "given"
        _, _, options = self.group(0).title.partition(" ")
        aligned = f" aligned to {self.alignment}" if self.alignment else ""
        return f"{self.form} {self.tokens}x{self.n}x{self.k} in {self.groups} {spread} groups{aligned} {options}"
