"""What contenders of a case make is compared: each result has to be a copy, since they write to the same operands."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from bench.operand_sets import Made  # noqa: E402
from bench.pool import Pool  # noqa: E402
from cleave.testing import grouped  # noqa: E402


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


@pytest.mark.parametrize("added", [False, True])
def test_a_result_outlives_the_next_one_in_the_same_memory(added: bool) -> None:
    operands = SimpleNamespace(out=torch.empty(4, 4), c=None)
    if added:
        operands.c = operands.out
    made = Made(grouped, "cpu")
    first = made.result_of(lambda: operands.out.fill_(1), operands)
    second = made.result_of(lambda: operands.out.fill_(2), operands)
    assert not torch.equal(first, second)


def test_so_does_one_of_the_pool() -> None:
    operands = SimpleNamespace(out=torch.empty(4, 4))
    first = Pool.result_of(lambda: operands.out.fill_(1), operands)
    second = Pool.result_of(lambda: operands.out.fill_(2), operands)
    assert not torch.equal(first, second)
