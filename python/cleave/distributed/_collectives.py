"""How what a call sends gets from one rank to the others by a backend of torch.

A collective moves bytes and never adds: sums are ours, so that they are the same on every transport.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from . import _faults
from ._peers import Peers
from ._rows import first_rows


def collective_of(peers: Peers, device: torch.device, asked: str) -> str:
    """The backend that moves tensors of `device` between the ranks: "auto" is what the group has for them.

    Raises ValueError where the group has no such backend.
    """
    own = _backend(peers, device)
    if asked == "auto" and own is not None:
        return own
    if asked == own or (asked == "gloo" and _backend(peers, torch.device("cpu")) == "gloo"):
        return asked
    if asked == "peer":
        raise ValueError(
            'transport is "peer", which moves what products over ranks sum or gather, and no experts; use "auto"'
        )
    served = ", ".join(f"{t.type}: {_backend(peers, t)}" for t in peers.group._device_types)
    instead = "" if own is None else f"{own!r}, or "
    raise ValueError(
        f"transport is {asked!r}, but group {peers.group_name!r} cannot move tensors of {device.type} that way (it has "
        f"{served}); use {instead}a group with a backend for both: init_process_group('cpu:gloo,cuda:nccl')"
    )


def _backend(peers: Peers, device: torch.device) -> str | None:
    try:
        return peers.group._get_backend(device).name()
    except RuntimeError:  # there is none for such devices
        return None


def exchange(parts: Tensor, peers: Peers, transport: str, sizes: tuple[list[int], list[int]] | None = None) -> Tensor:
    """To rank r goes the r-th of `size` parts of the first dimension; theirs for this rank, in order. Parts are equal,
    or of the sizes that are sent and received."""
    if sizes is None and parts.numel() == 0:
        return parts
    if sizes is None:
        said = f"all-to-all of {parts.nbytes} bytes"
        return _move(dist.all_to_all_single, said, parts, parts.shape, peers, transport)
    sent, received = sizes  # a rank without rows takes part, too
    collective = partial(dist.all_to_all_single, output_split_sizes=received, input_split_sizes=sent)
    said = f"all-to-all of rows of {parts.shape[1:].numel() * parts.itemsize} bytes"
    return _move(collective, said, parts, (sum(received), *parts.shape[1:]), peers, transport)


def gather(x: Tensor, peers: Peers, transport: str) -> Tensor:
    """Every rank's x, of one shape, one after the other."""
    shape = peers.size * x.shape[0], *x.shape[1:]
    if x.numel() == 0:
        return x.new_empty(shape)
    return _move(_all_gather, f"all-gather of {x.nbytes} bytes", x, shape, peers, transport)


# Its name up to torch 2.12 warns in later ones.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _move(collective: Any, said: str, x: Tensor, shape: tuple[int, ...], peers: Peers, transport: str) -> Tensor:
    """said: what all ranks must say of it."""
    made = x.new_empty(shape)
    sent, received = _bytes(x.contiguous()), _bytes(made)
    if transport != "gloo":
        collective(received, sent, group=peers.group)
        return made
    on_host = received.cpu()  # itself, where it is there
    with _faults.named(peers, said):
        collective(on_host, sent.cpu(), group=peers.group)
    if x.is_cuda:
        received.copy_(on_host)
    return made


def _bytes(x: Tensor) -> Tensor:
    """What any backend moves, whatever types it knows."""
    return x.view(torch.uint8) if x.dim() else x.view(1).view(torch.uint8)


def gather_rows(x: Tensor, rows: int, peers: Peers, transport: str) -> Tensor:
    """The [rows, ...] that torch.chunk dealt to the ranks: only the last shares are short, so that what they lack
    is at the end."""
    share = peers.share(rows)
    if x.shape[0] != share:
        padded = x.new_empty(share, *x.shape[1:])
        padded[: x.shape[0]] = x
        x = padded
    return first_rows(gather(x, peers, transport), rows)
