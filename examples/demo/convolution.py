"""Convolutions: a small network with strides, skip connections and a transposed layer.

It learns to take noise off pictures. A layer is one call forward, its bias, ReLU and skip
connection included, and two backward. Gradients are compared with float64's before training.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cleave.cli.console import Console
from cleave.testing.arrays import Arrays, select

from . import denoiser
from .denoiser import Convolve, Layer, Parameters

TITLE = "Convolutions: a network that takes noise off pictures"

DTYPE = "float16"
# What a gradient may differ from float64's, of its norm: float16's roundings, layer after layer.
MOST_ERROR = 0.01

NOISE = 0.5  # the standard deviation, where pictures are from 0 to 1
COMPARED_IMAGES = 4
RATE = 0.005


@dataclass(frozen=True)
class Size:
    images: int  # of a step
    pixels: int  # along an edge
    width: int  # channels of the first layer
    steps: int


GPU = Size(images=64, pixels=128, width=64, steps=100)
CPU = Size(images=8, pixels=32, width=16, steps=30)


def run(device: str, console: Console) -> None:
    """Trains the network; ValueError if its gradients are wrong."""
    size = CPU if device == "cpu" else GPU
    arrays = select(device, {DTYPE})
    rng = np.random.default_rng(0)
    network = denoiser.layers(size.width)
    parameters = [_initial(layer, rng) for layer in network]
    console.print(
        f"{size.images} pictures of {size.pixels}x{size.pixels} in a step, {len(network)} layers "
        f"of {size.width} and {2 * size.width} channels, {DTYPE}, on {device}"
    )
    pairs = [part[:COMPARED_IMAGES] for part in _pictures(size, rng)]
    rows = _compare(arrays, network, parameters, *pairs)
    console.table(("gradients of", "weight rel err", "bias rel err"), rows)

    optimizer = Adam([array for pair in parameters for array in pair])
    losses = []
    start = time.perf_counter()
    for _ in range(size.steps):
        loss, gradients = _step(arrays, network, denoiser.cleaves, DTYPE, parameters, *_pictures(size, rng))
        optimizer.step([array for pair in gradients for array in pair])
        losses.append(loss)
    milliseconds = (time.perf_counter() - start) / size.steps * 1e3
    console.print(
        f"mean squared error, where noise alone is {NOISE**2:.2f}: {losses[0]:.3f} before "
        f"training, {losses[-1]:.3f} after {size.steps} steps of {milliseconds:.1f} ms"
    )


class Adam:
    """On the host; changes the parameters that it is given."""

    def __init__(self, parameters: list[np.ndarray]):
        self._parameters = parameters
        self._means = [np.zeros_like(p) for p in parameters]
        self._squares = [np.zeros_like(p) for p in parameters]
        self._steps = 0

    def step(self, gradients: list[np.ndarray]) -> None:
        self._steps += 1
        rate = RATE * (1 - 0.999**self._steps) ** 0.5 / (1 - 0.9**self._steps)
        state = zip(self._parameters, gradients, self._means, self._squares, strict=True)
        for parameter, gradient, mean, square in state:
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            parameter -= rate * mean / (square**0.5 + 1e-8)


def _initial(layer: Layer, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias."""
    spread = (2 / (layer.channels * layer.filter**2)) ** 0.5
    weight = rng.normal(0, spread, layer.weight_shape).astype(np.float32)
    return weight, np.zeros(layer.outputs, np.float32)


def _pictures(size: Size, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """[images, 1, pixels, pixels], of a disc each: with noise, and without."""
    axis = np.linspace(-1, 1, size.pixels)
    x, y, radius = rng.uniform(-0.5, 0.5, (3, size.images, 1, 1, 1))
    clean = (axis - x) ** 2 + (axis[:, None] - y) ** 2 < (radius + 0.8) ** 2 / 4
    return clean + rng.normal(0, NOISE, clean.shape), clean.astype(np.float64)


def _step(
    arrays: Arrays,
    network: Sequence[Layer],
    convolve: Convolve,
    dtype: str,
    parameters: Parameters,
    noisy: np.ndarray,
    clean: np.ndarray,
) -> tuple[float, Parameters]:
    """The mean squared error, and the gradients of its sum over each picture, as host arrays."""

    def place(values: np.ndarray) -> object:
        """Rounded to what Cleave is given; the channels of pictures and weights last in memory."""
        values = values.astype(DTYPE)
        if values.ndim == 1:
            return arrays.from_numpy(values, dtype)
        packed = np.ascontiguousarray(np.moveaxis(values, 1, -1))
        return arrays.xp.moveaxis(arrays.from_numpy(packed, dtype), -1, 1)

    placed = [(place(weight), place(bias)) for weight, bias in parameters]
    values = denoiser.forward(network, convolve, placed, place(noisy))
    off = values[-1] - place(clean)
    gradients = denoiser.backward(arrays, network, convolve, placed, values, off * (2 / len(noisy)))
    loss = float((arrays.float64(off) ** 2).mean())
    return loss, [tuple(map(arrays.to_numpy, pair)) for pair in gradients]


def _compare(
    arrays: Arrays, network: Sequence[Layer], parameters: Parameters, noisy: np.ndarray, clean: np.ndarray
) -> list[tuple[str, str, str]]:
    """A row for each layer; ValueError if one is wrong."""
    (_, ours), (_, exact) = (
        _step(arrays, network, convolve, dtype, parameters, noisy, clean)
        for convolve, dtype in ((denoiser.cleaves, DTYPE), (denoiser.float64s(arrays), "float64"))
    )
    rows = []
    for layer, found, expected in zip(network, ours, exact, strict=True):
        errors = [_error(x, y) for x, y in zip(found, expected, strict=True)]
        if not max(errors) <= MOST_ERROR:  # NaN, too
            raise ValueError(
                f"{layer.name}: gradients differ from float64's by {max(errors):.1e} of their "
                f"norm; at most {MOST_ERROR} was expected"
            )
        rows.append((layer.name, *(f"{error:.1e}" for error in errors)))
    return rows


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
