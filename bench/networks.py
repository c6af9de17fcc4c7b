"""python -m bench.networks: a training step of whole networks with Cleave's convolutions, beside torch's.

ResNet-50, a small U-Net and a network like EfficientNet-B0 (examples/resnet): channels last, under bfloat16 autocast,
forward, backward and SGD, each contender in a CUDA graph of its own, in turns in one process. Ours are the same models
after cleave.torch.replace_convs, eager and under torch.compile; torch's are the models as they are, eager and compiled,
with cuDNN's kernels by its own trials. Losses of a step are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import cleave.torch
from cleave.testing import measure
from cleave.testing.arrays import TorchArrays
from examples.resnet.efficientnet import EfficientNet
from examples.resnet.resnet50 import resnet50
from examples.resnet.unet import UNet

from . import pairs
from .kept_rows import KeptRows
from .summary import geomean

CLASSES = 10
JOB = "training step"
# A step's losses may differ by so much of torch's.
MOST_DIFFERENCE = 0.02


@dataclass(frozen=True)
class Network:
    """bar: how far ahead of the faster one of torch's it should be."""

    make: Callable[[], nn.Module]
    bar: float
    pixelwise: bool = False
    images: int = 64
    size: int = 224

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images, 3, self.size, self.size


NETWORKS = {
    "ResNet-50": Network(lambda: resnet50(CLASSES), 1.10),
    "U-Net": Network(lambda: UNet(classes=CLASSES), 1.08, pixelwise=True),
    "EfficientNet-B0": Network(lambda: EfficientNet(CLASSES), 1.00),
}

Compile = Callable[[nn.Module], Callable[..., Any]]


class Step:
    """One of training; it returns the loss before it."""

    def __init__(self, model: nn.Module, compiled: Compile, x: Tensor, target: Tensor):
        self._x, self._target, self._device = x, target, x.device.type
        self._optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        self._model = compiled(model)

    def __call__(self, _: int = 0) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._device, torch.bfloat16):
            scores = self._model(self._x)
        loss = nn.functional.cross_entropy(scores.float(), self._target)
        loss.backward()
        self._optimizer.step()
        return loss.detach()


def steps_of(arrays: TorchArrays, network: Network, compiled: Compile) -> dict[str, Step]:
    """Each contender's, with the same parameters and images."""
    torch.manual_seed(0)
    model = network.make().to(arrays.device, memory_format=torch.channels_last)
    ours = copy.deepcopy(model)
    cleave.torch.replace_convs(ours)
    x = arrays.normal(network.shape, "float32", 1).contiguous(memory_format=torch.channels_last)
    of_target = (network.images, network.size, network.size) if network.pixelwise else (network.images,)
    target = torch.randint(CLASSES, of_target, generator=torch.Generator().manual_seed(2)).to(arrays.device)
    ways: dict[str, Compile] = {"": lambda model: model, " compiled": compiled}
    return {
        f"{name}{way}": Step(copy.deepcopy(of), how, x, target)
        for name, of in (("cleave", ours), ("torch", model))
        for way, how in ways.items()
    }


def measured(arrays: TorchArrays, name: str, compiled: Compile, rounds: int) -> dict[str, Any]:
    """One row. RuntimeError if a contender's loss is another."""
    network = NETWORKS[name]
    steps = steps_of(arrays, network, compiled)
    losses: dict[str, float] = {}
    measure.run_to_completion(
        arrays, lambda: arrays.on_stream(lambda: losses.update({key: float(step()) for key, step in steps.items()}))
    )
    expected = losses["torch"]
    wrong = [key for key, loss in losses.items() if not abs(loss / expected - 1) <= MOST_DIFFERENCE]
    if wrong:
        raise RuntimeError(f"{name}: losses are other than torch's, {expected:.4f}: {', '.join(wrong)} of {losses}")
    graphs = measure.rotating_graphs(arrays, list(steps.values()), sets=1)
    us = dict(zip(steps, measure.interleaved(graphs, rounds), strict=True))
    ours, theirs = (min((key for key in us if key.startswith(who)), key=us.__getitem__) for who in ("cleave", "torch"))
    return {
        "job": JOB,
        "case": title(name),
        "network": name,
        "us": us[ours],
        "form": ours,
        "contenders": us,
        "best": theirs,
        "ratio": us[theirs] / us[ours],
    }


