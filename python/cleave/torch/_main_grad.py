"""weight.main_grad, to which products add gradients themselves, as Megatron-LM and TransformerEngine mean it.

Attributes of a weight that say how: `main_grad`, a tensor of its shape. `overwrite_main_grad`: what is there is
replaced. `grad_added_to_main_grad`: if there is one, an engine's hooks wait for a gradient by autograd, too; it becomes
True, and they get one that nobody may read, of zeros with `zero_out_wgrad`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import _dealt


def check(weight: Tensor) -> None:
    """Raises RuntimeError for a weight whose gradient is looked for elsewhere."""
    if _dealt.is_dealt(weight):
        raise RuntimeError(
            "weight is a DTensor, whose gradient is looked for in weight.grad, but accumulate_main_grad is "
            "True; make it False, and set weight.grad_dtype = torch.float32 for sums in float32"
        )


def add(weight: Tensor, multiply: Callable[..., Any]) -> Tensor | None:
    """Has multiply(c=, out=) write c and the gradient to out; what autograd gets instead of that."""
    main_grad = getattr(weight, "main_grad", None)
    if main_grad is None:
        raise RuntimeError(
            "weight has no main_grad; set weight.main_grad = torch.zeros_like(weight, dtype=torch.float32), or "
            "accumulate_main_grad = False, as under FSDP, which reduces weight.grad alone: there "
            "cleave.torch.parallel.sum_gradients_in_float32(model) has sums in float32"
        )
    multiply(c=None if getattr(weight, "overwrite_main_grad", False) else main_grad, out=main_grad)
    if not hasattr(weight, "grad_added_to_main_grad"):
        return None
    weight.grad_added_to_main_grad = True
    make = torch.zeros_like if getattr(weight, "zero_out_wgrad", False) else torch.empty_like
    return make(weight)
