"""A small U-shaped network, forward and backward, whose convolutions are Cleave's or float64's."""

from __future__ import annotations

from collections.abc import Sequence
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
    def forward(self) -> str:
        return "dgrad" if self.transposed else "fprop"

    @property
    def backward(self) -> str:
        return "fprop" if self.transposed else "dgrad"

    def output_edge(self, edge: int) -> int:
        return edge * self.stride if self.transposed else edge // self.stride


def layers(width: int) -> tuple[Layer, ...]:
    return (
        Layer("first", 1, width, 3, padding=1),
        Layer("down", width, 2 * width, 3, stride=2, padding=1),
        Layer("residual", 2 * width, 2 * width, 3, padding=1, skip=2),
        Layer("up", 2 * width, width, 2, stride=2, transposed=True, skip=1),
        Layer("last", width, 1, 3, padding=1, activation="none"),
    )


class Cleave:
    """What is around a convolution is a part of it."""

    dtype = "float16"

    def convolve(
        self,
        layer: Layer,
        kind: str,
        input_shape: tuple[int, ...],
        *,
        activation: str = "none",
        bias: Any = None,
        c: Any = None,
        **operands: Any,
    ) -> Any:
        """From two of input, weight and output the third one."""
        import cleave

        geometry = {"stride": layer.stride, "padding": layer.padding}
        around = {"bias": bias, "c": c, "activation": activation}
        if kind == "fprop":
            return cleave.conv2d(**operands, **geometry, **around)
        grad = operands.pop("output")
        if kind == "dgrad":
            weight = operands["weight"]
            return cleave.conv2d_dgrad(input_shape, weight, grad, **geometry, **around)
        return cleave.conv2d_wgrad(operands["input"], layer.weight_shape, grad, **geometry, out_dtype="float32")


class Float64:
    """The same, a product for each tap."""

    dtype = "float64"

    def __init__(self, arrays: Arrays):
        self._arrays = arrays

    def convolve(
        self,
        layer: Layer,
        kind: str,
        input_shape: tuple[int, ...],
        *,
        activation: str = "none",
        bias: Any = None,
        c: Any = None,
        **operands: Any,
    ) -> Any:
        images, channels, *size = input_shape
        filters, _, *filter_size = layer.weight_shape
        case = ConvCase(images, size, channels, filters, filter_size, layer.stride, layer.padding, kind=kind)
        parts = {
            name: conv_reference.split_channels(self._arrays, case, name, array) for name, array in operands.items()
        }
        made = self._arrays.xp.moveaxis(conv_reference.convolve(self._arrays, case, parts)[0], -1, 1)
        if bias is not None:
            made = made + bias[:, None, None]
        if c is not None:
            made = made + c
        return made * (made > 0) if activation == "relu" else made


class Network:
    def __init__(self, arrays: Arrays, layers: Sequence[Layer], products: Cleave | Float64):
        self._arrays = arrays
        self._layers = layers
        self._products = products

    def forward(self, parameters: Parameters, x: Any) -> list[Any]:
        """Each layer's input, and the last one's output."""
        values = [x]
        for layer, (weight, bias) in zip(self._layers, parameters, strict=True):
            x = values[-1]
            name = "output" if layer.transposed else "input"
            y = self._products.convolve(
                layer,
                layer.forward,
                self._image_shape(layer, x),
                bias=bias,
                c=None if layer.skip is None else values[layer.skip],
                activation=layer.activation,
                **{name: x, "weight": weight},
            )
            values.append(y)
        return values

    def backward(self, parameters: Parameters, values: Sequence[Any], grad: Any) -> Parameters:
        """The gradients of the parameters, from that of the last output."""
        grads: list[Any] = [None] * len(self._layers) + [grad]
        gradients: Parameters = []
        for i, layer in reversed(list(enumerate(self._layers))):
            x, y, dy = values[i], values[i + 1], grads[i + 1]
            if layer.activation == "relu":
                dy = dy * (y > 0)
            shape = self._image_shape(layer, x)
            names = ("output", "input") if layer.transposed else ("input", "output")
            operands = dict(zip(names, (x, dy), strict=True))
            weight_gradient = self._products.convolve(layer, "wgrad", shape, **operands)
            gradients.append((weight_gradient, self._arrays.float64(dy).sum((0, 2, 3))))
            if layer.skip is not None:  # what is added first is there when the sum goes on
                grads[layer.skip] = dy
            if i > 0:
                grads[i] = self._products.convolve(
                    layer,
                    layer.backward,
                    shape,
                    c=grads[i],
                    **{names[1]: dy, "weight": parameters[i][0]},
                )
        return gradients[::-1]

    def _image_shape(self, layer: Layer, x: Any) -> tuple[int, ...]:
        """The larger side of the convolution: the output, if transposed."""
        if not layer.transposed:
            return tuple(x.shape)
        edges = (layer.output_edge(edge) for edge in x.shape[2:])
        return (x.shape[0], layer.outputs, *edges)
