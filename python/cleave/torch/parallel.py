"""Styles for torch's parallelize_module: linear layers whose products communicate, as `cleave.distributed` does.

    from cleave.torch import parallel

    parallelize_module(block, mesh["tp"], {
        "up": parallel.ColwiseParallel(input_layouts=Shard(1)),      # all-gather and product: sequence parallelism
        "down": parallel.RowwiseParallel(output_layouts=Shard(1)),   # product and reduce-scatter
    })
    parallelize_module(model, mesh["ep"], {"layers.*.moe": parallel.ExpertParallel()})      # experts are dealt

Names, arguments and layouts are those of torch's styles, of which `SequenceParallel` goes with them. Parameters become
DTensors as there, for optimizers and checkpoints. Where torch's styles multiply and then redistribute, these call
one operator of torch.ops.cleave, forward and backward.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from .. import distributed
from . import _autograd, _sharding
from .dispatch import Dispatcher
from .moe import MoE

__all__ = ["ColwiseParallel", "ExpertParallel", "RowwiseParallel"]


class _LinearStyle(ParallelStyle):
    """What both styles do to a layer: deal its parameters, and give it a forward of theirs."""

    def __init__(
        self,
        parameters: dict[str, Placement],
        input_layouts: Placement,
        output_layouts: Placement,
        use_local_output: bool,
    ) -> None:
        super().__init__()
        self._parameters = parameters
        for name, layout in (("input_layouts", input_layouts), ("output_layouts", output_layouts)):
            if not isinstance(layout, (Replicate, Shard)):
                raise ValueError(f"{name} is {layout}; it must be Replicate() or Shard(dim)")
        self.input_layouts, self.output_layouts = input_layouts, output_layouts
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        name = f"cleave.torch.parallel.{type(self).__name__}"
        if type(module) is not nn.Linear:
            raise NotImplementedError(
                f"{name} serves nn.Linear alone, but the module is {type(module).__name__}; use torch's style for it"
            )
        _group(device_mesh, self)
        for of, placement in self._parameters.items():
            _deal(module, of, device_mesh, placement, self.src_data_rank)
        module.forward = partial(self._forward, module, device_mesh)
        return module

    def _forward(self, module: nn.Linear, mesh: DeviceMesh, x: Tensor) -> Tensor:
        computed = self._computed(x.dim())
        local = _local(x, self.input_layouts, computed[0], mesh)
        bias = None if module.bias is None else module.bias.to_local()
        y = self._product(local, module.weight.to_local(), bias, mesh.get_group())
        return self._result(y, computed[1], mesh)

    def _computed(self, dims: int) -> tuple[Placement, Placement]:
        """How the product itself takes its input and gives its result."""
        raise NotImplementedError

    def _product(self, x: Tensor, weight: Tensor, bias: Tensor | None, group: Any) -> Tensor:
        raise NotImplementedError

    def _result(self, y: Tensor, made: Placement, mesh: DeviceMesh) -> Tensor:
        wanted = _of_dim(self.output_layouts, y.dim())
        if made == wanted and self.use_local_output:
            return y
        result = DTensor.from_local(y, mesh, [made], run_check=False).redistribute(mesh, [wanted])
        return result.to_local() if self.use_local_output else result


class ColwiseParallel(_LinearStyle):
    """Deals an nn.Linear's output features: weight and bias are Shard(0).

    Args:
        input_layouts: of what the layer is given. Replicate(): the product is local, and its backward one
            `gemm_all_reduce`. Shard(dim) of tokens: an `all_gather_gemm`, whose backward is one `gemm_reduce_scatter`.
            That dimension is dealt evenly.
        output_layouts: of what it returns: Shard(-1), as computed; others are redistributed to.
        use_local_output: a tensor, or a DTensor.

    The input may be a DTensor, which is redistributed to input_layouts. Determinism and graph safety are those of
    `cleave.distributed`.

    Raises:
        ValueError: layouts that are neither; a mesh of several dimensions.
        NotImplementedError: another layer than nn.Linear, by parallelize_module.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        parameters = {"weight": Shard(0), "bias": Shard(0)}
        super().__init__(parameters, input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output)

    def _computed(self, dims: int) -> tuple[Placement, Placement]:
        given = _of_dim(self.input_layouts, dims)
        return (Replicate() if given == Shard(dims - 1) else given), Shard(dims - 1)

    def _product(self, x: Tensor, weight: Tensor, bias: Tensor | None, group: Any) -> Tensor:
        given = _of_dim(self.input_layouts, x.dim())
        if isinstance(given, Shard) and given.dim < x.dim() - 1:
            x = x.movedim(given.dim, 0)
            y = distributed.all_gather_gemm(x.reshape(-1, x.shape[-1]), weight.t(), group, bias=bias)
            return y.view(-1, *x.shape[1:-1], y.shape[1]).movedim(0, given.dim)
        y = _OfReplicated.apply(x.reshape(-1, x.shape[-1]), weight, bias, group.group_name)
        return y.view(*x.shape[:-1], y.shape[1])


