"""Products whose rows do not depend on the batch, for a stretch of a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import _core


@contextmanager
def batch_invariant(promised: bool = True) -> Iterator[None]:
    """Within it, products promise what `deterministic="batch_invariant"` says, unless they pass `deterministic`.

    So do torch.ops.cleave and the layers of cleave.torch. Products that cannot promise it are made as ever: with an `a`
    contiguous along M (a weight's gradient), groups of N or K, split_k_mode="stream_k", convolutions. It holds for all
    threads of the process, from the environment variable CLEAVE_BATCH_INVARIANT=1 without it; graphs keep what they
    were captured with. May be nested.

        with cleave.batch_invariant():
            d = cleave.gemm(a, b)  # d[:7] has the bits of cleave.gemm(a[:7], b)
    """
    before = _core.batch_invariant()
    _core.set_batch_invariant(promised)
    try:
        yield
    finally:
        _core.set_batch_invariant(before)
