"""Styles for torch's parallelize_module: layers whose products communicate, as `cleave.distributed` does.

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

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from .. import distributed
from . import _gathered
from ._sharding import operators
from ._sharding.fsdp import sum_gradients_in_float32
from ._sharding.layers import LAYERS, Layer
from ._static_weights import StaticWeights
from .dispatch import Dispatcher
from .float8 import Float8Linear
from .moe import MoE

__all__ = ["ColwiseParallel", "ExpertParallel", "RowwiseParallel", "gather_in_8_bits", "sum_gradients_in_float32"]


class _Style(ParallelStyle):
    """What both styles do to a layer: deal its parameters, and give it a forward of theirs."""

    def __init__(
        self, input_layouts: Placement | None, output_layouts: Placement | None, use_local_output: bool
    ) -> None:
        super().__init__()
        for name, layout in (("input_layouts", input_layouts), ("output_layouts", output_layouts)):
            if not isinstance(layout, (Replicate, Shard, type(None))):
                raise ValueError(f"{name} is {layout}; it must be Replicate() or Shard(dim)")
        # None are features, as they are multiplied.
        self.input_layouts, self.output_layouts = input_layouts, output_layouts
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        layer = LAYERS.get(type(module))
        if layer is None:
            served = ", ".join(kind.__name__ for kind in LAYERS)
            raise NotImplementedError(
                f"cleave.torch.parallel.{type(self).__name__} serves {served}, but the module is "
                f"{type(module).__name__}; use torch's style for it"
            )
        group = _group(device_mesh, self)
        for of, placement in self._placements(layer, module, group.size()).items():
            _deal(module, of, device_mesh, placement, self.src_data_rank, layer.own)
        if isinstance(module, StaticWeights):
            module.wait_for_weights()
        module.forward = partial(self._forward, module, layer, device_mesh)
        return module

    @abstractmethod
    def _placements(self, layer: Layer, module: nn.Module, ranks: int) -> dict[str, Placement]: ...

    def _forward(self, module: nn.Module, layer: Layer, mesh: DeviceMesh, x: Tensor, *arguments: Any) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"x is {type(x).__name__}; a layer that is dealt takes tensors, and quantises them itself")
        return self._multiply(module, layer, mesh, x, *arguments)

    @abstractmethod
    def _multiply(self, module: nn.Module, layer: Layer, mesh: DeviceMesh, x: Tensor, *arguments: Any) -> Tensor: ...

    def _result(
        self, y: Tensor, made: Placement, wanted: Placement, mesh: DeviceMesh, features: int | None = None
    ) -> Tensor:
        """features: all ranks', which may be dealt unevenly."""
        if made == wanted and self.use_local_output:
            return y
        form: dict[str, Any] = {}
        if features is not None:
            shape = [*y.shape]
            shape[made.dim] = features
            form = {"shape": torch.Size(shape), "stride": torch.empty(shape, device="meta").stride()}
        result = DTensor.from_local(y, mesh, [made], run_check=False, **form).redistribute(mesh, [wanted])
        return result.to_local() if self.use_local_output else result


class ColwiseParallel(_Style):
    """Deals output features: an nn.Linear's weight and bias are Shard(0).

    It serves `cleave.torch.W8A8Linear`, too, whose scales go with the weight; `cleave.torch.GroupedLinear`, whose rows
    and offs are those of all tokens; and `cleave.torch.Conv1d` to `Conv3d` of one group, whose filters are features.

    Args:
        input_layouts: of what the layer is given. Replicate(): the product is local, and its backward one
            `gemm_all_reduce`. Shard(dim) of tokens: an `all_gather_gemm`, whose backward is one `gemm_reduce_scatter`;
            groups and images are gathered before. That dimension is dealt evenly.
        output_layouts: of what it returns. None: its features are dealt, as computed; others are redistributed to.
        use_local_output: a tensor, or a DTensor.

    The input may be a DTensor, which is redistributed to input_layouts. Determinism and graph safety are those of
    `cleave.distributed`.

    Raises:
        ValueError: layouts that are neither; a mesh of several dimensions; features that blocks of scales, or groups of
            filters, do not let be dealt.
        NotImplementedError: another layer, by parallelize_module.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(input_layouts or Replicate(), output_layouts, use_local_output)

    def _placements(self, layer: Layer, module: nn.Module, ranks: int) -> dict[str, Placement]:
        return layer.columns(module, ranks)

    def _multiply(self, module: nn.Module, layer: Layer, mesh: DeviceMesh, x: Tensor, *arguments: Any) -> Tensor:
        features = Shard(layer.features(x.dim()))
        given = _of_dim(self.input_layouts, x.dim(), features)
        gathers = layer.gathers and isinstance(given, Shard) and given != features
        x = _local(x, given, given if gathers else Replicate(), mesh)
        if not gathers:
            y = layer.multiply_columns(module, x, mesh.get_group(), False, *arguments)
        else:
            y = layer.multiply_columns(module, x.movedim(given.dim, 0), mesh.get_group(), True, *arguments)
            y = y.movedim(0, given.dim)
        wanted = _of_dim(self.output_layouts, x.dim(), features)
        return self._result(y, features, wanted, mesh, layer.count(module))


class RowwiseParallel(_Style):
    """Deals input features: an nn.Linear's weight is Shard(1), its bias Replicate(), added once to the sum.

    It serves the other layers of `ColwiseParallel`, too. A W8A8Linear quantises each rank's features with scales of
    their own, finer than those of one rank; channels of convolutions are features; a GroupedLinear has no bias.

    Args:
        input_layouts: of what the layer is given. None: its features are dealt, as multiplied; others are
            redistributed.
        output_layouts: of what it returns. Replicate(): one `gemm_all_reduce`, whose backward is local. Shard(dim) of
            tokens: one `gemm_reduce_scatter`, whose backward is an `all_gather_gemm`. That dimension is a multiple of
            the ranks.
        use_local_output: a tensor, or a DTensor.

    Else as `ColwiseParallel`.

    Raises:
        ValueError: tokens that cannot be dealt evenly, by the forward; else as `ColwiseParallel`.
        NotImplementedError: another layer, by parallelize_module.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(input_layouts, output_layouts or Replicate(), use_local_output)

    def _placements(self, layer: Layer, module: nn.Module, ranks: int) -> dict[str, Placement]:
        return layer.rows(module, ranks)

    def _multiply(self, module: nn.Module, layer: Layer, mesh: DeviceMesh, x: Tensor, *arguments: Any) -> Tensor:
        features, group = Shard(layer.features(x.dim())), mesh.get_group()
        wanted = _of_dim(self.output_layouts, x.dim(), features)
        x = _local(x, _of_dim(self.input_layouts, x.dim(), features), features, mesh)
        if not isinstance(wanted, Shard) or not layer.scatters(wanted.dim, x.dim()):
            y = layer.multiply_rows(module, x, group, False, *arguments)
            return self._result(y, Replicate(), wanted, mesh)
        dealt = x.shape[wanted.dim]
        if dealt % group.size() != 0:
            raise ValueError(
                f"output_layouts is {self.output_layouts}, but dimension {wanted.dim} has {dealt} elements for "
                f"{group.size()} ranks; pad it to a multiple"
            )
        y = layer.multiply_rows(module, x.movedim(wanted.dim, 0), group, True, *arguments)
        return self._result(y.movedim(0, wanted.dim), wanted, wanted, mesh)


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


