"""Linear layers that train with products of 8-bit floats."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.autograd.function import once_differentiable

from . import _dealt, _float8, _main_grad
from ._float8 import E4M3, Rows
from ._gathered import Gathered
from ._replace import Skip, replace_layers
from ._rows import as_rows, check_features
from ._scales import BLOCK
from .grouped_linear import GroupedLinear

_ops = torch.ops.cleave

# What the rows of 8-bit operands are multiples of, where tensor cores can load them.
_ALIGNMENT = 16


class _Linear(torch.autograd.Function):
    """For backward it keeps w and x transposed in 8 bits, or x as it is where that is what dw is made of."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        name: str,
        grad_dtype: torch.dtype,
        accumulate: bool,
    ) -> Tensor:
        recipe = _float8.RECIPES[name]
        needs_x, needs_weight, *_ = ctx.needs_input_grad
        wide = x if needs_weight and recipe.wide_weight_gradient else None
        x_rows, x_t = _float8.quantize(x, E4M3, recipe.tokens, needs_weight and wide is None)
        ctx.gathered = isinstance(weight, Gathered)  # again before backward, so that no other copy need be kept
        if ctx.gathered:
            weight_rows = weight_t = weight.rows()
        else:
            weight_rows, weight_t = _float8.quantize(weight, E4M3, recipe.weight, needs_x)
        ctx.save_for_backward(wide, *x_t, *weight_t)
        ctx.recipe, ctx.grad_dtype = name, grad_dtype
        # The very object: main_grad is an attribute of it.
        ctx.main_weight = weight if accumulate else None
        ctx.dtypes = x.dtype, _dealt.gradient_dtype(weight), None if bias is None else bias.dtype
        return _float8.multiply(x_rows, weight_rows, bias, out_dtype=x.dtype, use_fast_accum=recipe.fast_accum)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wide, *operands = ctx.saved_tensors
        x_t, weight_t = Rows(*operands[:2]), Rows(*operands[2:])
        x_dtype, weight_dtype, bias_dtype = ctx.dtypes
        needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        grad = grad.contiguous()
        dx = dw = db = None
        if needs_x or x_t.q is not None:
            tokens = _float8.RECIPES[ctx.recipe].tokens
            rows, grad_t = _float8.quantize(grad, ctx.grad_dtype, tokens, x_t.q is not None)
        if needs_x:
            weight_t = _float8.transposed(weight_t) if ctx.gathered else weight_t
            dx = _float8.multiply(rows, weight_t, out_dtype=x_dtype)
        if needs_weight and ctx.main_weight is not None:
            add = partial(_ops.gemm.out, grad.t(), wide) if x_t.q is None else partial(_float8.add, grad_t, x_t)
            dw = _main_grad.add(ctx.main_weight, add)
        elif wide is not None:
            dw = _ops.gemm(grad.t(), wide, out_dtype=weight_dtype)
        elif needs_weight:
            dw = _float8.multiply(grad_t, x_t, out_dtype=weight_dtype)
        if needs_bias:
            db = grad.sum(0, dtype=torch.float32).to(bias_dtype)
        return dx, dw, db, None, None, None


@_disable_dynamo  # torch.compiler.disable, which imports the compiler only when it is needed
def _apply_with_main_grad(x: Tensor, weight: Tensor, *others: Any) -> Tensor:
    _main_grad.check(weight)
    return _Linear.apply(x, weight, *others, True)


