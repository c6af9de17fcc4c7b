"""Experts' rows on their way through memory that all ranks see, without gradients: tokens that arrive while others are
counted, and sums of which half of the columns leave while the others are added up. The bits of `all_gather_rows` and
`reduce_scatter_rows`, which serve what is small, other transports and gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import _core
from ..torch.dispatch import Arrived
from ._fold import fold
from ._peer_memory import PeerMemory, bytes_of
from ._peers import Peers, peers_of
from ._transports import Beside, PeerStores, carrier_for, way_of

_LEAST_BYTES = 4 << 20  # that a rank sends at once: what takes three times as long as a meeting

_ops = torch.ops.cleave


class Form(NamedTuple):
    """What follows from sizes and dtypes, the same on all ranks."""

    shapes: list[tuple[int, ...]]  # of what a rank has of all others; none: it is small
    bytes: int  # of each rank's memory
    call: str  # how ranks name it to each other

    @classmethod
    def of(cls, peers: Peers, share: int, widths: list[int], like: Tensor) -> Form:
        """A rank sends each other `share` rows of each of these widths."""
        large = peers.size > 1 and all(share * width * like.itemsize >= _LEAST_BYTES for width in widths)
        shapes = [(peers.size, share, width) for width in widths if large]
        call = f"{peers.operation}(rows={share}, columns={widths}, {like.dtype})"
        return cls(shapes, bytes_of(*((shape, like.dtype) for shape in shapes)), call)

    def way(self, peers: Peers, like: Tensor, transport: str) -> PeerStores | None:
        if not self.shapes:
            return None
        carrier = carrier_for(peers, like.device, transport, self.call, self.bytes)
        return way_of(carrier, peers, self.call) if isinstance(carrier, PeerMemory) else None


def gathered(
    x: Tensor, expert_ids: Tensor, weights: Tensor, scale: Tensor | None, experts: int, group_name: str, transport: str
) -> Arrived | None:
    """All ranks' tokens, sorted by the experts that this rank has so many of; the others have ids beyond. All but x
    are all ranks'. None where x is small."""
    peers = peers_of(group_name, "tokens of experts")
    key = _core.kinds_of(x)
    form = peers.forms.get(key)
    if form is None:
        form = peers.forms[key] = Form.of(peers, x.shape[0], [x.shape[1]], x)
    way = form.way(peers, x, transport)
    if way is None:
        return None
    beside, everyones = Beside(x.device), way.take(form.shapes[0], x.dtype)
    mine = everyones[peers.rank]
    with beside.behind_all():
        for step in range(1, peers.size):  # from the next rank on, so that none receives from all at once
            everyones[(peers.rank + step) % peers.size][peers.rank].copy_(x, non_blocking=True)
        way.meet(beside)
    mine[peers.rank].copy_(x)
    offs, indices = _ops.moe_sort_tokens(expert_ids, experts)
    if scale is not None:
        scale = _ops.moe_gather(scale, indices)
    beside.join()
    rows = _ops.moe_gather(mine.view(-1, x.shape[1]), indices)  # read before the next call's meeting
    return Arrived(rows, offs, scale=scale, context=(indices, weights))


def scattered(rows: Tensor, indices: Tensor, weights: Tensor, group_name: str, transport: str) -> Tensor | None:
    """This rank's tokens' sums over ranks of what their experts made. None where these are small."""
    peers = peers_of(group_name, "sums of experts")
    key = _core.kinds_of(rows, weights)
    form = peers.forms.get(key)
    if form is None:
        columns = rows.shape[1]
        half = columns // 128 * 64  # aligned, as columns are
        form = peers.forms[key] = Form.of(peers, weights.shape[0] // peers.size, [half, columns - half], rows)
    way = form.way(peers, rows, transport)
    if way is None:
        return None
    (size, share, _), rank = form.shapes[0], peers.rank
    beside, made, begin = Beside(rows.device), [], 0
    for shape in form.shapes:
        part = slice(begin, begin := begin + shape[2])
        sums = _ops.moe_unpermute(rows[:, part], indices, weights).view(shape)
        slots = way.take(shape, rows.dtype)  # of each rank: for each rank's sums of its tokens
        with beside.behind_all():
            for step in range(1, size):
                owner = (rank + step) % size
                slots[owner][rank].copy_(sums[owner], non_blocking=True)
        received = [sums[r] if r == rank else slots[rank][r] for r in range(size)]
        made.append((part, received, sums, beside.event()))  # sums live until they have left
    out = rows.new_empty(share, rows.shape[1])
    for part, received, _, left in made:
        beside.computing.wait_event(left)
        fold(received, rows.dtype, out=out[:, part], most_rows=share, **way.meeting)
    return out
