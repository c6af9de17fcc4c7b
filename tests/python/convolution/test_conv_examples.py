"""examples/resnet on the CPU: forward and backward through whole networks."""

from __future__ import annotations

from types import ModuleType

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import resnet_example  # noqa: E402


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return resnet_example.load(monkeypatch)


@pytest.mark.parametrize("model, convolutions", [("resnet50", 53), ("unet", 13), ("efficientnet", 81)])
def test_trains(train: ModuleType, capsys: pytest.CaptureFixture[str], model: str, convolutions: int) -> None:
    train.main(["--model", model, "--dtype", "float32", "--steps", "2"])
    out = capsys.readouterr().out
    assert f"{model}, {convolutions} convolutions" in out
    first, second = (line.split() for line in out.splitlines()[-2:])
    for before, after in zip(first[1:], second[1:], strict=True):
        assert float(after) < float(before)


def test_fails_on_wrong_gradients(train: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_convs = train.replace_convs

    def replace(model: torch.nn.Module) -> list[str]:
        with torch.no_grad():
            model.head.weight[0, 0] *= 1.5
        return replace_convs(model)

    monkeypatch.setattr(train, "replace_convs", replace)
    with pytest.raises(SystemExit, match="gradients are further off than torch's"):
        train.main(["--model", "unet", "--dtype", "float32"])


def test_our_resnet_has_torchvisions_parameters(train: ModuleType) -> None:
    """Those that its published checkpoints have, by name and shape."""
    model = train.resnet50()
    names = dict(model.named_parameters())
    assert len(names) == 161 and sum(p.numel() for p in names.values()) == 25557032
    assert names["layer4.0.downsample.0.weight"].shape == (2048, 1024, 1, 1)
    assert names["layer2.0.conv2.weight"].shape == (128, 128, 3, 3)
    assert model.layer2[0].conv2.stride == (2, 2)
