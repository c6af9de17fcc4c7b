"""Products whose rows do not depend on the batch, for a stretch of a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import _core


@contextmanager
def batch_invariant(promised: bool = True, *, sum_order: str | None = None) -> Iterator[None]:
    """A context in which products that do not pass `deterministic` are `deterministic="batch_invariant"`, or, with
    sum_order="k", have that (`cleave.gemm`), where K is not split by name.

    It includes torch.ops.cleave and the layers of cleave.torch. Products that cannot be batch invariant run as usual:
    those with an `a` contiguous along M (gradients of weights), groups of N or K, split_k_mode="stream_k", and
    convolutions. It applies to all threads of the process, as the environment variable CLEAVE_BATCH_INVARIANT=1 does
    (or =k) without the context; captured graphs stay as they are. May be nested: promised=False is for a stretch
    within that promises nothing.

        with cleave.batch_invariant():
            d = cleave.gemm(a, b)  # d[:7] has the bits of cleave.gemm(a[:7], b)
    """
    if not isinstance(promised, bool):
        raise TypeError(f"promised is {promised!r}; it must be True or False; the order of sums is sum_order")
    if sum_order and not promised:
        raise ValueError(f'sum_order is "{sum_order}", but promised is False; leave one of them out')
    before = _core.default_promise()
    _core.set_default_promise(promised, sum_order)
    try:
        yield
    finally:
        _core.set_default_promise(*before)
