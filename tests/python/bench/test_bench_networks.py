"""bench.networks on the CPU backend, with networks of a few layers: its contenders, and the bars."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch")

from bench_stand_ins import InlineCompilers, TorchStandIn  # noqa: E402
from torch import nn  # noqa: E402

from bench import networks, report  # noqa: E402


def tiny() -> nn.Module:
    """A depthwise layer among others, and one whose narrow groups are torch's."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 16, 3, padding=1, groups=2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, networks.CLASSES),
    )


@pytest.fixture(autouse=True)
def small(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    of_pixels = lambda: nn.Conv2d(3, networks.CLASSES, 3, padding=1)  # noqa: E731
    made = {
        "tiny": networks.Network(tiny, 1.1, images=2, size=8),
        "pixels": networks.Network(lambda: nn.Sequential(of_pixels()), 1.0, pixelwise=True, images=2, size=8),
    }
    monkeypatch.setattr(networks, "NETWORKS", made)


@pytest.mark.parametrize("name", ["tiny", "pixels"])
def test_one_row(name: str) -> None:
    compiled = []
    row = networks.measured(TorchStandIn("cpu"), name, lambda model: compiled.append(model) or model, 1)
    assert list(row["contenders"]) == ["cleave", "cleave compiled", "torch", "torch compiled"]
    ours, theirs = (min(us for key, us in row["contenders"].items() if key.startswith(who)) for who in ("cl", "to"))
    assert (row["us"], row["ratio"]) == (ours, pytest.approx(theirs / ours))
    assert row["case"] == f"{name}, 2 images of 8x8"
    convs = [[type(layer) is networks.cleave.torch.Conv2d for layer in model if "Conv" in repr(layer)]
             for model in compiled]  # fmt: skip
    assert convs == ([[True, True, False, True, True], [False] * 5] if name == "tiny" else [[True], [False]])


def test_other_losses_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_convs = networks.cleave.torch.replace_convs

    def wrong(model: nn.Module) -> list[str]:
        with torch.no_grad():
            model[-1].weight *= 30
        return replace_convs(model)

    monkeypatch.setattr(networks.cleave.torch, "replace_convs", wrong)
    with pytest.raises(RuntimeError, match=r"tiny: losses are other than torch's, .*: cleave, cleave compiled of"):
        networks.measured(TorchStandIn("cpu"), "tiny", lambda model: model, 1)


def test_training_goes_on_in_each_step() -> None:
    steps = networks.steps_of(TorchStandIn("cpu"), networks.NETWORKS["tiny"], lambda model: model)
    first, *_, last = [float(steps["cleave"]()) for _ in range(12)]
    assert last < first


def test_each_replaced_layer_is_compiled_once() -> None:
    found = networks.convolutions(networks.NETWORKS["tiny"])
    assert [shape for _, shape in found] == [(2, 3, 8, 8), (2, 16, 4, 4), (2, 16, 4, 4)]
    layers = [layer for layer, _ in found.values()]
    assert [layer.groups for layer in layers] == [1, 16, 1] and all(layer.weight.is_meta for layer in layers)


def test_layers_are_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """In all three directions."""
    compilers = InlineCompilers()
    monkeypatch.setattr(networks.pairs, "compilers", lambda: compilers)
    networks.compile_convolutions(["tiny", "pixels"])
    assert len(compilers.submitted) == 4


def test_bars_and_summary() -> None:
    row = {"case": "case", "network": "tiny", "us": 1000.0, "form": "cleave", "best": "torch", "ratio": 1.1}
    row["contenders"] = {"cleave": 1000.0, "torch": 1100.0}
    assert list(networks.lines(row)) == [
        "case: cleave 1.00 ms, torch takes 1.100 of it; asked 1.10: met",
        "  cleave 1.00 ms, torch 1.10 ms",
    ]
    assert next(networks.lines(row | {"ratio": 1.09})).endswith("missed")
    assert networks.summary([row, row | {"ratio": 0.9}]).endswith("geomean 0.995 of 2 networks")


def test_goes_through_all_networks_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(networks, "compile_convolutions", lambda names: print(len(names), "to compile"))
    monkeypatch.setattr(networks, "TorchArrays", lambda device: TorchStandIn("cpu"))
    monkeypatch.setattr(torch, "compile", lambda model, **options: model)
    monkeypatch.setattr("bench.machine.describe", lambda device: {"gpu": "a GPU", "commit": "abc"})
    options = ["--out", str(tmp_path / "networks.json"), "--rounds", "1"]
    assert networks.main([*options, "--networks", "pixels"]) == 0
    assert networks.main(options) == 0
    assert [row["network"] for row in report.load(tmp_path / "networks.json")["rows"]] == ["pixels", "tiny"]
    out = capsys.readouterr().out
    assert out.count("1 to compile") == 2 and out.count("asked") == 2 and out.count("geomean") == 2
