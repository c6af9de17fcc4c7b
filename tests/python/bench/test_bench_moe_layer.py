"""bench.moe_layer on the CPU backend: a layer of experts against float64, its steps, and the bar."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cleave.torch")

from bench_stand_ins import BetweenStandIn, TorchStandIn  # noqa: E402

from bench import moe_layer, report  # noqa: E402

SIZES = moe_layer.Sizes(5, 2, 256, 128)
kinds = pytest.mark.parametrize("kind", ["fp8 blocks", "fp8 rows"])


@kinds
def test_one_row(kind: str) -> None:
    layer = moe_layer.Layer(kind, SIZES, "cpu")
    row = moe_layer.measure(layer, 30, BetweenStandIn(), 1, bandwidth=1e3)
    assert (row["job"], row["case"]) == (kind, "5 experts, top 2, 256 x 128, 30 tokens")
    assert 0 < row["error"] < moe_layer.MOST_ERROR["8 bits"]
    assert row["us"] == min(row["forms"].values())
    forms = [name for name, form in moe_layer.FORMS.items() if kind == "fp8 blocks" or form.first == "gated"]
    assert list(row["forms"]) == ["steps apart", *forms]
    assert list(row["steps"]) == ["quantise x", "sort", "gather", "first", "quantise", "second", "combine"]
    assert all(us > 0 for us in (*row["steps"].values(), row["products_us"]))
    assert len(list(layer.plans(30))) == 1 + len(row["forms"])


@kinds
def test_all_forms_are_one_layer(kind: str) -> None:
    layer = moe_layer.Layer(kind, SIZES, "cpu")
    given = layer.routed(12)
    made = [moe_layer.run(steps, given) for steps in layer.forms().values()]
    for values in made:
        assert values.keys() >= given.keys() and values["y"].shape == (12, SIZES.hidden)
        torch.testing.assert_close(values["y"], made[0]["y"], rtol=0.1, atol=0.02)
    assert "y" not in given
    assert "h" not in moe_layer.run(layer.forms()["steps apart"], given, until="quantise")


def test_bytes_are_of_experts_that_are_hit() -> None:
    layer = moe_layer.Layer("fp8 blocks", SIZES, "cpu")
    scales = 2 * 2 + 2 * 1  # blocks of 128x128
    of_one = 3 * 128 * 256 + 4 * scales
    assert layer.hit_bytes({"ids": torch.tensor([[0, 3], [3, 0]])}) == 2 * of_one
    assert layer.hit_bytes({"ids": torch.arange(5)}) == 5 * of_one


def test_a_wrong_layer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = moe_layer.Layer("fp8 blocks", SIZES, "cpu")
    forms = layer.forms()
    forms["steps apart"]["combine"] = lambda v: v.update(y=v["parts"][: len(v["ids"])])
    monkeypatch.setattr(layer, "forms", lambda: forms)
    with pytest.raises(RuntimeError, match=r"5 experts, top 2, 256 x 128, 30 tokens: wrong are steps apart \("):
        moe_layer.measure(layer, 30, BetweenStandIn(), 1, 1e3)


def test_the_bar_is_of_the_larger_one() -> None:
    row = {"job": "fp8 blocks", "us": 118.0, "floor_us": 100.0, "products_us": 80.0, "form": "steps apart"}
    row |= {"case": "case", "forms": {"steps apart": 118.0}, "steps": {"first": 60.0, "second": 20.0}}
    assert moe_layer.most(row) == pytest.approx(118.0)
    assert moe_layer.most(row | {"products_us": 200.0}) == pytest.approx(226.0)
    first, forms, steps = moe_layer.lines(row)
    assert first.endswith("at most 118.0 is asked: met")
    assert (forms, steps) == ("  forms: steps apart 118.0", "  steps: first 60.0, second 20.0")
    (line,) = moe_layer.summary([row, row | {"us": 119.0}])
    assert line.startswith("fp8 blocks: 1 of 2 rows meet the bar, in geomean 1.004")


def test_goes_through_all_rows_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = moe_layer.Layer
    monkeypatch.setattr(moe_layer, "Layer", lambda kind, sizes: layer(kind, sizes, "cpu"))
    monkeypatch.setattr(moe_layer, "SIZES", (SIZES, moe_layer.Sizes(3, 1, 128, 128)))
    monkeypatch.setattr(moe_layer, "Between", BetweenStandIn)
    monkeypatch.setattr(moe_layer, "bytes_per_us", lambda arrays: 1e6)
    monkeypatch.setattr(moe_layer, "TorchArrays", lambda device: TorchStandIn("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr("bench.machine.describe", lambda device: {"gpu": "a GPU", "commit": "abc"})
    path = tmp_path / "moe_layer.json"
    for tokens in ("4", "9"):
        assert moe_layer.main(["--out", str(path), "--rounds", "1", "--tokens", "4", tokens]) == 0
    cases = [row["case"] for row in report.load(path)["rows"]]
    assert cases == [f"{sizes}, {tokens} tokens" for tokens in (4, 9) for sizes in moe_layer.SIZES]
    assert capsys.readouterr().out.count("  steps: quantise x") == 4
