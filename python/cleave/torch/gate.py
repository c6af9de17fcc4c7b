"""What comes between the two products of an expert."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

from torch import Tensor, nn

import cleave

from .._core import EpilogueFunction, activations
from .._epilogue.function import BoundEpilogue

# The activation of this name, as a function.
_SWIGLU = BoundEpilogue(EpilogueFunction(activations["swiglu"]), activations["swiglu"], ())


@cleave.epilogue
def _limited(acc, alpha: cleave.scalar, beta: cleave.scalar, limit: cleave.scalar):
    gate, up = cleave.minimum(acc.gate, limit), cleave.maximum(cleave.minimum(acc.up, limit), -limit)
    return gate * cleave.sigmoid(alpha * gate) * (up + beta)


@dataclass(frozen=True)
class Gate:
    """gate * sigmoid(alpha * gate) * (up + beta), of gates of at most `limit` and ups of -limit to limit.

    By default silu(gate) * up, SwiGLU. gpt-oss has Gate(alpha=1.702, beta=1.0, limit=7.0). Elementwise, so that
    torch.compile makes one kernel of it; repeatable bit by bit, with gradients, legal in CUDA graphs.

    Raises ValueError for a limit that is not positive, and for numbers that are not finite.
    """

    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if not isfinite(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}; it must be finite")
        if self.limit is not None and not 0 < self.limit < inf:
            raise ValueError(f"limit is {self.limit}; it must be positive and finite, or None where there is none")

    def __call__(self, gate_up: Tensor) -> Tensor:
        """gate_up: [..., 2 * n], floats, the gates first. Returns [..., n], of its dtype."""
        gates, ups = gate_up.chunk(2, -1)
        if self.limit is not None:
            gates, ups = gates.clamp(max=self.limit), ups.clamp(-self.limit, self.limit)
        gated = nn.functional.silu(gates) if self.alpha == 1 else gates * (self.alpha * gates).sigmoid()
        return gated * (ups + self.beta if self.beta else ups)

    def epilogue(self) -> cleave.BoundEpilogue:
        """The same, in float32, as the function of a product that has the gates and the ups."""
        if self == SWIGLU:
            return _SWIGLU
        return _limited(alpha=self.alpha, beta=self.beta, limit=inf if self.limit is None else self.limit)


SWIGLU = Gate()
