"""Linear layers of many experts at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ._grouped_autograd import Groups, gradient_of_bias

_grouped_gemm = torch.ops.cleave.grouped_gemm


class _Linear(torch.autograd.Function):
    """The gradients that the operator has by itself, in less host time, or added to main_grad."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, offs: Tensor, bias: Tensor | None, accumulate: bool) -> Tensor:
        ctx.save_for_backward(x, weight, offs, bias)
        # The very object: main_grad is an attribute of it.
        ctx.main_weight = weight if accumulate else None
        return _grouped_gemm.default(x, weight.mT, offs, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, offs, bias = ctx.saved_tensors
        needs_x, needs_weight, _, needs_bias, _ = ctx.needs_input_grad
        grad = grad.contiguous()
        dx = dw = db = None
        if needs_x:
            dx = _grouped_gemm.default(grad, weight, offs)
        if needs_weight and ctx.main_weight is not None:
            _add_to_main_grad(ctx.main_weight, grad, x, offs)
        elif needs_weight:
            dw = _grouped_gemm.default(grad.mT, x, offs)
        if needs_bias:
            db = gradient_of_bias(bias, grad, Groups(offs), x, weight)
        return dx, dw, None, db, None


def _add_to_main_grad(weight: Tensor, grad: Tensor, x: Tensor, offs: Tensor) -> None:
    main_grad = getattr(weight, "main_grad", None)
    if main_grad is None:
        raise RuntimeError(
            "weight has no main_grad; set weight.main_grad = torch.zeros_like(weight, "
            "dtype=torch.float32), or accumulate_main_grad = False"
        )
    _grouped_gemm.out(grad.mT, x, offs, c=main_grad, out=main_grad)
    weight.grad_added_to_main_grad = True


class GroupedLinear(nn.Module):
    """y[rows of g] = x[rows of g] @ weight[g].T + bias[g], for every group g, as one product.

    x is [tokens, in_features], sorted by group, offs [num_groups] where each group's rows end
    (int32 or int64, on x's device: `cleave.moe.expert_offsets` makes it). y is
    [tokens, out_features], of x's dtype, which is the weight's; rows past offs[-1] are zero, and so
    are their gradients. Groups may have any size; the weight's gradient of an empty one is zero.

    One launch forward and two backward, legal in CUDA graphs once they have run with the same
    number of tokens, whatever offs holds when they are replayed; repeatable bit by bit.

    Parameters:
        weight: [num_groups, out_features, in_features].
        bias: [num_groups, out_features], or None.

    accumulate_main_grad: the weight's gradient is added to `weight.main_grad`, in float32 by the
    product itself, as Megatron-LM and TransformerEngine do with gradient_accumulation_fusion: saves
    the gradient in the weight's dtype and a pass over both. `main_grad` is the caller's: float32
    [num_groups, out_features, in_features], there before backward, zeroed between steps.
    `weight.grad` stays as it is; `weight.grad_added_to_main_grad` becomes True. For eager mode and
    CUDA graphs: torch.compile breaks its graph there.
    """

    def __init__(
        self,
        num_groups: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        accumulate_main_grad: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Initialised like nn.Linear, group by group."""
        super().__init__()
        self.num_groups = num_groups
        self.in_features = in_features
        self.out_features = out_features
        self.accumulate_main_grad = accumulate_main_grad
        made = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(num_groups, out_features, in_features, **made))
        self.register_parameter("bias", nn.Parameter(torch.empty(num_groups, out_features, **made)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor, offs: Tensor) -> Tensor:
        weight, bias, accumulate = self.weight, self.bias, self.accumulate_main_grad
        if torch.is_grad_enabled() and (accumulate or not torch.compiler.is_compiling()):
            return _Linear.apply(x, weight, offs, bias, accumulate)
        return _grouped_gemm.default(x, weight.mT, offs, bias)

    def extra_repr(self) -> str:
        return (
            f"num_groups={self.num_groups}, in_features={self.in_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, "
            f"accumulate_main_grad={self.accumulate_main_grad}"
        )
