"""Gate and up projections of packed weights, as one product that joins them."""

from __future__ import annotations

from typing import Any

from .mixed_bytes_linear import W4A8Linear
from .mixed_linear import W4A16Linear


class W4A16SwiGLU(W4A16Linear):
    """silu(gate(x)) * up(x), of the rows of a gate and then those of an up in one weight of 4 bits, as one product.

    `from_linear` has it of a linear layer with such rows, `from_packed` of a weight that is packed with gated=True. The
    bias has the gates first; sums are rounded once, to y's dtype, after the gate. There is no gradient, and x that
    requires one is refused. A state_dict has gate_rows besides, [], int32: how many gates and ups take turns in
    `packed`. Otherwise as `W4A16Linear`.
    """

    activation = "swiglu"

    def __init__(self, in_features: int, rows: int, bias: bool = True, **options: Any) -> None:
        """An empty one, to load a state_dict into. rows: the weight's, twice out_features, a multiple of 16; options:
        as in `W4A16Linear`."""
        super().__init__(in_features, rows, bias, **options)


class W4A8SwiGLU(W4A8Linear):
    """`W4A16SwiGLU` whose activations are quantised to 8 bits in each call, otherwise as `W4A8Linear`."""

    activation = "swiglu"

    def __init__(self, in_features: int, rows: int, bias: bool = True, **options: Any) -> None:
        """An empty one, to load a state_dict into. rows: as in `W4A16SwiGLU`; options: as in `W4A8Linear`."""
        super().__init__(in_features, rows, bias, **options)
