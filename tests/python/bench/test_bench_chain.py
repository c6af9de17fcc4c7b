"""bench.chain on the CPU backend: its layers against float64, and what it prints."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cleave.torch")

from bench_stand_ins import TorchStandIn  # noqa: E402

from bench import chain  # noqa: E402

SIZES = chain.Sizes(hidden=256, qkv=384, intermediate=512)


def scaled_mm(a, b, scale_a, scale_b, *, out_dtype, use_fast_accum):
    """torch's, which the CPU may not have by rows."""
    return ((a.float() @ b.float()) * scale_a * scale_b).to(out_dtype)


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> dict[str, chain.Contender]:
    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    return chain.contenders([chain.make_weights(SIZES, "cpu", seed) for seed in range(2)], lambda function: function)


def test_all_agree_with_float64(entries: dict[str, chain.Contender]) -> None:
    found = chain.errors(entries, *chain.activations(SIZES, 7, "cpu"))
    assert not chain.wrong(entries, found), found
    assert found["torch bfloat16"] < found["cleave int8"] < 0.05
    assert chain.wrong(entries, found | {"cleave fp8": 0.2}) == ["cleave fp8"]
    assert chain.wrong(entries, found | {"cleave int8": float("nan")}) == ["cleave int8"]


def test_a_chain_goes_on_where_it_was(entries: dict[str, chain.Contender]) -> None:
    entry = entries["cleave fp8"]
    x, residual = chain.activations(SIZES, 5, "cpu")
    expected = entry.layer(*entry.layer(x, residual, entry.weights[0]), entry.weights[1])
    walked = chain.Chain(entry, x, residual)
    for i in range(4):
        walked(i)
    assert all(torch.equal(one, other) for one, other in zip(walked._state, expected, strict=True))


def test_measures_and_reports(entries: dict[str, chain.Contender]) -> None:
    x, residual = chain.activations(SIZES, 3, "cpu")
    us = chain.measured(TorchStandIn("cpu"), entries, x, residual, 1)
    assert us.keys() == entries.keys() and all(time > 0 for time in us.values())
    times = dict.fromkeys(entries, 100.0) | {"cleave fp8": 60.0}
    lines = chain.report(chain.Sizes(), 16, times, dict.fromkeys(entries, 0.01))
    assert lines[0] == "16 tokens: floor 51.5 us by bytes, 3.5 us by FLOP"
    assert lines[-1] == "  bar 62 us: met"
    lines = chain.report(chain.Sizes(), 2048, times | {"torch fp8": 62.0}, dict.fromkeys(entries, 0.01))
    assert lines[-1] == "  bar 1.05 of torch's fp8: 1.033, missed"


def test_products_of_the_plans_are_those_that_run(entries: dict[str, chain.Contender]) -> None:
    entry = entries["cleave fp8"]
    plans = list(entry.layer.plans(16, entry.weights[0]))
    assert len(plans) == 4 and all(plan.kernel_name for plan in plans)


def test_torch_compiles_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.testing import CompileCounter

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    counter = CompileCounter()
    entries = chain.contenders(
        [chain.make_weights(SIZES, "cpu", seed) for seed in range(3)],
        lambda function: torch.compile(function, fullgraph=True, dynamic=False, backend=counter),
    )
    x, residual = chain.activations(SIZES, 4, "cpu")
    for entry in entries.values():
        walked = chain.Chain(entry, x, residual)
        for i in range(6):
            walked(i)
    assert counter.frame_count == 3  # a function of ours, and two of torch
