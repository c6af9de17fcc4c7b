"""A small U-shaped network, forward and backward, whose convolutions are Cleave's or float64's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cleave.testing import conv_reference
from cleave.testing.arrays import Arrays
from cleave.testing.conv_case import ConvCase

Parameters = list[tuple[Any, Any]]  # weight and bias of each layer


@dataclass(frozen=True)
class Layer:
    """activation(convolution of x + bias + what `skip` says)

    A transposed layer is the data gradient of the convolution from its outputs to its channels.
    """

    name: str
    channels: int
    outputs: int
    filter: int
    stride: int = 1
    padding: int = 0
    transposed: bool = False
    skip: int | None = None  # the layer whose input is added
    activation: str = "relu"

    @property
    def weight_shape(self) -> tuple[int, ...]:
        ends = (self.channels, self.outputs) if self.transposed else (self.outputs, self.channels)
        return (*ends, self.filter, self.filter)

    @property
    def kinds(self) -> tuple[str, str]:
        """The convolutions that make outputs, and the gradient of inputs."""
        return ("dgrad", "fprop") if self.transposed else ("fprop", "dgrad")

    @property
    def ends(self) -> tuple[str, str]:
        """What the layer's inputs and outputs are to its convolution."""
        return ("output", "input") if self.transposed else ("input", "output")

    def images(self, x: Any) -> tuple[int, ...]:
        """The shape of the convolution's images: x's own, or the outputs', if transposed."""
        return (len(x), self.outputs, *(edge * self.stride for edge in x.shape[2:])) if self.transposed else x.shape


def layers(width: int) -> tuple[Layer, ...]:
    return (
        Layer("first", 1, width, 3, padding=1),
        Layer("down", width, 2 * width, 3, stride=2, padding=1),
        Layer("residual", 2 * width, 2 * width, 3, padding=1, skip=2),
        Layer("up", 2 * width, width, 2, stride=2, transposed=True, skip=1),
        Layer("last", width, 1, 3, padding=1, activation="none"),
    )


# A layer's products: from two of input, weight and output the third one, of that kind. `images` is input's
# shape; around: bias, c, activation.
Convolve = Callable[..., Any]


def cleaves(layer: Layer, kind: str, images: tuple[int, ...], operands: dict[str, Any], **around: Any) -> Any:
    """What is around a convolution is a part of it."""
    import cleave

    around |= {"stride": layer.stride, "padding": layer.padding}
    if kind == "fprop":
        return cleave.conv2d(operands["input"], operands["weight"], **around)
    if kind == "dgrad":
        return cleave.conv2d_dgrad(images, operands["weight"], operands["output"], **around)
    return cleave.conv2d_wgrad(operands["input"], layer.weight_shape, operands["output"], **around, out_dtype="float32")


def float64s(arrays: Arrays) -> Convolve:
    """The same, a product for each tap."""

    def convolve(
        layer: Layer,
        kind: str,
        images: tuple[int, ...],
        operands: dict[str, Any],
        *,
        bias: Any = None,
        c: Any = None,
        activation: str = "none",
    ) -> Any:
        count, channels, *size = images
        filters, _, *filter_size = layer.weight_shape
        case = ConvCase(count, size, channels, filters, filter_size, layer.stride, layer.padding, kind=kind)
        parts = {name: conv_reference.split_channels(arrays, case, name, x) for name, x in operands.items()}
        made = arrays.xp.moveaxis(conv_reference.convolve(arrays, case, parts)[0], -1, 1)
        if bias is not None:
            made = made + bias[:, None, None]
        if c is not None:
            made = made + c
        return made * (made > 0) if activation == "relu" else made

    return convolve


def forward(layers: Sequence[Layer], convolve: Convolve, parameters: Parameters, x: Any) -> list[Any]:
    """Each layer's input, and the last one's output."""
    values = [x]
    for layer, (weight, bias) in zip(layers, parameters, strict=True):
        operands = {layer.ends[0]: values[-1], "weight": weight}
        skipped = None if layer.skip is None else values[layer.skip]
        around = {"bias": bias, "c": skipped, "activation": layer.activation}
        values.append(convolve(layer, layer.kinds[0], layer.images(values[-1]), operands, **around))
    return values


def backward(
    arrays: Arrays,
    layers: Sequence[Layer],
    convolve: Convolve,
    parameters: Parameters,
    values: Sequence[Any],
    grad: Any,
) -> Parameters:
    """The gradients of the parameters, from that of the last output."""
    grads: list[Any] = [None] * len(layers) + [grad]
    gradients: Parameters = []
    for i, layer in reversed(list(enumerate(layers))):
        x, y, dy = values[i], values[i + 1], grads[i + 1]
        if layer.activation == "relu":
            dy = dy * (y > 0)
        weight_gradient = convolve(layer, "wgrad", layer.images(x), dict(zip(layer.ends, (x, dy), strict=True)))
        gradients.append((weight_gradient, arrays.float64(dy).sum((0, 2, 3))))
        if layer.skip is not None:  # what is added first is there when the sum goes on
            grads[layer.skip] = dy
        if i > 0:
            operands = {layer.ends[1]: dy, "weight": parameters[i][0]}
            grads[i] = convolve(layer, layer.kinds[1], layer.images(x), operands, c=grads[i])
    return gradients[::-1]
