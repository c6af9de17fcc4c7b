"""The fuzzer on the CPU backend: short runs, and planted mistakes, which it makes small."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cleave  # noqa: E402
from tests.fuzz.draw import OPERATIONS, draw  # noqa: E402
from tests.fuzz.operand import bits  # noqa: E402
from tests.fuzz.problem import Problem, Target  # noqa: E402
from tests.fuzz.run import Failure, Fuzzer, Settings, summary  # noqa: E402
from tests.fuzz.trial import REPEATING, Place, explain, run  # noqa: E402

HERE = Target("cpu", small=True)


def fuzz(operation: str, count: int, **settings: Any):
    chosen = Settings(seed=7, count=count, operations=[operation], sharing=2, **settings)
    return Fuzzer(chosen, Place.of("cpu"), lambda _: None).run()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_random_problems(operation: str) -> None:
    report = fuzz(operation, 60)
    assert not report.failures, report.failures[0].script
    assert not report.refused, summary(report)
    assert report.count == 60


def test_a_problem_follows_from_its_number() -> None:
    for index in (0, 77, 1000):
        first, again = (draw(3, index, HERE) for _ in range(2))
        assert first == again
    assert draw(3, 5, HERE) != draw(4, 5, HERE)


def test_bounds_that_make_no_sense_are_drawn() -> None:
    drawn = [draw(1, index, HERE, ["grouped_gemm"]) for index in range(400)]
    assert sum(problem.groups.hostile is not None for problem in drawn) > 4


def test_a_gpu_serves_what_is_drawn() -> None:
    """By the driver that has no GPU; plans read no memory."""
    root = Path(__file__).parents[3]
    driver = root / "build" / "fake_driver"
    if not driver.exists():
        pytest.skip(f"needs {driver}, which `make build` makes")
    made = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.on_paper", "1500"],
        cwd=root,
        env=os.environ | {"LD_LIBRARY_PATH": str(driver)},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "sm90" in made.stdout and "portable" in made.stdout


# --- mistakes, planted ---


def without_the_last_k(real: Callable[..., Any]) -> Callable[..., Any]:
    def gemm(a: Any, b: Any, **options: Any) -> Any:
        last = a.shape[-1] - 1
        if last > 0 and (options.get("split_k_slices") or 1) <= last:
            a, b = a[..., :last], b[..., :last, :]
        return real(a, b, **options)

    return gemm


def without_the_bias(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays, **options: real(*arrays, **options | {"bias": None})


def one_element_too_far(real: Callable[..., Any]) -> Callable[..., Any]:
    """Beyond the end of wide outputs."""

    def call(*arrays: Any, **options: Any) -> Any:
        result, out = real(*arrays, **options), options.get("out")
        if out is not None and out.numel() and out.shape[-1] > 5:
            steps = zip(out.shape, out.stride(), strict=True)
            end = out.storage_offset() + sum((size - 1) * step for size, step in steps) + 1
            out.as_strided((1,), (1,), end).fill_(1)
        return result

    return call


def beyond_the_workspace(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arrays: Any, workspace: Any = None, **options: Any) -> Any:
        if workspace is not None:
            size = workspace.numel()
            workspace.as_strided((1,), (1,), workspace.storage_offset() + size).fill_(1)
        return real(*arrays, workspace=workspace, **options)

    return call


def with_a_wrong_scale(real: Callable[..., Any]) -> Callable[..., Any]:
    """The last row's scale is wrong."""

    def quantize(x: Any, *rest: Any, **options: Any) -> Any:
        results = real(x, *rest, **options)
        if results[1].numel():
            results[1][-1, -1] *= 1.0001
        return results

    return quantize


PLANTED = [
    ("gemm", "gemm", without_the_last_k),
    ("gemm", "gemm", one_element_too_far),
    ("scaled_gemm", "scaled_gemm", without_the_bias),
    ("scaled_gemm", "scaled_gemm", beyond_the_workspace),
    ("grouped_gemm", "grouped_gemm", one_element_too_far),
    ("conv", "conv2d", without_the_bias),
    ("quantize", "quantize", with_a_wrong_scale),
]


def planted(monkeypatch: Any, operation: str, function: str, mistake: Any) -> Failure:
    monkeypatch.setattr(cleave, function, mistake(getattr(cleave, function)))
    report = fuzz(operation, 200, every=8, most_failures=1, shrink_seconds=20.0)
    assert report.failures
    return report.failures[0]


@pytest.mark.parametrize(("operation", "function", "mistake"), PLANTED, ids=lambda x: getattr(x, "__name__", x))
def test_a_mistake_is_found_and_made_small(
    operation: str, function: str, mistake: Any, monkeypatch: Any, capsys: Any
) -> None:
    failure = planted(monkeypatch, operation, function, mistake)
    assert explain(run(failure.smallest, Place.of("cpu")))
    assert elements(failure.smallest) <= min(elements(failure.problem), 200)
    exec(compile(failure.script, "script", "exec"), {})
    assert "tensor(" in capsys.readouterr().out
    monkeypatch.undo()
    assert not explain(run(failure.smallest, Place.of("cpu")))


def test_a_second_call_that_differs_is_found(monkeypatch: Any) -> None:
    drawn: Any = (draw(7, index, HERE, ["gemm"]) for index in itertools.count())
    problem = next(x for x in drawn if x.seed % REPEATING == 0 and x.out_given and x.m * x.n)
    assert not explain(run(problem, Place.of("cpu")))
    real, times = cleave.gemm, itertools.count()

    def gemm(*arrays: Any, out: Any, **options: Any) -> Any:
        real(*arrays, out=out, **options)
        if next(times) == 1:
            bits(out)[(0,) * out.dim()] ^= 1
        return out

    monkeypatch.setattr(cleave, "gemm", gemm)
    assert "a second call gave 1 other" in explain(run(problem, Place.of("cpu")))


def elements(problem: Problem) -> int:
    """Elements of all operands."""
    return sum(x.length() - 2 * 64 for x in problem.call().operands)


def test_the_smallest_product_without_its_last_k(monkeypatch: Any) -> None:
    smallest: Any = planted(monkeypatch, "gemm", "gemm", without_the_last_k).smallest
    assert (smallest.m, smallest.n, smallest.k) == (1, 1, 2)
    assert (smallest.c, smallest.bias, smallest.activation) == (None, None, "none")
    assert smallest.batches == (None, None) and not smallest.gaps
