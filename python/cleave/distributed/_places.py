"""Where the rows of a mixture of experts lie on their way between the ranks: integers, on the device.

A choice is a slot; slots sorted by expert are sorted rows. The sorted rows of a rank's experts are one block, which
goes to that rank. With a capacity, each block gets a part of as many places, which any transport moves without knowing
what is in it; else rows go as they are sorted.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Sent(NamedTuple):
    """slots [S]: of each sorted row its slot, ~slot of one that is dropped. places [S]: where it is sent from; 0 for
    dropped ones. sources [P]: which sorted row lies at a place; any, where none does. ends [ranks, experts of a rank]:
    where each expert's rows end in its rank's part. dropped [1]: slots of experts that had no place left."""

    slots: Tensor
    places: Tensor
    sources: Tensor
    ends: Tensor
    dropped: Tensor


def sent(offs: Tensor, slots: Tensor, ranks: int, capacity: int | None) -> Sent:
    """offs, slots: as moe_sort_tokens gives them. capacity: places for each rank; None for as many as rows."""
    ends = offs.view(ranks, -1)
    first = torch.nn.functional.pad(offs, (1, 0))[:: ends.shape[1]]  # of each rank, and where the last one's rows end
    in_part = ends - first[:-1, None]
    row = torch.arange(slots.shape[0], dtype=torch.int32, device=offs.device)
    if capacity is None:
        return Sent(slots, row, row, in_part, offs.new_zeros(1))
    rank = torch.searchsorted(ends[:, -1].contiguous(), row, right=True, out_int32=True)
    place = row - first[rank]
    fits = (slots >= 0) & (place < capacity)
    sources = first[:-1, None] + torch.arange(capacity, dtype=torch.int32, device=offs.device)
    return Sent(
        torch.where(fits, slots, torch.minimum(slots, ~slots)),
        torch.where(fits, place.add_(rank, alpha=capacity), 0),
        sources.clamp_(max=max(slots.shape[0] - 1, 0)).view(-1),
        in_part.clamp(max=capacity),
        (in_part[:, -1] - capacity).clamp_(min=0).sum(dtype=torch.int32).view(1),
    )


def experts_of_parts(ends: Tensor, capacity: int) -> Tensor:
    """[ranks * capacity]: whose each received row is, by where they end in each rank's part; the number of experts
    for a place without one."""
    place = torch.arange(capacity, dtype=torch.int32, device=ends.device).expand(ends.shape[0], -1)
    return torch.searchsorted(ends, place.contiguous(), right=True, out_int32=True).view(-1)


def experts_of_rows(ends: Tensor, rows: int) -> Tensor:
    """[rows]: the same of parts that follow each other without gaps."""
    counts = ends.diff(dim=1, prepend=ends.new_zeros(ends.shape[0], 1))
    expert = torch.arange(ends.shape[1], dtype=torch.int32, device=ends.device).repeat(ends.shape[0])
    return expert.repeat_interleave(counts.view(-1), output_size=rows)