class RowwiseParallel(_LinearStyle):
    """Deals an nn.Linear's input features: weight is Shard(1), bias Replicate(), added once to the sum.

    Args:
        input_layouts: of what the layer is given: Shard(-1), as it is multiplied; others are redistributed.
        output_layouts: of what it returns. Replicate(): one `gemm_all_reduce`, whose backward is local. Shard(dim) of
            tokens: one `gemm_reduce_scatter`, whose backward is an `all_gather_gemm`. That dimension is a multiple of
            the ranks.
        use_local_output: a tensor, or a DTensor.

    Else as `ColwiseParallel`.

    Raises:
        ValueError: tokens that cannot be dealt evenly, by the forward; else as `ColwiseParallel`.
        NotImplementedError: another layer than nn.Linear, by parallelize_module.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        parameters = {"weight": Shard(1), "bias": Replicate()}
        super().__init__(parameters, input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output)

    def _computed(self, dims: int) -> tuple[Placement, Placement]:
        wanted = _of_dim(self.output_layouts, dims)
        return Shard(dims - 1), (Replicate() if wanted == Shard(dims - 1) else wanted)

    def _product(self, x: Tensor, weight: Tensor, bias: Tensor | None, group: Any) -> Tensor:
        wanted = _of_dim(self.output_layouts, x.dim())
        if isinstance(wanted, Shard) and wanted.dim < x.dim() - 1:
            dealt, size = x.shape[wanted.dim], group.size()
            if dealt % size != 0:
                raise ValueError(
                    f"output_layouts is {self.output_layouts}, but dimension {wanted.dim} has {dealt} elements for "
                    f"{size} ranks; pad it to a multiple"
                )
            x = x.movedim(wanted.dim, 0)
            y = distributed.gemm_reduce_scatter(x.reshape(-1, x.shape[-1]), weight.t(), group, bias=bias)
            return y.view(-1, *x.shape[1:-1], y.shape[1]).movedim(0, wanted.dim)
        y = distributed.gemm_all_reduce(x.reshape(-1, x.shape[-1]), weight.t(), group, bias=bias)
        return y.view(*x.shape[:-1], y.shape[1])


class ExpertParallel(ParallelStyle):
    """Deals the experts of a `cleave.torch.MoE`: gate_up.weight and down.weight are Shard(0). The router is left as it
    is, the same on all ranks; its gradient is that of a rank's own tokens, to be summed over ranks.

    Args:
        capacity, exact, transport: as in `cleave.distributed.moe_dispatch`.
        dispatcher: another one (`cleave.torch.dispatch`), instead of these; made by the caller for the mesh's group.

    The layer's input and output are each rank's own tokens.

    Raises:
        ValueError: experts that cannot be dealt evenly; a mesh of several dimensions.
        NotImplementedError: another module than MoE, by parallelize_module.
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        exact: bool = False,
        transport: str = "auto",
        dispatcher: Dispatcher | None = None,
    ) -> None:
        super().__init__()
        self.options = {"capacity": capacity, "exact": exact, "transport": transport}
        self.dispatcher = dispatcher

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not isinstance(module, MoE):
            raise NotImplementedError(
                f"cleave.torch.parallel.ExpertParallel serves cleave.torch.MoE, but the module is "
                f"{type(module).__name__}; deal its experts by a style of your own"
            )
        ranks = _group(device_mesh, self).size()
        if module.num_experts % ranks != 0:
            raise ValueError(
                f"the module has {module.num_experts} experts for {ranks} ranks; they must be a multiple: use a mesh "
                "of fewer ranks"
            )
        for experts in (module.gate_up, module.down):
            _deal(experts, "weight", device_mesh, Shard(0), self.src_data_rank)
        module.dispatcher = self.dispatcher or distributed.AllToAll(device_mesh.get_group(), **self.options)
        return module


def _group(mesh: DeviceMesh, style: ParallelStyle) -> Any:
    if mesh.ndim != 1:
        name = f"cleave.torch.parallel.{type(style).__name__}"
        raise ValueError(f"the mesh has {mesh.ndim} dimensions; {name} takes one of them, as mesh['tp']")
    return mesh.get_group()


def _deal(module: nn.Module, name: str, mesh: DeviceMesh, placement: Placement, source: int | None) -> None:
    """Makes a parameter, if there is one, a DTensor of what rank `source` has."""
    parameter = getattr(module, name)
    if parameter is not None:
        dealt = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=source)
        module.register_parameter(name, nn.Parameter(dealt, requires_grad=parameter.requires_grad))


class _OfReplicated(torch.autograd.Function):
    """x @ weight.t() + bias of an x that all ranks have, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, group_name: str) -> Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.group_name = group_name
        return torch.ops.cleave.gemm(x, weight.t(), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        grad = grad.contiguous()
        return (
            torch.ops.cleave.gemm_all_reduce(grad, weight, ctx.group_name) if needs_x else None,
            _autograd.product(grad.mT, x, weight, 1.0) if needs_weight else None,
            grad.sum_to_size(bias.shape) if needs_bias else None,
            None,
        )


def _of_dim(layout: Placement, dims: int) -> Placement:
    """Counted from the front."""
    return Shard(layout.dim % dims) if isinstance(layout, Shard) else layout


def _local(x: Tensor, given: Placement, wanted: Placement, mesh: DeviceMesh) -> Tensor:
    """What a rank multiplies, of a tensor whose layout is `given`, or of a DTensor."""
    given = _of_dim(given, x.dim())
    if not isinstance(x, DTensor):
        if given == wanted:
            return x
        x = DTensor.from_local(x, mesh, [given], run_check=False)
    return x.redistribute(mesh, [wanted]).to_local()


_sharding.register()
