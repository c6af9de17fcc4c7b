"""Whether all ranks make the same call, under CLEAVE_PEER_CHECK=1."""

from __future__ import annotations

import os
from functools import cache

import torch

from ._collectives import collective_of, gather
from ._errors import PeerError
from ._peers import Peers, peers_of

_BYTES = 512


@cache
def is_checked() -> bool:
    given = os.environ.get("CLEAVE_PEER_CHECK", "")
    if given not in ("", "0", "1"):
        raise ValueError(f"CLEAVE_PEER_CHECK is {given!r}; it must be 0 or 1")
    return given == "1"


def check(call: str, peers: Peers, device: torch.device) -> None:
    """Raises PeerError, on every rank, unless all ranks say the same of their call. It waits for all of them."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return  # which may not wait; the call that warmed up was checked
    said = call.encode()[:_BYTES]
    own = torch.tensor(list(said.ljust(_BYTES)), dtype=torch.uint8, device=device)
    everyone = (
        gather(own, peers_of(peers.group_name, "a check of calls"), collective_of(peers, device, "auto"))
        .cpu()
        .view(peers.size, _BYTES)
    )
    calls = [bytes(line.tolist()).decode(errors="replace").rstrip() for line in everyone]
    for rank, theirs in enumerate(calls):
        if theirs != calls[peers.rank]:
            raise PeerError(
                f"ranks of group {peers.group_name!r} disagree: rank {peers.rank} calls {calls[peers.rank]}; rank "
                f"{rank} calls {theirs}. All must make the same calls in the same order"
            )
