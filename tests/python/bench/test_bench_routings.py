"""bench.routings on the CPU backend: routings, a row, and what Nsight Compute writes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cleave.torch")

from bench_stand_ins import BetweenStandIn  # noqa: E402

from bench import readme, report, routings  # noqa: E402

scalings = pytest.mark.parametrize("scaling", routings.SCALINGS)


def small(scaling: str) -> routings.Layer:
    return routings.Layer(4, 60, 128, 256, scaling, 3, "cpu")


def test_routings_differ_and_repeat() -> None:
    routing = routings.drawn(16, 500, 3)
    assert sum(routing) == 500 * routings.TOP_K and max(routing) <= 500
    assert routing == routings.drawn(16, 500, 3) != routings.drawn(16, 500, 4)
    assert routings.padded((0, 1, 128, 129)) == (0, 128, 128, 256)


@scalings
def test_one_row(scaling: str) -> None:
    layer = small(scaling)
    row = routings.measured(layer, BetweenStandIn(), 1)
    assert row["case"] == f"4 experts, 60 tokens, 128 x 256, scales {scaling}" and row["routings"] == 3
    assert row["fastest_us"] <= row["us"] <= row["slowest_us"]
    assert list(row["peers"]) == ["cleave_bfloat16"] and row["host_us"] > 0
    text = routings.markdown({"gpu": "none"}, [row | {"sm_busy": 97.5}])
    assert "for 3 routings" in text and "cleave_bfloat16 / ours" in text and "97.50" in text


@scalings
def test_a_routing_decides_what_is_computed(scaling: str) -> None:
    layer = small(scaling)
    first, other = (60, 0, 30, 30), (1, 2, 200, 7)
    layer.check(first)
    kept = layer.operands["cleave"].out.clone()
    layer.check(other)
    assert not torch.equal(kept, layer.operands["cleave"].out)


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = small("row")
    monkeypatch.setitem(layer.calls, "cleave", lambda: None)
    with pytest.raises(RuntimeError, match="4 experts, 60 tokens, 128 x 256, scales row: wrong for experts of"):
        routings.measured(layer, BetweenStandIn(), 1)


def test_what_ncu_writes() -> None:
    lines = [
        "==PROF== Connected to process 1",
        f'"ID","Kernel Name","{routings.SM_BUSY}"',
        '"","","%"',
        '"0","cleave_a","90.5"',
        '"1","cleave_b","95.5"',
    ]
    assert routings.average(lines) == 93.0
    assert routings.average(["==ERROR== no permission"]) is None


def test_the_results_that_are_kept() -> None:
    kept = readme.ROOT / "bench" / "results" / "routings.json"
    result = report.load(kept)
    assert len(result["rows"]) == len(routings.LAYERS) * len(routings.SCALINGS)
    assert routings.markdown(result["machine"], result["rows"]) == kept.with_suffix(".md").read_text()
