"""What checks of ranks share: who this rank is, what it draws and has, and how calls are made to go."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from cleave.distributed import _peers, _sums, _transports

FILLED_BY_NONE = 1 << 40  # elements of D
ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


@dataclass(frozen=True)
class Ranks:
    rank: int
    size: int
    device: str

    def draw(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """The same on all ranks: their generators are."""
        return torch.randn(shape).to(dtype).to(self.device)

    def columns(self, x: Tensor) -> Tensor:
        """This rank's, leaf and contiguous."""
        return x.chunk(self.size, 1)[self.rank].detach().contiguous()

    def rows(self, x: Tensor) -> Tensor:
        """This rank's, as torch.chunk deals them; the last ranks may have none."""
        parts = x.chunk(self.size)
        return (parts[self.rank] if self.rank < len(parts) else x[:0]).detach().contiguous()

    def everyones(self, x: Tensor) -> list[Tensor]:
        made = [torch.empty_like(x, device="cpu") for _ in range(self.size)]
        dist.all_gather_object(made, x.detach().cpu())
        return made


def same_bits(x: Tensor, y: Tensor) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and torch.equal(_bytes(x), _bytes(y))


def _bytes(x: Tensor) -> Tensor:
    return x.detach().cpu().flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8)


def in_rank_order(partials: list[Tensor], *others: Tensor) -> Tensor:
    """Their sum as it is promised, by torch."""
    total = partials[0].float()
    for x in (*partials[1:], *others):
        total = total + x.float()
    return total


def by_memory(ranks: Ranks) -> bool:
    """Whether calls that say no transport go through memory of the ranks'."""
    return (os.environ.get("CLEAVE_TRANSPORT") or ("peer" if ranks.device == "cuda" else "gloo")) == "peer"


def replays_are(block: Callable[[], tuple[Tensor, ...]], replays: int, eager_every: int = 0) -> bool:
    """Whether a graph of these calls gives the eager ones' bits each time, some of which come between; of 16 bits."""
    expected = block()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog goes on
        made = block()
    other = torch.zeros((), dtype=torch.bool, device=made[0].device)
    for number in range(replays):
        for d in made:
            d.zero_()
        graph.replay()
        again = block() if eager_every and number % eager_every == 0 else ()  # in places of their own
        for d, e in zip((*made, *again), expected * 2, strict=False):
            other |= (d.view(torch.int16) != e.view(torch.int16)).any()
    return not other.item()


def forget_forms() -> None:
    for peers in _peers._known.get(dist.group.WORLD.group_name, {}).values():
        peers.forms.clear()


@contextmanager
def of_large_products(wave: int = 1) -> Iterator[None]:
    """Small ones count as large, which are moved while they are made; wave: elements of D that fill a GPU."""
    least = {"reduce_scatter": 64, "all_reduce": 128, "all_gather": 64}
    chosen = _transports._WAVE, _transports._LEAST_ROWS, _transports._HIDING
    _transports._WAVE, _transports._LEAST_ROWS, _transports._HIDING = wave, least, 64
    forget_forms()
    try:
        yield
    finally:
        _transports._WAVE, _transports._LEAST_ROWS, _transports._HIDING = chosen
        forget_forms()


@contextmanager
def all_reduce_by(shots: str | int) -> Iterator[None]:
    """Or in one, of partial results of so many bytes at most."""
    chosen = _sums.is_one_shot
    _sums.is_one_shot = lambda size, *_: size <= shots if isinstance(shots, int) else shots == "one"
    forget_forms()
    try:
        yield
    finally:
        _sums.is_one_shot = chosen
        forget_forms()
