"""Which problem has which number: all that is random follows from a seed and that."""

from __future__ import annotations

import random
from collections.abc import Sequence

from .conv import draw_conv
from .dense import draw_gemm, draw_scaled_gemm
from .grouped import draw_grouped_gemm, draw_grouped_wgrad
from .mixed import draw_mixed_gemm
from .moe import draw_moe
from .problem import Draw, Problem, Target
from .quantize import draw_quantize
from .route import draw_router

# With how often each is drawn.
OPERATIONS: dict[str, tuple[Draw, float]] = {
    "gemm": (draw_gemm, 3),
    "scaled_gemm": (draw_scaled_gemm, 3),
    "grouped_gemm": (draw_grouped_gemm, 3),
    "grouped_gemm_wgrad": (draw_grouped_wgrad, 1),
    "mixed_gemm": (draw_mixed_gemm, 1),
    "conv": (draw_conv, 3),
    "quantize": (draw_quantize, 1),
    "moe": (draw_moe, 1),
    "route": (draw_router, 1),
}
# Problems that follow each other share dtypes, layouts, epilogue and split, and so their kernels.
SHARING = 128


def draw(seed: int, index: int, target: Target, operations: Sequence[str] = (), sharing: int = SHARING) -> Problem:
    """A problem of those operations alone; by default of all."""
    config = random.Random(f"{seed} configuration {index // sharing}")
    rng = random.Random(f"{seed} problem {index}")
    names = list(operations) or list(OPERATIONS)
    name = config.choices(names, [OPERATIONS[name][1] for name in names])[0]
    return OPERATIONS[name][0](config, rng, target)
