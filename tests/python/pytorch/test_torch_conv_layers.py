"""cleave.torch's convolutions on CPU tensors."""

from __future__ import annotations

import copy
import io
import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from torch import nn  # noqa: E402
from torch_convolutions import channels_last, is_packed  # noqa: E402

import cleave.torch  # noqa: E402
from cleave.torch import Conv2d, ConvTranspose2d, conv, replace_convs  # noqa: E402

LAYERS = {
    "plain": nn.Conv2d(8, 6, 3),
    "strided": nn.Conv2d(8, 6, 3, stride=2, padding=1, bias=False),
    "by axis": nn.Conv2d(8, 6, (3, 2), stride=(2, 1), padding=(0, 1), dilation=(1, 2)),
    "same": nn.Conv2d(8, 6, (2, 3), padding="same"),
    "valid": nn.Conv2d(8, 6, 3, padding="valid"),
    "groups": nn.Conv2d(8, 6, 3, groups=2),
    "depthwise": nn.Conv2d(8, 8, 3, groups=8),
    "reflected": nn.Conv2d(8, 6, 3, padding=(1, 2), padding_mode="reflect"),
    "circular": nn.Conv2d(8, 6, 2, padding="same", padding_mode="circular"),
    "transposed": nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1),
    "transposed groups": nn.ConvTranspose2d(8, 6, 2, stride=(2, 3), groups=2, bias=False),
    "transposed dilated": nn.ConvTranspose2d(8, 6, 3, stride=2, dilation=2),
    "one axis": nn.Conv1d(8, 6, 3, stride=2, padding=1),
    "one axis same": nn.Conv1d(8, 6, 4, padding="same"),
    "three axes": nn.Conv3d(8, 6, (2, 3, 1), stride=2),
    "transposed one axis": nn.ConvTranspose1d(8, 6, 3, stride=3, output_padding=2),
    "transposed three axes": nn.ConvTranspose3d(8, 6, 2, stride=2),
}
layers = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def example(layer: nn.Module, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return channels_last(torch.randn(2, 8, *(9, 7, 5)[: len(layer.kernel_size)], dtype=dtype))


def from_conv(layer: nn.Module, **options: Any) -> nn.Module:
    """Made of a copy, since parameters are shared."""
    kind = getattr(cleave.torch, type(layer).__name__)
    return kind.from_conv(copy.deepcopy(layer), **options)


@layers
def test_does_what_torchs_does(layer: nn.Module) -> None:
    ours, torchs = from_conv(layer), copy.deepcopy(layer).double()
    x = example(layer).requires_grad_()
    double = x.detach().double().requires_grad_()
    y, expected = ours(x), torchs(double)
    assert is_packed(y)
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=1e-5)
    weights = torch.randn(y.shape)
    (y * weights).sum().backward()
    (expected * weights).sum().backward()
    pairs = zip((x, *ours.parameters()), (double, *torchs.parameters()), strict=True)
    for found, wanted in pairs:
        torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=0, atol=1e-4)


@layers
def test_unbatched_inputs(layer: nn.Module) -> None:
    ours, x = from_conv(layer), example(layer)[:1]
    assert torch.equal(ours(x[0]), ours(x)[0])


@layers
def test_shares_the_parameters(layer: nn.Module) -> None:
    conv = copy.deepcopy(layer).eval()
    before, names = list(conv.parameters()), list(conv.state_dict())
    values = [p.detach().clone() for p in before]
    ours = type(from_conv(layer)).from_conv(conv)
    assert not ours.training and list(ours.state_dict()) == names
    for after, parameter, value in zip(ours.parameters(), before, values, strict=True):
        assert after is parameter and torch.equal(after, value)
    assert is_packed(ours.weight)
    for name in ours._settings:
        assert getattr(ours, name) == getattr(layer, name)


@layers
def test_inputs_in_another_order(layer: nn.Module) -> None:
    x = example(layer).contiguous()
    with pytest.raises(ValueError, match=r"Pass input.*contiguous\(.* convert=True"):
        from_conv(layer)(x)
    ours = from_conv(layer, convert=True)
    assert torch.equal(ours(x), ours(channels_last(x)))
    assert "convert=True" in repr(ours)


