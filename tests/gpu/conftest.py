"""Tests in this folder need a GPU and torch; elsewhere they are skipped, saying what is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import cleave


@pytest.fixture(autouse=True)
def gpu() -> None:
    torch = pytest.importorskip("torch")
    if cleave.device_count() == 0:
        pytest.skip("needs an NVIDIA GPU, and cleave finds none")
    if not torch.cuda.is_available():
        pytest.skip("needs torch with CUDA; this one has been built without")
    torch.manual_seed(0)


@pytest.fixture
def cudagraph_skips() -> Callable[[], int]:
    """How often torch.compile gave up a CUDA graph in this test."""
    import torch

    torch.compiler.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    return lambda: counters["inductor"]["cudagraph_skips"]


LINES_OF_AN_ERROR = 20


class NamesFailures:
    """As they happen: a run of thousands of tests on a lent machine may be cut off before its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._plugins.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            lines = report.longreprtext.splitlines()
            said = [line for line in lines if line.startswith("E ")][:LINES_OF_AN_ERROR]
            terminal.write_line("\n".join([f"\n{report.when} of {report.nodeid}: {lines[-1]}", *said]))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # where xdist's reports come together
        config.pluginmanager.register(NamesFailures(config))
