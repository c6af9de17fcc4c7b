"""SwiGLU between two layers that train in 8-bit floats, as a part of their products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from . import _dealt, _float8, _main_grad, _swiglu
from ._float8 import E4M3, Rows
from ._gathered import Gathered
from ._scales import BLOCK
from .float8 import Float8Linear, gradient_of_weight
from .gate import SWIGLU


class Float8SwiGLU(nn.Module):
    """down(silu(gate) * up) of two `Float8Linear` layers without biases, where gate_up makes gate and up of x.

    gate_up.weight is [2 * hidden_features, in_features], the rows of gate and then those of up; down.weight is
    [out_features, hidden_features]. With the recipe "blockwise", x of 16 bits and hidden_features a multiple of 128,
    what is between the products is a part of them: the first one stores silu(gate) * up in 8 bits, as the second reads
    it, and gate and up for backward, where the data gradient of the second product makes those of gate and up in its
    epilogue, and silu(gate) * up again for the weight's gradient. silu(gate) * up is then rounded once, to 8 bits.
    Otherwise the layers run one after the other.

    Parameters are those of the two layers, and so are the arguments.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        """out_features: in_features without one. options: recipe, grad_dtype, accumulate_main_grad."""
        super().__init__()
        options |= {"bias": False, "device": device, "dtype": dtype}
        self.gate_up = Float8Linear(in_features, 2 * hidden_features, **options)
        self.down = Float8Linear(hidden_features, in_features if out_features is None else out_features, **options)

    @classmethod
    def from_float(cls, gate_up: nn.Linear, down: nn.Linear, **options: Any) -> Float8SwiGLU:
        """Joins two layers of a model that keeps gates and ups in one; shares their parameters."""
        if gate_up.out_features != 2 * down.in_features:
            raise ValueError(
                f"gate_up has {gate_up.out_features} outputs and down {down.in_features} inputs; gate_up must have "
                "twice as many, the gates and then the ups"
            )
        if gate_up.bias is not None or down.bias is not None:
            raise ValueError("gate_up or down has a bias; Float8SwiGLU serves layers without")
        layer = cls(gate_up.in_features, down.in_features, down.out_features, device="meta", **options)
        layer.gate_up.weight, layer.down.weight = gate_up.weight, down.weight
        return layer.train(gate_up.training)

    def forward(self, x: Tensor) -> Tensor:
        if not self._is_served(x):
            return self.down(SWIGLU(self.gate_up(x)))
        weights, added = zip(
            *((layer.weight, layer.accumulate_main_grad) for layer in (self.gate_up, self.down)), strict=True
        )
        for weight, adds in zip(weights, added, strict=True):
            if adds:
                _main_grad.check(weight)
        tokens = x.reshape(-1, x.shape[-1]).contiguous()
        y = _SwiGLU.apply(tokens, *weights, self.gate_up.grad_dtype, added)
        return _dealt.shaped(y, *x.shape[:-1], self.down.out_features)

    def _is_served(self, x: Tensor) -> bool:
        layers = self.gate_up, self.down
        if x.shape[-1] != self.gate_up.in_features or not torch.is_grad_enabled():
            return False
        if x.dtype not in _swiglu.KEEPING or torch.is_autocast_enabled(x.device.type):
            return False
        if any(_dealt.is_dealt(layer.weight) or isinstance(layer.weight, Gathered) for layer in layers):
            return False
        if any(layer.accumulate_main_grad for layer in layers) and torch.compiler.is_compiling():
            return False
        same = all(
            getattr(*of) == getattr(self.down, of[1]) for of in ((self.gate_up, "recipe"), (self.gate_up, "grad_dtype"))
        )
        return same and self.down.recipe == "blockwise" and self.down.in_features % BLOCK == 0


class _SwiGLU(torch.autograd.Function):
    """As two of float8's _Linear. For backward it keeps gate and up, and x and the weights transposed in 8 bits."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gate_up: Tensor, down: Tensor, grad_dtype: torch.dtype, added: tuple[bool, bool]
    ) -> Tensor:
        recipe = _float8.RECIPES["blockwise"]
        needs_x, needs_gate_up, *_ = ctx.needs_input_grad
        rows, x_t = _float8.quantize(x, E4M3, recipe.tokens, needs_gate_up)
        first, first_t = _float8.quantize(gate_up, E4M3, recipe.weight, needs_x)
        second, second_t = _float8.quantize(down, E4M3, recipe.weight, True)
        q, scale, gate, up = _swiglu.multiply_and_quantize(rows.q, rows.scale, first.q, first.scale, x.dtype)
        ctx.save_for_backward(gate, up, *x_t, *first_t, *second_t)
        ctx.grad_dtype, ctx.dtypes = grad_dtype, (_dealt.gradient_dtype(gate_up), _dealt.gradient_dtype(down))
        # The very objects: main_grad is an attribute of them.
        ctx.main = [weight if adds else None for weight, adds in zip((gate_up, down), added, strict=True)]
        return _float8.multiply(Rows(q, scale), second, out_dtype=x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, *operands = ctx.saved_tensors
        x_t, first_t, second_t = (Rows(*operands[i : i + 2]) for i in range(0, 6, 2))
        needs_x, needs_gate_up, needs_down, *_ = ctx.needs_input_grad
        tokens = _float8.RECIPES["blockwise"].tokens
        of_x = of_gate_up = of_down = None
        rows, grad_t = _float8.quantize(grad.contiguous(), ctx.grad_dtype, tokens, needs_down)
        of_sums, *hidden = _swiglu.dense_backward(*rows, *second_t, gate, up, needs_down)
        if needs_down:
            _, hidden_t = _float8.quantize(*hidden, E4M3, tokens, True)
            of_down = gradient_of_weight(grad_t, hidden_t, ctx.dtypes[1], ctx.main[1])
        if needs_x or needs_gate_up:
            sums, sums_t = _float8.quantize(of_sums, ctx.grad_dtype, tokens, needs_gate_up)
        if needs_gate_up:
            of_gate_up = gradient_of_weight(sums_t, x_t, ctx.dtypes[0], ctx.main[0])
        if needs_x:
            of_x = _float8.multiply(sums, first_t, out_dtype=gate.dtype)
        return of_x, of_gate_up, of_down, None, None