def test_initial_values_are_torchs() -> None:
    made = []
    for kind in (nn.Conv2d, Conv2d):
        torch.manual_seed(1)
        made.append(kind(8, 6, 3))
    assert torch.equal(made[0].weight, made[1].weight) and torch.equal(made[0].bias, made[1].bias)
    assert is_packed(made[1].weight)
    assert Conv2d(8, 6, 3, device="meta").weight.device.type == "meta"


def test_state_dicts_are_torchs() -> None:
    conv, ours = nn.Conv2d(8, 6, 3), Conv2d(8, 6, 3)
    file = io.BytesIO()
    torch.save(conv.state_dict(), file)
    file.seek(0)
    ours.load_state_dict(torch.load(file))
    x = example(conv)
    assert is_packed(ours.weight)
    torch.testing.assert_close(ours(x), conv(x), rtol=0, atol=1e-5)
    conv.load_state_dict(ours.state_dict())
    assert torch.equal(copy.deepcopy(ours)(x), ours(x))


@pytest.mark.parametrize("size", [(17, 13), (18, 14), (2, 6, 17, 14)])
def test_output_size(size: tuple[int, ...]) -> None:
    conv = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1)
    x = example(conv)
    y = from_conv(conv)(x, output_size=size)
    torch.testing.assert_close(y, conv(x, output_size=size), rtol=0, atol=1e-5)


def test_output_padding_of_a_stride() -> None:
    with pytest.raises(ValueError, match=r"output_padding is \(2, 2\); it must be less than strid"):
        ConvTranspose2d(8, 6, 3, stride=2, dilation=3, output_padding=2)


@pytest.mark.parametrize("kind", ["Conv2d", "ConvTranspose2d"])
def test_autocast(kind: str) -> None:
    layer = getattr(cleave.torch, kind)(8, 6, 3)
    x = example(layer).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert x.grad.dtype == layer.weight.grad.dtype == layer.bias.grad.dtype == torch.float32
    torch.testing.assert_close(y.float(), layer(x), rtol=0, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    layer = Conv2d(8, 6, 3).to(dtype)
    assert is_packed(layer.weight)
    x = example(layer, dtype)
    expected = nn.functional.conv2d(x.double(), layer.weight.double(), layer.bias.double())
    torch.testing.assert_close(layer(x).double(), expected, rtol=2**-7, atol=1e-3)


@pytest.mark.parametrize("kind", ["plain", "transposed", "one axis"])
def test_gradients_of_the_dtype_that_the_weight_asks_for(kind: str) -> None:
    """Made in float32, and added up in it: not rounded to the weight's."""
    layer = from_conv(LAYERS[kind]).bfloat16()
    if not hasattr(layer.weight, "grad_dtype"):
        pytest.skip("this torch has no Tensor.grad_dtype")
    x = example(layer, torch.bfloat16)
    layer(x).square().sum().backward()
    rounded, layer.weight.grad = layer.weight.grad, None
    layer.weight.grad_dtype = torch.float32
    layer(x).square().sum().backward()
    once = layer.weight.grad.clone()
    assert once.dtype == torch.float32 and rounded.dtype == torch.bfloat16
    assert torch.equal(once.bfloat16(), rounded) and not torch.equal(once, rounded.float())
    layer(x).square().sum().backward()
    assert torch.equal(layer.weight.grad, 2 * once)


def test_compiles_as_one_graph() -> None:
    model = nn.Sequential(nn.Conv2d(8, 6, 3, 2), nn.ReLU(), nn.ConvTranspose2d(6, 8, 3, 2, output_padding=1))
    replace_convs(model)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for size in (9, 12):
        x = channels_last(torch.randn(2, 8, size, size + 1))
        parameters = list(model.parameters())
        expected = torch.autograd.grad((model(x) ** 2).mean(), parameters)
        found = torch.autograd.grad((compiled(x) ** 2).mean(), parameters)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_export() -> None:
    layer = Conv2d(8, 6, 3, 2, 1)
    x = example(layer)
    program = torch.export.export(layer, (x,))
    assert torch.equal(program.module()(x), layer(x))


# --- whole models ---


class Derived(nn.Conv2d):
    pass


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.head = Derived(16, 4, 1)
        self.tied = self.stem

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tied(x)
        return self.head(torch.cat([x, self.up(self.body(x))], 1))


def test_replace_convs() -> None:
    model = Model()
    x = channels_last(torch.randn(2, 3, 8, 8))
    expected, before = model(x), list(model.parameters())
    assert replace_convs(model) == ["stem", "tied", "body.0", "up"]
    assert type(model.stem) is Conv2d and model.tied is model.stem
    assert type(model.up) is ConvTranspose2d and type(model.head) is Derived
    assert all(p is q for p, q in zip(model.parameters(), before, strict=True))
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-5)
    assert replace_convs(model) == []


