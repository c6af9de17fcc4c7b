"""What ranks of a group promise, as functions that every one of them runs: by gloo, on GPUs by NCCL."""

from __future__ import annotations

from . import (
    dtensors,
    experts,
    gathers,
    gradients,
    layers,
    operators,
    peer_memory,
    refusals,
    styles,
    sums,
    transports,
    ways,
)

PRODUCTS = (
    *sums.CHECKS,
    *transports.CHECKS,
    *ways.CHECKS,
    *peer_memory.CHECKS,
    *gathers.CHECKS,
    *gradients.CHECKS,
    *operators.CHECKS,
    *refusals.CHECKS,
    *styles.CHECKS,
)
CHECKS = (*PRODUCTS, *experts.CHECKS, *dtensors.CHECKS, *layers.CHECKS)
