"""The operator in integrations/tritonbench, on the CPU, with a stand-in for what it takes of TritonBench."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from doc_snippets import ROOT

torch = pytest.importorskip("torch", minversion="2.10")

PACKAGE = "tritonbench.operators.cleave_gemm"  # TritonBench takes the operator's name from its module's
FOLDER = ROOT / "integrations" / "tritonbench" / "operators" / "cleave_gemm"


class BenchmarkOperator:
    """As the constructor leaves it, on a CPU."""

    def __init__(self, tb_args: Any, extra_args: Any = None) -> None:
        self.extra_args, self.device, self.dtype = extra_args, "cpu", torch.bfloat16


def registering(kind: str, registered: dict[str, list[Any]]) -> Callable[..., Any]:
    def register(**options: Any) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            registered.setdefault(kind, []).append((function.__name__, options))
            return function

        return decorate

    return register


@pytest.fixture
def registered() -> dict[str, list[Any]]:
    return {}


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch, registered: dict[str, list[Any]]) -> Iterator[Any]:
    stand_in = ModuleType("tritonbench.utils.triton_op")
    stand_in.BenchmarkOperator, stand_in.BenchmarkOperatorMetrics = BenchmarkOperator, object
    for kind in ("benchmark", "metric", "x_val"):
        setattr(stand_in, f"register_{kind}", registering(kind, registered))
    for name in ("tritonbench", "tritonbench.utils", "tritonbench.operators"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    spec = importlib.util.spec_from_file_location(
        PACKAGE, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    package = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, PACKAGE, package)
    spec.loader.exec_module(package)
    yield package.Operator
    sys.modules.pop(f"{PACKAGE}.operator", None)


def test_every_benchmark_computes_what_the_baseline_does(operator: Any, registered: dict[str, list[Any]]) -> None:
    torch.manual_seed(0)
    made = operator(argparse.Namespace(), ["--shapes", "16x24x2048", "5x8x64"])
    names = [name for name, _ in registered["benchmark"]]
    assert [name for name, options in registered["benchmark"] if options.get("baseline")] == ["torch_mm"]
    assert len(names) == 3
    inputs = list(made.get_input_iter())
    assert [made.get_x_val(pair) for pair in inputs] == [(16, 24, 2048), (5, 8, 64)]
    for a, b in inputs:
        baseline = made.torch_mm(a, b)
        assert baseline().dtype == torch.bfloat16
        assert all(made._get_accuracy(getattr(made, name)(a, b), baseline) for name in names)
        assert not made._get_accuracy(lambda: baseline() + 0.1, baseline)  # noqa: B023 - called at once
    assert made.flops("torch_mm", inputs[0], None) == 2 * 16 * 24 * 2048


def test_names_that_tritonbench_looks_up(operator: Any, registered: dict[str, list[Any]]) -> None:
    assert registered["metric"] == [("flops", {})] and registered["x_val"] == [("get_x_val", {"label": "(M, N, K)"})]
    assert "tflops" in operator.DEFAULT_METRICS and operator.DEFAULT_PRECISION == "bf16" and operator.FWD_ONLY


def test_shapes(operator: Any, capsys: Any) -> None:
    assert (128, 128, 16384) in operator(argparse.Namespace()).shapes
    with pytest.raises(SystemExit):
        operator(argparse.Namespace(), ["--shapes", "128x128"])
    assert "'128x128' is no M x N x K" in capsys.readouterr().err


def test_the_readme_names_every_benchmark(operator: Any, registered: dict[str, list[Any]]) -> None:
    readme = (ROOT / "integrations" / "tritonbench" / "README.md").read_text("utf-8")
    assert all(f"| `{name}` |" in readme for name, _ in registered["benchmark"])
