"""Memory that all ranks see."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
import torch
import torch.distributed as dist

import cleave.distributed as cd
from cleave.distributed import _peer_memory
from cleave.distributed._peers import peers_of

from .ranks import Ranks, same_bits


def calls_take_turns_without_an_end(ranks: Ranks) -> None:
    """Nothing closes a call, whatever sizes and operations follow each other, however late a rank is."""
    draws = random.Random(ranks.rank)
    for call in range(40):
        m = 1 + call * 7 % 50
        a = torch.full((m, 8), 1.0 + ranks.rank + call, device=ranks.device)
        b = torch.ones(8, 16, device=ranks.device)
        total = 8.0 * (ranks.size * (1 + call) + ranks.size * (ranks.size - 1) / 2)
        if draws.random() < 0.3:
            time.sleep(draws.random() * 2e-3)
        if call % 3 < 2:
            multiply = cd.gemm_all_reduce if call % 3 == 0 else cd.gemm_reduce_scatter
            made = multiply(a, b, transport="peer")
            assert (made == total).all(), (call, made, total)
        else:
            made = cd.all_gather_gemm(a, b, transport="peer")
            for rank, rows in enumerate(made.chunk(ranks.size)):
                assert (rows == 8.0 * (1 + rank + call)).all(), (call, rank, rows)


def memory_grows_up_to_its_limit(ranks: Ranks) -> None:
    a, b = ranks.draw(64, 16), ranks.draw(16, 1 << 15)
    held = _peer_memory.memory_of(peers_of(dist.group.WORLD.group_name), a.device, 1).bytes
    made = cd.gemm_all_reduce(a, b, transport="peer")
    grown = _peer_memory.memory_of(peers_of(dist.group.WORLD.group_name), a.device, 1).bytes
    assert grown >= max(held, made.nbytes)
    os.environ["CLEAVE_PEER_BYTES"] = str(grown)
    try:
        wide = torch.cat([b] * (1 + grown // made.nbytes), 1)
        with pytest.raises(ValueError, match=r"cannot serve this call: it would take .* CLEAVE_PEER_BYTES"):
            cd.gemm_all_reduce(a, wide, transport="peer")
        other = "nccl" if ranks.device == "cuda" else "gloo"
        assert same_bits(cd.gemm_all_reduce(a, wide, transport=other)[:, : b.shape[1]], made)  # by what else there is
    finally:
        del os.environ["CLEAVE_PEER_BYTES"]


def a_broken_group_is_reset(ranks: Ranks) -> None:
    """Ranks that made other calls, and as many or more, go on where all of them say so."""
    if ranks.size == 1:
        return
    a, b = ranks.draw(8, 16), ranks.draw(16, 24)
    group = dist.new_group(list(range(ranks.size)))
    cd.reset(group)  # which has made no memory
    made = cd.gemm_all_reduce(a, b, group, transport="peer")
    for turn in range(3):
        cd.reset(group)  # nothing was broken, at first
        assert same_bits(cd.gemm_all_reduce(a, b, group, transport="peer"), made)
        with pytest.raises(cd.PeerError):
            for _ in range(3 + ranks.rank):
                cd.gemm_all_reduce(a[: 1 + ranks.rank], b, group, transport="peer")
                if ranks.device == "cuda":
                    torch.cuda.synchronize()
        cd.reset(group)
        for _ in range(1 + turn):
            assert same_bits(cd.gemm_all_reduce(a, b, group, transport="peer"), made)
            whole = cd.all_gather_gemm(a, b, group, transport="peer")
            assert same_bits(whole, torch.ops.cleave.gemm(torch.cat([a] * ranks.size), b))


def threads_that_ask_first_get_the_same_memory(ranks: Ranks) -> None:
    """It is made once, by whoever comes first: ranks would not agree on which of two is whose."""
    name, device = dist.new_group(list(range(ranks.size))).group_name, ranks.draw(1).device
    met, found = threading.Barrier(4), []

    def ask() -> None:
        met.wait()
        peers = peers_of(name, "a question")
        found.append((peers, _peer_memory.memory_of(peers, device, 1)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(peers is found[0][0] and memory is found[0][1] for peers, memory in found)
    assert isinstance(found[0][1], _peer_memory.PeerMemory)


CHECKS = (
    calls_take_turns_without_an_end,
    memory_grows_up_to_its_limit,
    a_broken_group_is_reset,
    threads_that_ask_first_get_the_same_memory,
)
