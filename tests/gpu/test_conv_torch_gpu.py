"""torch.ops.cleave's convolutions and cleave.torch's layers of them on CUDA tensors.

`test_torch_gpu.py` compares every operator with the CPU's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import resnet_example  # noqa: E402
from torch import nn  # noqa: E402
from torch_convolutions import CASES, channels_last, integers, reference  # noqa: E402

from cleave.torch import Conv2d, replace_convs  # noqa: E402

ops = torch.ops.cleave

# Large enough for all kernels, with channels that TMA can address; as CASES of torch_convolutions.
LARGE_CASES = {
    "3x3": ((8, 64, 28, 28), (128, 64, 3, 3), (1,), (1,), (1,), 1),
    "3x3 stride 2": ((8, 64, 29, 27), (128, 64, 3, 3), (2,), (1,), (1,), 1),
    "1x1 stride 2": ((8, 256, 28, 28), (128, 256, 1, 1), (2,), (0,), (1,), 1),
    "7x7 stride 2": ((4, 8, 64, 64), (64, 8, 7, 7), (2,), (3,), (1,), 1),
    "stride 3 dilation 2": ((4, 64, 33, 31), (64, 64, 3, 3), (3,), (2,), (2,), 1),
    "asymmetric": ((4, 64, 30, 30), (64, 64, 3, 3), (2,), (0, 0, 1, 1), (1,), 1),
    "groups": ((4, 64, 28, 28), (128, 32, 3, 3), (2,), (1,), (1,), 2),
    "depthwise": ((4, 64, 28, 28), (64, 1, 3, 3), (1,), (1,), (1,), 64),
    "three axes": ((2, 32, 9, 14, 14), (64, 32, 3, 3, 3), (2,), (1,), (1,), 1),
}
ALL_CASES = CASES | {f"large {name}": case for name, case in LARGE_CASES.items()}
every_case = pytest.mark.parametrize("case", ALL_CASES.values(), ids=ALL_CASES)
large_cases = pytest.mark.parametrize("case", LARGE_CASES.values(), ids=LARGE_CASES)
MODES = ("auto", "serial", "parallel", "stream_k")


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_training_is_exact(case: tuple[Any, ...], dtype: torch.dtype) -> None:
    """Forward and gradients of whole numbers, float32 results, against the host's."""
    x_size, w_size, *geometry = case
    x, w = integers(*x_size).double().requires_grad_(), integers(*w_size).double().requires_grad_()
    y = reference(x, w, case)
    dy = integers(*y.shape).double()
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    given = [channels_last(t.detach()).to("cuda", dtype) for t in (x, w, dy)]
    wide = {"out_dtype": torch.float32}
    for found, exact in (
        (ops.conv.full(*given[:2], None, *geometry, **wide), y),
        (ops.conv_dgrad.full(x_size, *given[1:], *geometry, **wide), dx),
        (ops.conv_wgrad.full(given[0], w_size, given[2], *geometry, **wide), dw),
    ):
        assert torch.equal(found.double().cpu(), exact)


@large_cases
@pytest.mark.parametrize("mode", MODES)
def test_split_k(case: tuple[Any, ...], mode: str) -> None:
    x_size, w_size, *geometry = case
    draw = {"dtype": torch.bfloat16, "device": "cuda"}
    x, w = integers(*x_size, **draw), integers(*w_size, **draw)
    dy = integers(*ops.conv(x, w, None, *geometry).shape, **draw)
    products = [(ops.conv.full, (x, w, None)), (ops.conv_wgrad.full, (x, w_size, dy))]
    if mode != "stream_k" or geometry[-1] == 1:  # which a dgrad of many groups may refuse
        products.append((ops.conv_dgrad.full, (x_size, w, dy)))
    for op, arguments in products:
        none, split = (op(*arguments, *geometry, out_dtype=torch.float32, split_k_mode=name) for name in ("none", mode))
        assert torch.equal(split, none)


@large_cases
def test_gradients_of_random_numbers(case: tuple[Any, ...]) -> None:
    """With bias, C and ReLU, against float64."""
    x_size, w_size, *geometry = case
    leaves = [torch.randn(size, device="cuda") for size in (x_size, w_size, w_size[:1])]
    given = [channels_last(t) if t.dim() > 1 else t for t in (t.bfloat16() for t in leaves)]
    wanted = [t.double().requires_grad_() for t in given]
    given = [t.requires_grad_() for t in given]
    y = reference(*wanted[:2], case)
    expected = (y + wanted[2].view(-1, *[1] * (y.dim() - 2))).relu()
    found = ops.conv.full(*given, *geometry, activation="relu", out_dtype=torch.float32)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-2)
    weights = torch.randn(y.shape, device="cuda")
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    for t, u in zip(given, wanted, strict=True):
        error = (t.grad.double() - u.grad).norm() / u.grad.norm()
        assert error < 1e-2


