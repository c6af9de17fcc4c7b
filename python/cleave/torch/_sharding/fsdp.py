"""Gradients of layers that FSDP shards, in float32 from the product that makes them to the optimizer."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

Owned = list[tuple[nn.Module, str]]  # layers, and the names that parameters have there


def sum_gradients_in_float32(model: nn.Module) -> list[str]:
    """Has gradients of layers that FSDP shards made, added up and reduced in float32, whatever dtype they multiply in.

        fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        sum_gradients_in_float32(model)

    Weights' gradients of `Float8Linear`, `GroupedLinear`, `MoE`, convolutions and an nn.Linear that
    `cleave.torch.parallel` deals leave their products unrounded; those of other layers are rounded as their operators
    round them. Steps without set_requires_gradient_sync are added up in float32, too. What travels is 4 bytes a value:
    reduce_dtype of a policy says otherwise where it is not param_dtype.

    It sets `grad_dtype` of the parameters that FSDP has gathered, before each forward pass; torch 2.13 or later.
    Results do not change, nor do parameters.

    Returns the names of the parameters. Raises ValueError where one is not float32, or none is sharded;
    NotImplementedError with an earlier torch.
    """
    if not hasattr(torch.Tensor, "grad_dtype"):
        raise NotImplementedError(
            f"torch is {torch.__version__}, whose tensors have no grad_dtype; use torch 2.13 or later"
        )
    innermost: dict[nn.Parameter, tuple[FSDPModule, str]] = {}
    for name, module in model.named_modules():  # parents first
        if isinstance(module, FSDPModule):
            for own, parameter in module.named_parameters(name):
                innermost[parameter] = module, own
    if not innermost:
        raise ValueError("no layer of this model is sharded; call fully_shard first")
    owned: dict[nn.Module, Owned] = defaultdict(list)
    for parameter, (module, name) in innermost.items():
        if parameter.dtype != torch.float32:
            raise ValueError(
                f"{name} is {parameter.dtype}, to which FSDP rounds its gradient; make the model float32, and pass "
                "fully_shard mp_policy=MixedPrecisionPolicy(param_dtype=...)"
            )
        layer, _, leaf = name.rpartition(".")
        owned[module].append((model.get_submodule(layer), leaf))
    for module, parameters in owned.items():
        module.register_forward_pre_hook(partial(_ask, parameters))  # behind FSDP's, which gathers
    return [name for _, name in innermost.values()]


def _ask(parameters: Owned, *_: Any) -> None:
    for layer, name in parameters:
        getattr(layer, name).grad_dtype = torch.float32