def _deal(
    module: nn.Module,
    name: str,
    mesh: DeviceMesh,
    placement: Placement,
    source: int | None,
    own: Callable[[str, Tensor], Tensor] = lambda _, part: part,
) -> None:
    """Makes a parameter or buffer, if there is one, a DTensor of what rank `source` has. own: of a part, what stays."""
    given = getattr(module, name)
    if given is None:
        return
    moved = given.detach().view(torch.uint8) if given.itemsize == 1 else given.detach()  # gloo has no 8-bit floats
    part = distribute_tensor(moved, mesh, [placement], src_data_rank=source).to_local().view(given.dtype)
    form = {"shape": given.shape, "stride": given.stride()}
    dealt = DTensor.from_local(own(name, part), mesh, [placement], run_check=False, **form)
    if isinstance(given, nn.Parameter):
        module.register_parameter(name, nn.Parameter(dealt, requires_grad=given.requires_grad))
    else:
        module.register_buffer(name, dealt)


def _of_dim(layout: Placement | None, dims: int, features: Placement) -> Placement:
    """Counted from the front; None are features."""
    if layout is None:
        return features
    if not isinstance(layout, Shard):
        return layout
    if not -dims <= layout.dim < dims:
        raise ValueError(f"a layout is {layout}, but x has {dims} dimensions; give one of these")
    return Shard(layout.dim % dims)


def _local(x: Tensor, given: Placement, wanted: Placement, mesh: DeviceMesh) -> Tensor:
    """What a rank multiplies, of a tensor whose layout is `given`, or of a DTensor."""
    if not isinstance(x, DTensor):
        if given == wanted:
            return x
        x = DTensor.from_local(x, mesh, [given], run_check=False)
    return x.redistribute(mesh, [wanted]).to_local()


def gather_in_8_bits(model: nn.Module) -> list[str]:
    """Has FSDP gather the weights of `Float8Linear` layers in 8 bits: a byte a value instead of two or four.

        fully_shard(model)
        gather_in_8_bits(model)      # before the first forward pass

    Each rank quantises its part, of the dtype that it has, so that results have the bits of a model that is not
    sharded. Gradients, optimizers and checkpoints see the weights as they are. Nothing of a weight is kept for
    backward, before which it is gathered again.

    Returns the layers' names: those of recipe "blockwise", whose ranks have equal multiples of 128 rows, or
    "tensorwise", where a scale goes around first, for each layer. Raises ValueError, before anything is changed, where
    another `Float8Linear` is sharded, or there is none.
    """
    found = {name: layer for name, layer in model.named_modules() if isinstance(layer, Float8Linear)}
    found = {name: layer for name, layer in found.items() if isinstance(layer.weight, DTensor)}
    for name, layer in found.items():
        if why := _gathered.refusal(layer.weight, layer.recipe):
            raise ValueError(f"{name} cannot be gathered in 8 bits: {why}")
    if not found:
        raise ValueError("no Float8Linear of this model is sharded; call convert_to_float8_training and fully_shard")
    for layer in found.values():
        _gathered.make_part(layer.weight, layer.recipe)
    return list(found)


operators.register()
