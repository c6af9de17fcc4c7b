"""Linear layers of many experts at once."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .. import _core
from . import _dealt, _float8, _float8_grouped, _main_grad
from ._operators.grouped_autograd import Groups, gradient_of_bias
from ._operators.transforms import is_transformed
from ._rows import check_features
from ._scales import BLOCK

_grouped_gemm = torch.ops.cleave.grouped_gemm


class _Linear(torch.autograd.Function):
    """The gradients that the operator has by itself, in less host time, or added to main_grad."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, offs: Tensor, bias: Tensor | None, accumulate: bool) -> Tensor:
        ctx.save_for_backward(x, weight, offs, bias)
        # The very object: main_grad is an attribute of it.
        ctx.main_weight = weight if accumulate else None
        return _grouped_gemm.default(x, _dealt.own(weight).mT, offs, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, offs, bias = ctx.saved_tensors
        needs_x, needs_weight, _, needs_bias, _ = ctx.needs_input_grad
        grad = grad.contiguous()
        dx = dw = db = None
        if needs_x:  # under autocast forward multiplied a cast weight
            dx = _grouped_gemm.default(grad, _dealt.own(weight).to(grad.dtype), offs)
        if needs_weight:
            dw = weight_gradient(weight, ctx.main_weight, grad, x, offs)
        if needs_bias:
            db = gradient_of_bias(bias, grad, Groups(offs), x, _dealt.own(weight))
        return dx, dw, None, db, None


def weight_gradient(weight: Tensor, main_weight: Tensor | None, grad: Tensor, x: Tensor, offs: Tensor) -> Tensor | None:
    """grad.T @ x of each group, or what autograd gets where it is added to the main_grad of main_weight."""
    if main_weight is None:
        return _dealt.like(_grouped_gemm.default(grad.mT, x, offs, None, _dealt.gradient_dtype(weight)), weight)
    return _main_grad.add(main_weight, partial(_grouped_gemm.out, grad.mT, x, offs))


class GroupedLinear(nn.Module):
    """y[rows of g] = x[rows of g] @ weight[g].T + bias[g], for every group g, as one product.

    x is [tokens, in_features], sorted by group, offs [num_groups] where each group's rows end
    (int32 or int64, on x's device: `cleave.moe.expert_offsets` makes it). y is
    [tokens, out_features], of x's dtype, which is the weight's; rows past offs[-1] are zero, and so
    are their gradients. Groups may have any size; the weight's gradient of an empty one is zero.

    One launch forward and two backward, legal in CUDA graphs once they have run with the same
    number of tokens, whatever offs holds when they are replayed; repeatable bit for bit.

    Parameters:
        weight: [num_groups, out_features, in_features].
        bias: [num_groups, out_features], or None.

    accumulate_main_grad: the product itself adds the weight's gradient to `weight.main_grad`, float32, as Megatron-LM
    and TransformerEngine do with gradient_accumulation_fusion. That saves the gradient in the weight's dtype, and a
    pass over both. The caller provides `main_grad`, float32 [num_groups, out_features, in_features], before backward,
    and zeroes it between steps, or sets `weight.overwrite_main_grad`. `weight.grad` stays as it is, but if the engine
    has set `weight.grad_added_to_main_grad`, that becomes True, and its hooks get a `weight.grad` that nobody may read
    (zeros with `weight.zero_out_wgrad`). For eager mode and CUDA graphs; torch.compile breaks its graph there. Where
    gradients must be in `weight.grad`, as for FSDP and DTensors, `weight.grad_dtype = torch.float32` computes and
    accumulates them in float32 (torch 2.13; eager mode).

    recipe: "blockwise" runs the three products in 8-bit floats, as `Float8Linear` does (see there). x and y's gradient
    are quantised in blocks of 1x128, which for the weight's gradient run along each group's own tokens, and the weight
    in blocks of 128x128. out_features must be a multiple of 128. Groups may still have any size, without padding, and
    nothing waits for the GPU.
    """

    def __init__(
        self,
        num_groups: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        accumulate_main_grad: bool = False,
        recipe: str | None = None,
        grad_dtype: str | torch.dtype | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Initialised like nn.Linear, group by group. grad_dtype: with a recipe, as in `Float8Linear`.

        ValueError: no groups, or more than a launch has.
        """
        super().__init__()
        if num_groups not in range(1, _core.most_groups + 1):
            raise ValueError(f"num_groups is {num_groups!r}; it must be from 1 to {_core.most_groups}")
        self.num_groups = num_groups
        self.in_features = in_features
        self.out_features = out_features
        self.accumulate_main_grad = accumulate_main_grad
        made = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(num_groups, out_features, in_features, **made))
        self.register_parameter("bias", nn.Parameter(torch.empty(num_groups, out_features, **made)) if bias else None)
        self.reset_parameters()
        self.set_recipe(recipe, grad_dtype)

    def set_recipe(self, recipe: str | None, grad_dtype: str | torch.dtype | None = None) -> None:
        """Whether products are of 8 bits from now on; parameters stay as they are."""
        if recipe not in (None, "blockwise"):
            raise ValueError(f"recipe is {recipe!r}; products of groups have 'blockwise', or None for x's own dtype")
        if recipe and self.out_features % BLOCK:
            raise ValueError(
                f"out_features is {self.out_features} with recipe {recipe!r}; it must be a multiple of "
                f"{BLOCK}, so that no block is of two experts: pad it, or leave recipe out"
            )
        self.recipe = recipe
        self.grad_dtype = _float8.grad_dtype_of(grad_dtype, _float8.RECIPES["blockwise"]) if recipe else None

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, x: Tensor, offs: Tensor | None = None, *, alignment: int | None = None, counts: Tensor | None = None
    ) -> Tensor:
        """alignment, counts: groups with gaps, as in `cleave.grouped_gemm`: each begins at a multiple, or x is
        [num_groups, room, in_features]."""
        weight, bias, accumulate = _dealt.own(self.weight), _dealt.own(self.bias), self.accumulate_main_grad
        groups, _, features = weight.shape  # of this rank, where they are dealt
        check_features(x, features)
        if offs is not None and offs.shape[:1] != (groups,):
            raise ValueError(f"offs is {tuple(offs.shape)}; it must be ({groups},), where each group ends")
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        if alignment is not None or counts is not None:
            return self._with_gaps(x, offs, alignment, counts)
        if torch.is_grad_enabled():
            if accumulate:
                _main_grad.check(self.weight)
            if self.recipe:
                return _float8_grouped.Linear.apply(x, weight, offs, bias, self.grad_dtype, accumulate)
            if accumulate or not (torch.compiler.is_compiling() or is_transformed()):
                return _Linear.apply(x, self.weight, offs, bias, accumulate)
        return self.multiply(x, offs)

    def multiply(
        self,
        x: Tensor,
        offs: Tensor,
        activation: str = "none",
        gather: Tensor | None = None,
        top_k: int = 1,
        **gaps: Any,
    ) -> Tensor:
        """activation(y), by the product itself; with "swiglu" out_features are gates and then as many ups. In 8 bits
        without gradients, and of the rows of x that gather names, as in `cleave.grouped_gemm`, too."""
        weight, bias = _dealt.own(self.weight), _dealt.own(self.bias)
        if any(given is not None for given in gaps.values()):
            return self._with_gaps(x, offs, **gaps, activation=activation)
        if self.recipe:
            return _float8_grouped.multiply(x, weight, offs, bias, activation, gather, top_k)
        if activation == "none" and gather is None:
            return _grouped_gemm.default(x, weight.mT, offs, bias)
        options = {"activation": activation, "gather": gather, "top_k": top_k}
        return _grouped_gemm.full(x, weight.mT, offs, bias, **options)

    def _with_gaps(
        self,
        x: Tensor,
        offs: Tensor | None,
        alignment: int | None,
        counts: Tensor | None,
        activation: str = "none",
    ) -> Tensor:
        if self.recipe or self.accumulate_main_grad:
            option = f"recipe is {self.recipe!r}" if self.recipe else "accumulate_main_grad is True"
            raise NotImplementedError(
                f"{option}, which groups with gaps between them do not have; leave it out, or use a dispatcher without "
                "gaps"
            )
        weight, bias = _dealt.own(self.weight), _dealt.own(self.bias)
        return _grouped_gemm.full(x, weight.mT, offs, bias, counts=counts, alignment=alignment, activation=activation)

    def extra_repr(self) -> str:
        return (
            f"num_groups={self.num_groups}, in_features={self.in_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, "
            f"accumulate_main_grad={self.accumulate_main_grad}, recipe={self.recipe}"
        )
