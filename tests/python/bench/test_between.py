"""Timing in graphs, on a stand-in for torch's: what a graph replays has to be there."""

from __future__ import annotations

import gc
import types
import weakref
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")

from bench.between import Between  # noqa: E402


class Operands:
    """A peer's, which serves a case of its own: nobody else has them."""


def test_a_sample_keeps_what_its_graph_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = types.SimpleNamespace(capture_begin=lambda: None, capture_end=lambda: None, replay=lambda: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: nothing)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    between = Between.__new__(Between)
    between._stream = types.SimpleNamespace(synchronize=lambda: None)
    between._small = torch.zeros(1)
    operands, others = Operands(), Operands()
    kept, dropped = weakref.ref(operands), weakref.ref(others)
    sample = between.graph(lambda i, own=operands: None, 2)
    del operands, others
    gc.collect()
    assert dropped() is None
    assert kept() is not None
    del sample
    gc.collect()
    assert kept() is None