# --- layers ---


class Network(nn.Module):
    """Strided, grouped and transposed convolutions around a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(8, 32, 7, 2, 3)
        self.down = nn.Conv2d(32, 64, 3, 2, 1, groups=2)
        self.up = nn.ConvTranspose2d(64, 32, 3, 2, 1, output_padding=1)
        self.head = nn.Conv2d(64, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).relu()
        return self.head(torch.cat([x, self.up(self.down(x).relu())], 1))


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    model = Network().to("cuda", dtype, memory_format=torch.channels_last)
    assert len(replace_convs(model, narrow_groups=True)) == 4
    return model


def images(dtype: torch.dtype = torch.float32, count: int = 4) -> torch.Tensor:
    return channels_last(torch.randn(count, 8, 32, 40, device="cuda")).to(dtype)


def step(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    y = model(x)
    return [y, *torch.autograd.grad((y.float() ** 2).mean(), list(model.parameters()))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_network_is_torchs(dtype: torch.dtype) -> None:
    model, x = network(dtype), images(dtype)
    exact = Network().to("cuda", torch.float64)
    exact.load_state_dict(model.state_dict())
    for found, expected in zip(step(model, x), step(exact, x.double()), strict=True):
        error = (found.double() - expected).norm() / expected.norm()
        assert error < (5e-3 if dtype == torch.float32 else 3e-2)  # float32 products are tf32


def test_steps_repeat_bit_by_bit() -> None:
    model, x = network(torch.bfloat16), images(torch.bfloat16)
    first = step(model, x)
    for _ in range(10):
        for found, expected in zip(step(model, x), first, strict=True):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replays_follow_the_input(dtype: torch.dtype) -> None:
    """Bit by bit what the same step gives outside the graph."""
    model, x = network(dtype), images(dtype)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(model, x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(model, x)
    for _ in range(5):
        x.copy_(torch.randn_like(x))
        graph.replay()
        for found, expected in zip(captured, step(model, x), strict=True):
            assert torch.equal(found, expected)


def test_autocast() -> None:
    model, x = network(), images()
    with torch.autocast("cuda", torch.bfloat16):
        y = model(x)
    assert y.dtype == torch.bfloat16
    y.float().square().mean().backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    torch.testing.assert_close(y.float(), model(x), rtol=0, atol=0.1)


def test_training_goes_on_as_torchs_does() -> None:
    torchs = Network().to("cuda", memory_format=torch.channels_last)
    ours = copy.deepcopy(torchs)
    replace_convs(ours)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (torchs, ours)]
    x = images()
    for _ in range(10):
        losses = []
        for model, optimizer in zip((torchs, ours), optimizers, strict=True):
            optimizer.zero_grad()
            loss = (model(x) - x.mean()).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[1] == pytest.approx(losses[0], rel=1e-2)


# --- torch.compile ---


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_training(mode: str, cudagraph_skips: Callable[[], int]) -> None:
    model = network()
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    for _ in range(5):
        x = images()
        torch.compiler.cudagraph_mark_step_begin()
        y = compiled(x)
        found = [
            y.clone(),
            *torch.autograd.grad((y**2).mean(), list(model.parameters())),
        ]
        torch.testing.assert_close(found, step(model, x), rtol=1e-2, atol=1e-4)
    assert cudagraph_skips() == 0


# --- the example ---


@pytest.mark.parametrize("model", ["resnet50", "unet"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_example_trains(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: str, dtype: str
) -> None:
    train = resnet_example.load(monkeypatch)
    size = ["--images", "16", "--size", "128", "--steps", "3"]
    train.main(["--model", model, "--dtype", dtype, *size])
    assert "in a graph" in capsys.readouterr().out


def test_images_of_three_colours() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 16, 7, 2, 3).to("cuda", torch.float16, memory_format=torch.channels_last)
    x = channels_last(torch.randn(2, 3, 40, 44, device="cuda")).half().requires_grad_()
    results = []
    for conv in (Conv2d.from_conv(layer), layer):
        y = conv(x)
        results.append([y, *torch.autograd.grad(y.float().sum(), (x, layer.weight, layer.bias))])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2 * expected.abs().max().item())
