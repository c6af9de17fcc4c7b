"""Convolutions whose forward and backward passes are Cleave's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ._operators import conv_autograd
from ._operators.channels_last import channels_last, check_channels_last, packed
from ._replace import Skip, replace_layers

if TYPE_CHECKING:
    from typing import Self  # Python 3.11


class _Convolution:
    """A convolution layer of torch's, computed by Cleave.

    Arguments, parameters, their shapes and their initial values are torch's; an output_padding must
    be less than the stride.

    The memory order is not torch's default: inputs, weights and outputs have adjacent channels
    (torch.channels_last, channels_last_3d, or x.mT for one axis). Use
    model.to(memory_format=torch.channels_last), and inputs of that format. Other inputs are refused,
    or copied with `convert`. Weights are created, and loaded by load_state_dict, in that order;
    gradients in another order are copied.

    Tensors are float16, bfloat16 or float32 (multiplied on a GPU as
    torch.backends.cudnn.conv.fp32_precision says, by default as tf32); under torch.autocast, input
    and weight are cast as torch casts them. Calls are legal in CUDA graphs once they have run with
    the same sizes; results are repeatable bit for bit.

    convert: True copies inputs in another memory order instead of refusing them.
    """

    convert: bool

    def __init__(self, *args: Any, convert: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.convert = convert
        self.weight = nn.Parameter(packed(self.weight.detach()))

    @classmethod
    def from_conv(cls, conv: nn.Module, *, convert: bool = False) -> Self:
        """Converts a layer of torch's, and shares its parameters.

        The memory of the weight is reordered, which its optimizer does not notice.
        """
        layer = cls(
            **{name: getattr(conv, name) for name in cls._settings},
            bias=conv.bias is not None,
            convert=convert,
            device="meta",
        )
        layer.weight, layer.bias = conv.weight, conv.bias
        layer.weight.data = packed(layer.weight.data)
        return layer.train(conv.training)

    def _operands(self, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        if torch.is_autocast_enabled(input.device.type):
            dtype = torch.get_autocast_dtype(input.device.type)
            input, weight = input.to(dtype), weight.to(dtype)
        if self.convert:
            input = channels_last(input)
        else:
            check_channels_last(input)
        return input, weight

    def extra_repr(self) -> str:
        return super().extra_repr() + (", convert=True" if self.convert else "")


class _Forward(_Convolution):
    _settings = (
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
    )

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if input.dim() == weight.dim() - 1:
            return self._conv_forward(input[None], weight, bias)[0]
        input, weight = self._operands(input, weight)
        # torch's own, of any padding: before and after each axis, the last one first.
        padding = self._reversed_padding_repeated_twice
        if self.padding_mode == "zeros":
            padding = [*padding[-2::-2], *padding[::-2]]
        else:
            input = channels_last(nn.functional.pad(input, padding, mode=self.padding_mode))
            padding = [0]
        return conv_autograd.conv(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class _Transposed(_Convolution):
    _settings = (*_Forward._settings, "output_padding")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if any(extra >= stride for extra, stride in zip(self.output_padding, self.stride, strict=True)):
            raise ValueError(
                f"output_padding is {self.output_padding}; it must be less than stride, {self.stride}, along each axis"
            )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """output_size: of the axes (batch and channels may precede); torch's choice without it."""
        if input.dim() == self.weight.dim() - 1:
            return self.forward(input[None], output_size)[0]
        input, weight = self._operands(input, self.weight)
        return conv_autograd.conv_dgrad(
            self._input_size(input, output_size),
            weight,
            input,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.bias,
        )

    def _input_size(self, input: Tensor, output_size: Sequence[int] | None) -> list[int]:
        """That of the convolution whose output `input` is."""
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, len(self.kernel_size), self.dilation
        )
        axes = zip(input.shape[2:], self.stride, self.padding, self.dilation, self.kernel_size, extra, strict=True)
        sizes = [
            (size - 1) * stride - 2 * padding + dilation * (taps - 1) + 1 + extra
            for size, stride, padding, dilation, taps, extra in axes
        ]
        return [input.shape[0], self.out_channels, *sizes]


class Conv1d(_Forward, nn.Conv1d):
    __doc__ = _Convolution.__doc__


class Conv2d(_Forward, nn.Conv2d):
    __doc__ = _Convolution.__doc__


class Conv3d(_Forward, nn.Conv3d):
    __doc__ = _Convolution.__doc__


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    __doc__ = _Convolution.__doc__


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    __doc__ = _Convolution.__doc__


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    __doc__ = _Convolution.__doc__


_LAYERS = (Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
_REPLACEMENTS = {layer.__bases__[1]: layer for layer in _LAYERS}


# Channels of a group below which tiles are mostly empty, and torch is faster: but for depthwise layers as networks
# have them, which a kernel of their own serves in all three directions. They were measured with filters and strides of
# up to so many pixels along an axis.
_LEAST_CHANNELS = 32
_MOST_TAPS, _MOST_STRIDE = 7, 2


def _is_left_to_torch(layer: nn.Module) -> bool:
    channels = min(layer.in_channels, layer.out_channels) // layer.groups
    return layer.groups > 1 and channels < _LEAST_CHANNELS and not _is_usual_depthwise(layer)


def _is_usual_depthwise(layer: nn.Module) -> bool:
    depthwise = layer.in_channels == layer.out_channels == layer.groups and len(layer.kernel_size) < 3
    small = max(layer.kernel_size) <= _MOST_TAPS and max(layer.stride) <= _MOST_STRIDE
    return depthwise and small and max(layer.dilation) == 1


def replace_convs(
    model: nn.Module, *, convert: bool = False, skip: Skip = (), narrow_groups: bool = False
) -> list[str]:
    """Replaces torch's convolutions in a model by Cleave's, in place; returns their names.

    Parameters stay the same objects, so optimizers and checkpoints keep working; the rest of the
    model should be channels_last, too. Classes derived from torch's are left alone, and layers whose weight
    is computed in each call, as by weight_norm. Hooks go on hanging on what takes a layer's place. A layer
    that has several names stays one layer.

    convert: as in `Conv2d`: inputs in another order of memory are copied instead of refused.
    skip: names of layers to leave alone, with * and ? as in file names ("stem.*"), or a function of
    name and layer; one of a layer's names is enough. A name that matches no convolution is refused.
    narrow_groups: whether to replace layers that torch is faster at, too: those with groups of fewer than 32
    channels or filters. Depthwise ones of one or two axes, with a filter for each channel, up to 7 taps and a
    stride of up to 2 along an axis, and no dilation, are replaced in any case.
    """
    if type(model) in _REPLACEMENTS:
        replacement = _REPLACEMENTS[type(model)].__name__
        raise ValueError(f"model is itself a convolution; use {replacement}.from_conv(model)")

    def make(_: str, layer: nn.Module) -> nn.Module:
        return _REPLACEMENTS[type(layer)].from_conv(layer, convert=convert)

    if narrow_groups:
        return replace_layers(model, _REPLACEMENTS, make, skip)
    return replace_layers(model, _REPLACEMENTS, make, skip, spare=_is_left_to_torch)