class Float8Linear(nn.Linear):
    """y = x @ weight.T + bias, multiplied in 8-bit floats forward and backward; for training.

    The parameters, and so the state_dict, are nn.Linear's, in float32, bfloat16 or float16: master weights, which each
    call quantises anew. x is [..., in_features], of any of these dtypes (under torch.autocast of its dtype), and y is
    [..., out_features], of x's dtype. A gradient has the dtype of its tensor, or `weight.grad_dtype` if that is set; in
    float32 it is the unrounded sums. Features and tokens should be multiples of 16: others run on slower kernels.

    recipe: what shares a scale, by torchao's names. Scales are computed in every call, and stay on the device.

    | recipe | x, dy | weight | dw |
    |---|---|---|---|
    | `"blockwise"` | 1 x 128 | 128 x 128 | of dy and x in blocks along tokens |
    | `"rowwise"` | row | row | of dy and x by columns |
    | `"rowwise_with_gw_hp"` | row | row | of dy and x in their own dtypes |
    | `"tensorwise"` | all | all | the same 8 bits, transposed |

    "blockwise" reads x and dy once each, for both of their products; "rowwise" makes transposed copies. All recipes but
    "blockwise" sum y with use_fast_accum, as torchao does.

    grad_dtype: dy's, `"float8_e4m3fn"` or `"float8_e5m2"`; defaults to float8_e5m2 for "tensorwise" and float8_e4m3fn
    for the others. x and weight are float8_e4m3fn.

    accumulate_main_grad: the product itself adds the weight's gradient to `weight.main_grad`, as in `GroupedLinear`.

    Backward keeps a byte per element of x and of weight ("rowwise_with_gw_hp": x itself). Legal in CUDA graphs once the
    same call has run; compiles to one graph; repeatable bit for bit; differentiable once. Everything that shares a
    scale with a NaN or an infinity becomes NaN.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        recipe: str = "blockwise",
        grad_dtype: str | torch.dtype | None = None,
        accumulate_main_grad: bool = False,
    ) -> None:
        """Initialised as nn.Linear. ValueError for an unknown recipe or grad_dtype."""
        chosen = _float8.recipe_of(recipe)
        super().__init__(in_features, out_features, bias, device, dtype)
        self.recipe = recipe
        self.grad_dtype = _float8.grad_dtype_of(grad_dtype, chosen)
        self.accumulate_main_grad = accumulate_main_grad

    @classmethod
    def from_float(
        cls,
        linear: nn.Linear,
        recipe: str = "blockwise",
        *,
        grad_dtype: str | torch.dtype | None = None,
        accumulate_main_grad: bool = False,
    ) -> Float8Linear:
        """Converts a layer, and shares its parameters, so that existing optimizers go on working."""
        options = {"recipe": recipe, "grad_dtype": grad_dtype, "accumulate_main_grad": accumulate_main_grad}
        options["device"] = "meta"
        layer = cls(linear.in_features, linear.out_features, linear.bias is not None, **options)
        layer.weight, layer.bias = linear.weight, linear.bias
        return layer.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        check_features(x, self.in_features)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        tokens = as_rows(x.reshape(-1, self.in_features))
        if torch.is_grad_enabled():
            arguments = tokens, self.weight, self.bias, self.recipe, self.grad_dtype
            y = _apply_with_main_grad(*arguments) if self.accumulate_main_grad else _Linear.apply(*arguments, False)
        else:
            y = self._multiply(tokens)
        return _dealt.shaped(y, *x.shape[:-1], self.out_features)

    def _multiply(self, tokens: Tensor) -> Tensor:
        recipe = _float8.RECIPES[self.recipe]
        rows, _ = _float8.quantize(tokens, E4M3, recipe.tokens, False)
        if isinstance(self.weight, Gathered):
            weight = self.weight.rows()
        else:
            weight, _ = _float8.quantize(self.weight, E4M3, recipe.weight, False)
        return _float8.multiply(rows, weight, self.bias, out_dtype=tokens.dtype, use_fast_accum=recipe.fast_accum)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, recipe={self.recipe}, grad_dtype={self.grad_dtype}"


def convert_to_float8_training(
    model: nn.Module,
    recipe: str = "blockwise",
    *,
    grad_dtype: str | torch.dtype | None = None,
    skip: Skip = (),
) -> list[str]:
    """Makes the linear layers of a model train in 8 bits, in place; returns their names.

    nn.Linear layers become Float8Linear with the very same parameters, so optimizers and checkpoints keep working;
    with "blockwise" `GroupedLinear` layers, also those of `MoE`, get this recipe. Left alone are classes derived from
    nn.Linear, layers whose weight is computed in each call, as by weight_norm, and those that 8-bit tensor cores do not
    fit: features that are no multiples of 16, of groups no multiples of 128. Hooks go on hanging on what takes a
    layer's place.

    recipe, grad_dtype: as in `Float8Linear`. skip: names of layers to leave alone, with * and ? as in file names
    ("lm_head", "*.router"), or a function of name and layer; one of a layer's names is enough. A name that matches no
    such layer is a ValueError. Heads and routers are often worth their 16 bits.
    """
    if type(model) is nn.Linear:
        raise ValueError("model is itself a linear layer; use Float8Linear.from_float(model)")
    grad_dtype = _float8.grad_dtype_of(grad_dtype, _float8.recipe_of(recipe))

    def make(_: str, layer: nn.Module) -> nn.Module:
        if isinstance(layer, GroupedLinear):
            layer.set_recipe(recipe, grad_dtype)
            return layer
        return Float8Linear.from_float(layer, recipe, grad_dtype=grad_dtype)

    types = (nn.Linear, GroupedLinear) if recipe == "blockwise" else (nn.Linear,)
    return replace_layers(model, types, make, skip, spare=_does_not_fit)


def _does_not_fit(layer: nn.Linear | GroupedLinear) -> bool:
    features = _ALIGNMENT if isinstance(layer, nn.Linear) else BLOCK
    return layer.in_features % _ALIGNMENT != 0 or layer.out_features % features != 0