@pytest.mark.parametrize("skip", ["stem", ["stem", "tied"], ["*em"], lambda name, layer: layer.in_channels == 3])
def test_skipped_layers(skip: Any) -> None:
    model = Model()
    assert replace_convs(model, skip=skip) == ["body.0", "up"]


def test_a_skip_that_matches_no_layer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"skip has 'bodies\.0', .* body\.0"):
        replace_convs(Model(), skip=["stem", "bodies.0"])


# By name, and whether they are replaced.
NARROW = {
    "depthwise": (nn.Conv2d(64, 64, 3, groups=64), True),
    "depthwise large": (nn.Conv2d(64, 64, 7, stride=2, padding=3, groups=64), True),
    "depthwise one axis": (nn.Conv1d(64, 64, 4, padding=3, groups=64), True),
    "depthwise transposed": (nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1, groups=64), True),
    "too many taps": (nn.Conv2d(64, 64, (3, 8), groups=64), False),
    "too large a stride": (nn.Conv2d(64, 64, 3, stride=3, groups=64), False),
    "dilated": (nn.Conv2d(64, 64, 3, dilation=2, groups=64), False),
    "two filters a channel": (nn.Conv2d(64, 128, 3, groups=64), False),
    "three axes": (nn.Conv3d(64, 64, 3, padding=1, groups=64), False),
    "groups of 8": (nn.Conv2d(64, 64, 3, groups=8), False),
    "wide": (nn.Conv2d(64, 64, 3, groups=2), True),
}


def test_narrow_groups_are_left_to_torch_but_depthwise_layers() -> None:
    def make() -> nn.Module:
        return nn.ModuleDict({name: copy.deepcopy(layer) for name, (layer, _) in NARROW.items()})

    assert replace_convs(make()) == [name for name, (_, replaced) in NARROW.items() if replaced]
    assert "wide" not in replace_convs(make(), skip="wide")
    assert replace_convs(make(), narrow_groups=True) == list(NARROW)


@pytest.mark.parametrize("kind", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("size", [(28, 28), (7, 7), (512,)], ids=str)
def test_depthwise_layers_that_are_replaced_have_a_kernel(size: tuple[int, ...], dtype: str, kind: str) -> None:
    """On a GPU, of their own, in training, too."""
    options = {"groups": 96, "kind": kind, "dtype": dtype, "device": "h100"}
    for taps, stride in itertools.product(range(1, conv._MOST_TAPS + 1), range(1, conv._MOST_STRIDE + 1)):
        sizes = (32, size, 96, 96, taps)
        plan = cleave.plan_conv_problem(*sizes, stride=stride, padding=taps // 2, kernel="direct", **options)
        assert plan.kernel_name.startswith("direct")
    for unusual in ({"groups": 48, "stride": 5}, {"stride": 5}):  # the check can fail
        with pytest.raises(ValueError, match="direct"):
            cleave.plan_conv_problem(32, size, 96, 96, 3, kernel="direct", **(options | unusual))


def test_converting_models() -> None:
    model = Model()
    x = torch.randn(2, 3, 8, 8)
    expected = model(x)
    replace_convs(model, convert=True)
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-5)


def test_training_goes_on() -> None:
    """With the optimizer that was there before."""
    torchs, ours = Model(), Model()
    ours.load_state_dict(torchs.state_dict())
    optimizers = [torch.optim.SGD(m.parameters(), 0.05, momentum=0.9) for m in (torchs, ours)]
    x = channels_last(torch.randn(2, 3, 8, 8))
    for step in range(4):
        if step == 2:
            replace_convs(ours)
        for model, optimizer in zip((torchs, ours), optimizers, strict=True):
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
    for found, expected in zip(ours.parameters(), torchs.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_lone_layer_has_no_parent() -> None:
    with pytest.raises(ValueError, match=r"use ConvTranspose2d\.from_conv"):
        replace_convs(nn.ConvTranspose2d(8, 6, 3))