def title(name: str) -> str:
    return f"{name}, {NETWORKS[name].images} images of {NETWORKS[name].size}x{NETWORKS[name].size}"


def lines(row: dict[str, Any]) -> Iterator[str]:
    bar = NETWORKS[row["network"]].bar
    met = "met" if row["ratio"] >= bar else "missed"
    yield (
        f"{row['case']}: {row['form']} {row['us'] / 1e3:.2f} ms, {row['best']} takes {row['ratio']:.3f} of it; asked "
        f"{bar:.2f}: {met}"
    )
    yield "  " + ", ".join(f"{name} {us / 1e3:.2f} ms" for name, us in row["contenders"].items())


def summary(rows: Sequence[dict[str, Any]]) -> str:
    found = geomean(row["ratio"] for row in rows)
    return f"the faster of torch's over the faster of ours: geomean {found:.3f} of {len(rows)} networks"


def convolutions(network: Network) -> dict[tuple[str, tuple[int, ...]], tuple[nn.Module, tuple[int, ...]]]:
    """Layers that are replaced, and their inputs' shapes, each once; of no memory."""
    with torch.device("meta"):
        model, x = network.make(), torch.empty(network.shape)
    replaced = cleave.torch.replace_convs(copy.deepcopy(model))
    found: dict[tuple[str, tuple[int, ...]], tuple[nn.Module, tuple[int, ...]]] = {}

    def note(layer: nn.Module, inputs: tuple[Tensor], _: Tensor) -> None:
        shape = tuple(inputs[0].shape)
        found.setdefault((repr(layer), shape), (layer, shape))

    hooks = [model.get_submodule(name).register_forward_hook(note) for name in replaced]
    model(x)
    for hook in hooks:
        hook.remove()
    return found


def convolve_once(layer: nn.Module, shape: tuple[int, ...], device: str = "cuda") -> None:
    """Compiles the kernels of a layer's three directions, into the cache on disk."""
    layer = layer.to_empty(device=device).to(torch.bfloat16)
    ours = getattr(cleave.torch, type(layer).__name__).from_conv(layer)
    x = torch.ones(shape, device=device, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    ours(x.requires_grad_(layer.in_channels > 4)).sum().backward()  # images have no gradient


def compile_convolutions(names: Sequence[str]) -> None:
    """Side by side, before they are wanted."""
    with pairs.compilers() as pool:
        layers = {key: layer for name in names for key, layer in convolutions(NETWORKS[name]).items()}
        for each in [pool.submit(convolve_once, *layer) for layer in layers.values()]:
            each.result()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.networks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=540, help="start no network after this long")
    parser.add_argument("--out", type=Path, default=Path("bench/results/networks.json"))
    arguments = parser.parse_args(argv)
    torch.backends.cudnn.benchmark = True
    kept = KeptRows(arguments.out, arguments.seconds)
    missing = kept.missing(JOB, [(title(name), name) for name in arguments.networks.split(",")])
    compile_convolutions(missing)
    arrays = TorchArrays("cuda:0")
    for name in missing:
        if kept.time_is_up:
            continue
        torch._dynamo.reset()
        compiled = lambda model: torch.compile(model, dynamic=False)  # noqa: E731
        kept.add(measured(arrays, name, compiled, arguments.rounds))
        print(*lines(kept.rows[-1]), sep="\n", flush=True)
        torch.cuda.empty_cache()  # graphs have memory of their own
    print(summary(kept.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
