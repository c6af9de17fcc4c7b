"""bench.gate on the CPU backend: its contenders against float64, and what it says of their times."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cleave.torch")

from bench_stand_ins import BetweenStandIn, TorchStandIn  # noqa: E402

from bench import bandwidth, gate, report  # noqa: E402

kinds = pytest.mark.parametrize("kind", gate.KINDS)


@kinds
@pytest.mark.parametrize("tokens", [3, 140])
def test_all_agree_with_float64(short, kind: str, tokens: int) -> None:
    layer = gate.Layer(kind, 256, 384, "cpu")
    x = layer.activations(tokens)
    found = layer.errors(layer.calls(x, gate.gate_and_quantize), x)
    assert list(found) == ["one kernel", "plain", "gated", "apart"]
    assert all(0 < error < gate.MOST_ERROR for error in found.values()), found
    assert found["plain"] < 0.003


@kinds
def test_the_product_takes_the_weights_in_turn(short, kind: str) -> None:
    layer = gate.Layer(kind, 128, 256, "cpu")
    x = layer.activations(4)
    layer.weights[1] = (torch.zeros_like(layer.weights[1][0]), layer.weights[1][1])
    plain = layer.calls(x, gate.gate_and_quantize)["plain"]
    assert plain(0).any() and not plain(1).any() and torch.equal(plain(2), plain(0))


def test_one_row(short) -> None:
    layer = gate.Layer("fp8 blocks", 128, 256, "cpu")
    row = gate.measure(layer, "a model", 5, gate.gate_and_quantize, BetweenStandIn(), 1, bandwidth=1.0)
    assert (row["job"], row["case"], row["kernel"]) == ("fp8 blocks", "a model, 5 tokens", "cpu")
    assert row["ratio"] == pytest.approx(min(row["gated_us"], row["apart_us"]) / row["us"])
    assert row["of_plain"] == pytest.approx(row["us"] / row["plain_us"])
    assert row["allowed"] == pytest.approx(1 + 4 * 5 * 128 / row["plain_us"])


def test_what_is_wrong_is_not_timed(short) -> None:
    layer = gate.Layer("bf16", 128, 256, "cpu")
    with pytest.raises(RuntimeError, match=r"bf16, a model, 5 tokens: wrong are apart \(1\)"):
        gate.measure(layer, "a model", 5, lambda h: (h[:, :128] * 0).to(gate.FP8).float(), BetweenStandIn(), 1, 1.0)


def test_three_bars() -> None:
    row = {"of_plain": 1.03, "ratio": 1.0, "allowed": 1.02}
    assert gate.is_met(row)
    assert not gate.is_met(row | {"of_plain": 1.04})
    assert not gate.is_met(row | {"ratio": 0.99})
    assert not gate.is_met(row | {"allowed": 1.05})
    assert gate.is_met(row | {"allowed": 1.05, "ratio": 1.02})


def test_goes_through_all_rows_once(
    short, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = gate.Layer
    monkeypatch.setattr(gate, "Layer", lambda kind, n, k: layer(kind, n, k, "cpu"))
    monkeypatch.setattr(gate, "MODELS", {"small": (128, 256), "large": (256, 256)})
    monkeypatch.setattr(gate, "Between", BetweenStandIn)
    monkeypatch.setattr(gate, "bytes_per_us", lambda arrays: 1e6)
    monkeypatch.setattr(gate, "TorchArrays", lambda device: TorchStandIn("cpu"))
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr("bench.machine.describe", lambda device: {"gpu": "a GPU", "commit": "abc"})
    options = ["--out", str(tmp_path / "gate.json"), "--tokens", "2", "--rounds", "1"]
    assert gate.main([*options, "--kinds", "bf16"]) == 0
    assert gate.main(options) == 0
    rows = report.load(tmp_path / "gate.json")["rows"]
    assert [(row["job"], row["case"]) for row in rows] == [
        (kind, f"{model}, 2 tokens") for kind in ("bf16", "fp8 rows", "fp8 blocks") for model in ("small", "large")
    ]
    out = capsys.readouterr().out
    assert "a GPU, memory gives 1.00 TB/s" in out
    assert out.count("large, 2 tokens  ") == 3 and "of 2 rows meet the bar" in out


def test_bandwidth_is_the_best_of_three(short, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bandwidth.bytes_per_us(TorchStandIn("cpu"), 1 << 12) > 0
    times = [2.0, 8.0, 5.0]  # a sum, a copy, filling
    monkeypatch.setattr(bandwidth.measure, "interleaved", lambda graphs, rounds: times)
    assert bandwidth.bytes_per_us(TorchStandIn("cpu"), 4000) == 4000 / 2
    times[1] = 3.0
    assert bandwidth.bytes_per_us(TorchStandIn("cpu"), 4000) == 8000 / 3
