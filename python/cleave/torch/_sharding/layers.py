"""What `cleave.torch.parallel` does with each kind of layer: how it is dealt, and what a rank multiplies.

Columns are output features (filters), rows input features (channels). `multiply_columns` of an x that all ranks have,
or with `gathers` of a rank's part of its first dimension; `multiply_rows` gives the sum over ranks, or with `scatters`
a rank's part of its first dimension.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Placement, Replicate, Shard

from ... import distributed
from ...distributed._gradients import Replicated
from .. import _dealt
from .._operators.channels_last import packed
from .._scales import BLOCK
from ..conv import Conv1d, Conv2d, Conv3d
from ..grouped_linear import GroupedLinear
from ..linear import W8A8Linear
from . import linear

_ops = torch.ops.cleave

Placements = dict[str, Placement]


class Layer(ABC):
    """One kind. gathers: whether multiply_columns can, of any dimension of tokens; others are gathered before."""

    gathers = False

    def features(self, dims: int) -> int:
        """The dimension of features of an x, and of a y, of so many dimensions."""
        return dims - 1

    def scatters(self, dim: int, dims: int) -> bool:
        """Whether multiply_rows can, of this dimension of y."""
        return dim == 0

    @abstractmethod
    def columns(self, module: nn.Module, ranks: int) -> Placements: ...

    @abstractmethod
    def rows(self, module: nn.Module, ranks: int) -> Placements: ...

    def count(self, module: Any) -> int:
        """Its output features, on all ranks."""
        return module.weight.shape[0]

    def own(self, name: str, part: Tensor) -> Tensor:
        """A parameter's part, in the order of memory that it is multiplied in."""
        return part

    @abstractmethod
    def multiply_columns(self, module: Any, x: Tensor, group: Any, gathers: bool, *arguments: Any) -> Tensor: ...

    @abstractmethod
    def multiply_rows(self, module: Any, x: Tensor, group: Any, scatters: bool, *arguments: Any) -> Tensor: ...


class _Flat(Layer):
    """Layers of tokens: x is [..., features]."""

    gathers = True

    def scatters(self, dim: int, dims: int) -> bool:
        return dim < dims - 1

    def multiply_columns(self, module: Any, x: Tensor, group: Any, gathers: bool, *arguments: Any) -> Tensor:
        y = self._columns(module, x.reshape(-1, x.shape[-1]), group, gathers)
        return y.view(-1, *x.shape[1:-1], y.shape[1]) if gathers else y.view(*x.shape[:-1], y.shape[1])

    def multiply_rows(self, module: Any, x: Tensor, group: Any, scatters: bool, *arguments: Any) -> Tensor:
        y = self._rows(module, x.reshape(-1, x.shape[-1]), group, scatters)
        return y.view(-1, *x.shape[1:-1], y.shape[1]) if scatters else y.view(*x.shape[:-1], y.shape[1])

    @abstractmethod
    def _columns(self, module: Any, x: Tensor, group: Any, gathers: bool) -> Tensor: ...

    @abstractmethod
    def _rows(self, module: Any, x: Tensor, group: Any, scatters: bool) -> Tensor: ...


class Linear(_Flat):
    def columns(self, module: nn.Module, ranks: int) -> Placements:
        return {"weight": Shard(0), "bias": Shard(0)}

    def rows(self, module: nn.Module, ranks: int) -> Placements:
        return {"weight": Shard(1), "bias": Replicate()}

    def _columns(self, module: nn.Linear, x: Tensor, group: Any, gathers: bool) -> Tensor:
        return linear.multiply("gathered" if gathers else "replicated", x, module.weight, module.bias, group.group_name)

    def _rows(self, module: nn.Linear, x: Tensor, group: Any, scatters: bool) -> Tensor:
        return linear.multiply("scattered" if scatters else "summed", x, module.weight, module.bias, group.group_name)


