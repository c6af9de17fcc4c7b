"""What a call does, and why, in words: `cleave.distributed.explain`."""

from __future__ import annotations

import torch

from .. import _cost_over_ranks as _cost
from ._fold import is_inside
from ._peers import Peers
from ._transports import is_cut, kind_of, name_for


def explained(operation: str, m: int, n: int, itemsize: int, peers: Peers, device: torch.device) -> str:
    """What follows the operation in `explain`."""
    large = is_cut(operation, m, n, peers.size)
    nccl_wins = not large and _cost.nccl_wins(kind_of(operation), m * n * itemsize, peers.size)
    transport, why = name_for(peers, device, nccl_wins)
    steps = _steps(operation, m * n * itemsize, peers.size, transport, large)
    hidden = "; large: parts are moved while others are made" if large else ""
    small = operation == "gemm_all_reduce" and not large and _cost.is_one_shot(m * n * itemsize, peers.size)
    if transport == "peer" and device.type == "cuda" and small and is_inside(m, n, itemsize, peers.size):
        hidden = "; a product whose kernel can is one launch with its sum, and nothing lies in memory between"
    return f"{transport}{why}, {steps}{hidden}{_times(operation, m * n * itemsize, peers.size, device)}"


def _times(operation: str, whole: int, size: int, device: torch.device) -> str:
    """What the model says, of GPUs."""
    if device.type != "cuda" or size == 1:
        return ""
    peer, nccl = (_cost.added(kind_of(operation), way, whole, size) for way in ("peer", "nccl"))
    return (
        f". Where nothing is hidden it takes {peer:.0f} us beside the product through memory that all see, and "
        f"{nccl:.0f} us by NCCL: so says a model, fitted on two GPUs of one host"
    )


def _steps(operation: str, sent: int, size: int, transport: str, large: bool) -> str:
    """sent: the bytes of a rank's partial result, or of the gathered a."""
    part = sent * (size - 1) // size
    through_memory = transport == "peer"
    if operation.startswith("all_gather"):
        moved = f"each rank's rows into memory that all see, {part} bytes read from it" if through_memory else ""
        return f"{moved or f'unfused: all-gather of {part} bytes a rank'}, then the product"
    if operation.endswith("reduce_scatter"):
        if through_memory:
            return f"product into memory that all see, sum in rank order, which reads {part} bytes of peers'"
        return f"unfused: product, all-to-all of {part} bytes a rank, sum in rank order"
    if not large and _cost.is_one_shot(sent, size):
        why = "; a second trip would cost more than the bytes that it saves"
        if through_memory:
            read = sent * (size - 1)
            return (
                "one-shot: product into memory that all see, sum in rank order on every rank, which takes "
                f"{read} bytes of peers'{why}"
            )
        return f"unfused, one-shot: product, all-gather of its {sent} bytes, sum in rank order on every rank{why}"
    if through_memory:
        return (
            f"two-shot: product into memory that all see, sum of each rank's rows in rank order, which reads {part} "
            "bytes of peers', and these rows from all: fewer bytes than all partial results for all"
        )
    return (
        f"unfused, two-shot: product, all-to-all of {part} bytes a rank, sum of each rank's rows in rank order, "
        "all-gather of these: fewer bytes than all partial results for all"
    )
