"""The fuzzer on the GPU, for a few seconds; `python -m tests.fuzz --seconds 600` for more."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.fuzz.draw import OPERATIONS  # noqa: E402
from tests.fuzz.run import Fuzzer, Settings, summary  # noqa: E402
from tests.fuzz.trial import Place  # noqa: E402


@pytest.mark.parametrize("operation", OPERATIONS)
def test_random_problems(operation: str) -> None:
    settings = Settings(seed=11, count=64, operations=[operation], sharing=16, small=True)
    report = Fuzzer(settings, Place.of("cuda"), lambda _: None).run()
    assert not report.failures, report.failures[0].script
    assert not report.refused, summary(report)