class W8A8(_Flat):
    """Each rank quantises what it multiplies: where input features are dealt, with scales of its own part."""

    def columns(self, module: nn.Module, ranks: int) -> Placements:
        if module.granularity == "block_128x128":
            _check_blocks("out_features", module.out_features, ranks)
        return {"weight": Shard(0), "weight_scale": Shard(0), "bias": Shard(0), **self._replicated("smooth")}

    def rows(self, module: nn.Module, ranks: int) -> Placements:
        if module.granularity != "row":
            _check_blocks("in_features", module.in_features, ranks)
        of_scale = Replicate() if module.granularity == "row" else Shard(1)
        return {"weight": Shard(1), "weight_scale": of_scale, "smooth": Shard(0), **self._replicated("bias")}

    def _replicated(self, name: str) -> Placements:
        return {name: Replicate(), "activation_scale": Replicate()}

    def _quantized(self, module: W8A8Linear, x: Tensor) -> tuple[tuple[Any, ...], Tensor | None]:
        """The operands of a product, and the bias."""
        weight, weight_scale, bias, scale, smooth = (
            _dealt.own(getattr(module, name))
            for name in ("weight", "weight_scale", "bias", "activation_scale", "smooth")
        )
        if scale is None:
            q, scale = _ops.quantize(x, weight.dtype, module.activation_granularity, smooth)
        else:
            q = _ops.quantize_static(x, scale, weight.dtype, "tensor", smooth)
        return (q, weight.t(), scale, weight_scale if module.granularity == "row" else weight_scale.t()), bias

    def _columns(self, module: W8A8Linear, x: Tensor, group: Any, gathers: bool) -> Tensor:
        operands, bias = self._quantized(module, x)
        if gathers:
            options = {"bias": bias, "out_dtype": x.dtype, "use_fast_accum": module.use_fast_accum}
            return distributed.all_gather_scaled_gemm(*operands, group.group_name, **options)
        return _ops.scaled_gemm.full(*operands, bias, x.dtype, module.use_fast_accum, static_b=module.static_weights)

    def _rows(self, module: W8A8Linear, x: Tensor, group: Any, scatters: bool) -> Tensor:
        operands, bias = self._quantized(module, x)
        multiply = distributed.scaled_gemm_reduce_scatter if scatters else distributed.scaled_gemm_all_reduce
        options = {"use_fast_accum": module.use_fast_accum, "out_dtype": x.dtype, "partial_dtype": x.dtype}
        return multiply(*operands, group.group_name, bias=bias, **options)


class Grouped(Layer):
    """x is [tokens, features], sorted by group, and offs are all tokens'."""

    def count(self, module: GroupedLinear) -> int:
        return module.out_features

    def columns(self, module: nn.Module, ranks: int) -> Placements:
        return {"weight": Shard(1), "bias": Shard(1)}

    def rows(self, module: nn.Module, ranks: int) -> Placements:
        if module.bias is not None:
            raise ValueError(
                "the module has a bias for each group, which a sum over ranks does not add; make it without"
            )
        return {"weight": Shard(2)}

    def multiply_columns(self, module: Any, x: Tensor, group: Any, gathers: bool, *arguments: Any) -> Tensor:
        return GroupedLinear.forward(module, Replicated.apply(x, group.group_name), *arguments)

    def multiply_rows(self, module: Any, x: Tensor, group: Any, scatters: bool, *arguments: Any) -> Tensor:
        add = _ops.reduce_scatter_rows if scatters else _ops.all_reduce_rows
        return add(GroupedLinear.forward(module, x, *arguments), group.group_name)


class Conv(Layer):
    """x and y are [images, channels, ...], channels_last. Images are what is gathered and scattered."""

    def features(self, dims: int) -> int:
        return 1

    def columns(self, module: nn.Module, ranks: int) -> Placements:
        _check_one_group(module)
        return {"weight": Shard(0), "bias": Shard(0)}

    def rows(self, module: nn.Module, ranks: int) -> Placements:
        _check_one_group(module)
        return {"weight": Shard(1), "bias": Replicate()}

    def own(self, name: str, part: Tensor) -> Tensor:
        return packed(part) if name == "weight" else part

    def multiply_columns(self, module: Any, x: Tensor, group: Any, gathers: bool, *arguments: Any) -> Tensor:
        pixels = x.movedim(1, -1)
        rows = Replicated.apply(pixels.reshape(-1, pixels.shape[-1]), group.group_name)
        x = rows.view(pixels.shape).movedim(-1, 1)
        return module._conv_forward(x, _dealt.own(module.weight), _dealt.own(module.bias))

    def multiply_rows(self, module: Any, x: Tensor, group: Any, scatters: bool, *arguments: Any) -> Tensor:
        pixels = module._conv_forward(x, _dealt.own(module.weight), None).movedim(1, -1)
        add = _ops.reduce_scatter_rows if scatters else _ops.all_reduce_rows
        y = add(pixels.reshape(-1, pixels.shape[-1]), group.group_name, _dealt.own(module.bias))
        return y.view(-1, *pixels.shape[1:]).movedim(-1, 1)


LAYERS: dict[type[nn.Module], Layer] = {
    nn.Linear: Linear(),
    W8A8Linear: W8A8(),
    GroupedLinear: Grouped(),
    **dict.fromkeys((Conv1d, Conv2d, Conv3d), Conv()),
}


def _check_blocks(name: str, size: int, ranks: int) -> None:
    if size % (BLOCK * ranks) != 0:
        raise ValueError(
            f"{name} is {size} over {ranks} ranks, but scales are of blocks of {BLOCK}, which stay whole; it must be a "
            f"multiple of {BLOCK * ranks}, or granularity 'row'"
        )


def _check_one_group(module: nn.Module) -> None:
    if module.groups != 1:
        raise ValueError(f"groups is {module.groups}; filters of groups are not dealt, leave the layer out of the plan")
