"""bench.training on the CPU backend: its steps against bfloat16's, and the bar."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cleave.torch")

from bench_stand_ins import InlineCompilers, TorchStandIn  # noqa: E402

from bench import report, training  # noqa: E402
from bench.chain import Sizes  # noqa: E402

TOKENS = 64


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, short: None) -> None:
    monkeypatch.setattr(training, "SIZES", {2048: Sizes(128, 192, 256), 4096: Sizes(128, 192, 128)})
    monkeypatch.setattr(training, "LAYERS", 1)
    monkeypatch.setattr(training, "HEADS", 8)
    monkeypatch.setattr(training, "VOCABULARY", 64)
    monkeypatch.setattr(training, "SEQUENCE", 32)


def measured(job: str, recipes=training.RECIPES) -> dict:
    return training.measured(TorchStandIn("cpu"), job, 2048, TOKENS, recipes, lambda model: model, 1)


@pytest.mark.parametrize("job", training.STEPS)
def test_one_row(job: str) -> None:
    row = measured(job)
    assert (row["job"], row["case"], row["hidden"]) == (job, "hidden 2048, 64 tokens", 2048)
    assert list(row["recipes"]) == ["blockwise", "rowwise"]
    for of in row["recipes"].values():
        assert of["us"] > 0 and 0 < of["error"] < training.MOST_ERROR


def test_linear_layers_but_the_head_are_in_8_bits() -> None:
    make = lambda: training.Model(training.SIZES[2048], 64)  # noqa: E731
    wide, narrow = (training.made(make, recipe, "cpu") for recipe in (training.BFLOAT16, "rowwise"))
    converted = [name for name, layer in narrow.named_modules() if isinstance(layer, training.Float8Linear)]
    assert len(converted) == 4 and "layers.0.linears.down" in converted
    assert all(torch.equal(p, q) for p, q in zip(wide.parameters(), narrow.parameters(), strict=True))


def test_attention_sees_its_own_sequence_and_what_came_before() -> None:
    layer = training.made(lambda: training.Layer(training.SIZES[2048], attends=True), training.BFLOAT16, "cpu")
    x = torch.randn(64, 128).bfloat16()
    changed = x.clone()
    changed[40] += 1
    rows = (layer(x) != layer(changed)).any(1).nonzero().flatten().tolist()
    assert rows[0] == 40 and rows[-1] == 63 and len(rows) > 12
    changed = x.clone()
    changed[5] += 1
    rows = (layer(x) != layer(changed)).any(1).nonzero().flatten().tolist()
    assert rows[0] == 5 and 16 < rows[-1] < 32


def test_a_whole_step_changes_parameters() -> None:
    arrays = TorchStandIn("cpu")
    step = training.WholeStep(arrays, training.SIZES[2048], TOKENS, "rowwise", lambda model: model)
    first, *_, last = [float(step()[0]) for _ in range(4)]
    assert last < first


def test_far_results_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = training.convert_to_float8_training

    def wrong(model, recipe, **options):
        with torch.no_grad():
            model.linears["down"].weight *= 1.5
        return convert(model, recipe, **options)

    monkeypatch.setattr(training, "convert_to_float8_training", wrong)
    with pytest.raises(RuntimeError, match=r"layer, hidden 2048: far from bfloat16 are rowwise \("):
        measured("layer", ["rowwise"])


def test_the_best_recipe_meets_the_bar() -> None:
    row = {"job": "layer", "case": "case", "hidden": 4096, "us": 130.0}
    row["recipes"] = {"blockwise": {"us": 110.0, "error": 0.07}, "rowwise": {"us": 100.0, "error": 0.06}}
    first, *_, last = training.lines(row)
    assert (first, last) == ("layer, case: bfloat16 130 us", "  asked 1.30: met")
    assert list(training.lines(row | {"us": 129.0}))[-1] == "  asked 1.30: missed"
    assert "asked" not in "".join(training.lines(row | {"job": "whole step"}))


def test_every_product_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    compilers = InlineCompilers()
    monkeypatch.setattr(training.pairs, "compilers", lambda: compilers)
    training.compile_products([2048], 16, ["rowwise"])
    assert compilers.submitted == [(2048, name, 16, "rowwise") for name in ("qkv", "o", "gate_up", "down")]


def test_goes_through_all_rows_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "compile_products", lambda *_: None)
    monkeypatch.setattr(training, "TorchArrays", lambda device: TorchStandIn("cpu"))
    monkeypatch.setattr(torch, "compile", lambda model, **options: model)
    monkeypatch.setattr("bench.machine.describe", lambda device: {"gpu": "a GPU", "commit": "abc"})
    options = ["--out", str(tmp_path / "training.json"), "--rounds", "1", "--tokens", "32", "--recipes", "rowwise"]
    assert training.main(options) == 0
    assert training.main([*options, "--whole"]) == 0
    rows = report.load(tmp_path / "training.json")["rows"]
    assert [(row["job"], row["hidden"]) for row in rows] == [(job, h) for job in training.STEPS for h in (2048, 4096)]
    assert capsys.readouterr().out.count("asked") == 2
