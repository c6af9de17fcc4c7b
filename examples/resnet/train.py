"""Trains ResNet-50, a small U-Net or a network like EfficientNet-B0 with Cleave's convolutions, and beside it with
torch's.

    python examples/resnet/train.py
    python examples/resnet/train.py --model unet --dtype float32 --images 8 --size 256

The models are the same but for cleave.torch.replace_convs, start with the same random weights and
see the same images. The first step's loss and gradients are compared with those of float64; the
script fails if Cleave's are further off than torch's by more than chance explains. On a GPU it
then times a training step of both, eagerly and as a CUDA graph.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from efficientnet import EfficientNet
from resnet50 import resnet50
from torch import Tensor, nn
from unet import UNet

from cleave.torch import replace_convs

CLASSES = 10

# How much further than torch's gradients ours may be from float64's: both are off by roundings,
# which a deep network of random weights amplifies, each in its way.
MOST_RATIO = 2.0
# Share of a gradient's norm that is not worth comparing.
LEAST_ERROR = 1e-5
# The first factor of each residual branch's last normalisation: with torch's 1, signals would grow
# from block to block, and roundings with them.
BRANCH_FACTOR = 0.2
# Images that float64 is given, which a GPU may be slow at.
COMPARED_IMAGES = 8


@dataclass(frozen=True)
class Step:
    """A loss and the gradients of all parameters, in float64."""

    loss: float
    gradients: list[Tensor]

    def error(self, exact: Step) -> float:
        """The error of all gradients as one vector, relative to its norm."""
        pairs = list(zip(self.gradients, exact.gradients, strict=True))
        off = sum(float((found - wanted).square().sum()) for found, wanted in pairs)
        return (off / sum(float(wanted.square().sum()) for _, wanted in pairs)) ** 0.5


def make_model(name: str) -> nn.Module:
    if name == "unet":
        return UNet(classes=CLASSES)
    if name == "efficientnet":
        return EfficientNet(CLASSES)
    model = resnet50(CLASSES)
    for place, layer in model.named_modules():
        if place.endswith("bn3"):
            nn.init.constant_(layer.weight, BRANCH_FACTOR)
    return model


def make_data(options: argparse.Namespace, device: str) -> tuple[Tensor, Tensor]:
    """Noisy images of discs; labels are their brightness, of the image or of each pixel."""
    generator = torch.Generator().manual_seed(1)
    axis = torch.linspace(-1, 1, options.size)
    centre = 0.5 * torch.randn(options.images, 2, 1, 1, generator=generator)
    inside = (axis[:, None] - centre[:, 0]) ** 2 + (axis - centre[:, 1]) ** 2 < 0.3
    label = torch.randint(1, CLASSES, (options.images,), generator=generator)
    mask = inside * label[:, None, None]
    noise = torch.randn(options.images, 3, options.size, options.size, generator=generator)
    x = noise + mask[:, None] / CLASSES * 4
    x = x.to(device, memory_format=torch.channels_last)
    return x, (mask if options.model == "unet" else label).to(device)


def loss_of(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    scores = model(x)
    if scores.dtype != torch.float64:
        scores = scores.float()
    return nn.functional.cross_entropy(scores, target)


def first_step(model: nn.Module, x: Tensor, target: Tensor) -> Step:
    """Leaves the model as it is."""
    model = copy.deepcopy(model)
    loss = loss_of(model, x.to(next(model.parameters()).dtype), target)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return Step(loss.item(), [gradient.double() for gradient in gradients])


def compare(models: dict[str, nn.Module], x: Tensor, target: Tensor) -> None:
    """Both with float64, whose weights are theirs."""
    exact = first_step(copy.deepcopy(models["torch"]).double(), x, target)
    steps = {name: first_step(model, x, target) for name, model in models.items()}
    print(f"          loss        error of all gradients\nfloat64   {exact.loss:.6f}")
    errors = {name: step.error(exact) for name, step in steps.items()}
    for name, step in steps.items():
        print(f"{name:8}  {step.loss:.6f}    {errors[name]:.1e}")
    if not errors["cleave"] <= MOST_RATIO * max(errors["torch"], LEAST_ERROR):  # NaN, too
        raise SystemExit(f"gradients are further off than torch's by more than {MOST_RATIO}x")


class Trainer:
    def __init__(self, model: nn.Module, x: Tensor, target: Tensor, rate: float):
        self._model, self._target = model, target
        self._x = x.to(next(model.parameters()).dtype)
        self._optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)

    def step(self) -> Tensor:
        """The loss before it."""
        self._optimizer.zero_grad(set_to_none=False)
        loss = loss_of(self._model, self._x, self._target)
        loss.backward()
        self._optimizer.step()
        return loss.detach()


def milliseconds(step: Callable[[], object], repetitions: int = 20) -> float:
    """The time of one step of many in a row."""
    step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repetitions):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repetitions * 1e3


def captured(step: Callable[[], object]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def main(arguments: Sequence[str] | None = None) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = device == "cuda"
    parser = argparse.ArgumentParser(description="Trains a network of convolutions.")
    parser.add_argument("--model", choices=("resnet50", "unet", "efficientnet"), default="resnet50")
    parser.add_argument(
        "--dtype", choices=("float32", "float16", "bfloat16"), default="bfloat16" if on_gpu else "float32"
    )
    parser.add_argument("--images", type=int, default=64 if on_gpu else 8, help="of a step")
    parser.add_argument("--size", type=int, default=224 if on_gpu else 32, help="in pixels")
    parser.add_argument("--steps", type=int, default=10 if on_gpu else 2)
    parser.add_argument("--rate", type=float, default=0.01)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    x, target = make_data(options, device)
    torchs = make_model(options.model).to(device, getattr(torch, options.dtype), memory_format=torch.channels_last)
    models = {"torch": torchs, "cleave": copy.deepcopy(torchs)}
    replaced = replace_convs(models["cleave"])
    print(
        f"{options.model}, {len(replaced)} convolutions, {options.images} images of "
        f"{options.size}x{options.size}, {options.dtype}, on {device}"
    )
    compare(models, x[:COMPARED_IMAGES], target[:COMPARED_IMAGES])

    trainers = {name: Trainer(model, x, target, options.rate) for name, model in models.items()}
    print("\nstep  " + "".join(f"{name:>10}" for name in trainers))
    for step in range(options.steps):
        losses = [trainer.step().item() for trainer in trainers.values()]
        print(f"{step:4}  " + "".join(f"{loss:10.6f}" for loss in losses))

    if on_gpu:
        print("\nms per step, forward, backward and SGD")
        for name, trainer in trainers.items():
            eager, graph = milliseconds(trainer.step), milliseconds(captured(trainer.step))
            print(f"{name:8}  eager {eager:7.2f}   in a graph {graph:7.2f}")


if __name__ == "__main__":
    main()
