"""Linear layers that multiply 8-bit weights by 8-bit activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .._weights.formats import FORMATS
from ._casts import moves_only
from ._eight_bits import Dtype, parse_dtype
from ._given_scales import check_smooth, static_scale
from ._registered import register_buffers
from ._replace import Skip, check_names, replace_layers
from ._rows import as_rows, check_features
from ._scales import ACTIVATIONS, check_granularity, scale_shape, shaped_scale
from ._static_weights import StaticWeights
from .mixed_bytes_linear import W4A8Linear
from .mixed_linear import W4A16Linear

_quantize = torch.ops.cleave.quantize.default
_quantize_static = torch.ops.cleave.quantize_static.default

Activation = str | float | Tensor


class W8A8Linear(StaticWeights):
    """y = x @ weight.T + bias in 8 bits, for inference: without gradients.

    The weight is quantised once, with a scale per output or per block. Activations are quantised in each call: with a
    scale per token (row of x); with one given scale, which saves reading x to find its largest value; or, if the
    weight has block scales, with a scale per 128 neighbours of a token. A call is two kernels, the second of which
    starts while the first ends. Both are legal in CUDA graphs once they have run on the same device with the same
    number of tokens, or were prepared by `prepare`. Results are repeatable bit for bit.

    x is [..., in_features], float16, bfloat16 or float32; y is [..., out_features], of x's dtype. In place of x the
    layer takes rows that are quantised already, by `RMSNormQuantize` for several layers at once, say: `Quantized`, or
    a pair (q, scale), which gives a bfloat16 y. Their dtype must be the weight's, and they must be smoothed if the
    layer smooths.

    Everything is in buffers, and so in the state_dict:
        weight: [out_features, in_features], int8 or float8_e4m3fn, by rows.
        weight_scale: float32; [out_features], or by granularity: "block_1x128" [out_features, ceil(in_features / 128)],
            "block_128x128" [ceil(out_features / 128), ceil(in_features / 128)].
        bias: [out_features], or None.
        activation_scale: [1], float32, or None if scales are per token.
        smooth: [in_features], float32, or None. It moves the magnitude of a few large channels of the
            activations into the weight: x / smooth and weight * smooth are quantised.
    Casting the module (`.half()`) casts the bias only.

    static_weights promises that no work that is still running writes the buffers, so that the product may begin to load
    the weight while the launch ahead, the quantisation, still runs. The layer waits once after it is created, copied or
    moved, or loads a state_dict; after other writes (`weight.copy_(...)`, say) call `wait_for_weights()`.
    """

    _product = staticmethod(torch.ops.cleave.scaled_gemm.full)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: Dtype = "int8",
        activation: str = "dynamic",
        granularity: str = "row",
        smooth: bool = False,
        use_fast_accum: bool = False,
        static_weights: bool = True,
        device: Any = None,
    ) -> None:
        """Creates an empty layer, to load a state_dict into; `from_linear` converts a layer.

        activation: "dynamic" (scales are computed in each call) or "static". granularity: what shares a scale of the
        weight, "row", "block_1x128" or "block_128x128". use_fast_accum: as in torch._scaled_mm, for float8_e4m3fn
        only: faster, with sums of about 14 bits.
        """
        super().__init__()
        if activation not in ("dynamic", "static"):
            raise ValueError(f'activation is {activation!r}; it must be "dynamic" or "static"')
        check_granularity(granularity)
        if granularity != "row" and activation == "static":
            raise ValueError(f'activation is static, but granularity is {granularity!r}; pass "dynamic", or "row"')
        weight_dtype = parse_dtype(dtype)
        if use_fast_accum and weight_dtype == torch.int8:
            raise ValueError("use_fast_accum is True, but dtype is int8; it is for float8_e4m3fn")
        self.in_features = in_features
        self.out_features = out_features
        self.granularity = granularity
        self.activation_granularity = ACTIVATIONS[granularity]
        self.use_fast_accum = use_fast_accum
        self.static_weights = static_weights

        def empty(*shape: int, dtype: torch.dtype | None = torch.float32) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        register_buffers(
            self,
            weight=empty(out_features, in_features, dtype=weight_dtype),
            weight_scale=empty(*scale_shape(granularity, out_features, in_features)),
            bias=empty(out_features, dtype=None) if bias else None,
            activation_scale=empty(1) if activation == "static" else None,
            smooth=empty(in_features) if smooth else None,
        )

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        dtype: Dtype = "int8",
        activation: Activation = "dynamic",
        *,
        granularity: str = "row",
        smooth: Tensor | None = None,
        use_fast_accum: bool = False,
        static_weights: bool = True,
    ) -> W8A8Linear:
        """Converts a layer to 8 bits, on its device.

        dtype: "int8" or "float8_e4m3fn". activation: "dynamic" for a scale per token, or one scale
        for all activations: the largest |x| (after smoothing) / 127, or / 448 for float8_e4m3fn;
        larger values saturate. granularity: what shares a scale of the weight. smooth: positive, one per input
        channel, such as the first result of `cleave.smooth(amax, linear.weight)`.
        """
        dynamic = isinstance(activation, str)
        if dynamic and activation != "dynamic":
            raise ValueError(f'activation is {activation!r}; it must be "dynamic", or the scale itself')
        weight = linear.weight.detach()
        if weight.dim() != 2:
            raise TypeError(f"linear is {type(linear).__name__}, whose weight is no matrix; it must be an nn.Linear")
        if smooth is not None:
            check_smooth(smooth, linear.in_features)
            smooth = smooth.to(weight.device, torch.float32, copy=True)
            weight = weight.float() * smooth
        check_granularity(granularity)
        q, scale = _quantize(weight.contiguous(), parse_dtype(dtype), granularity)
        return cls.from_quantized(
            q,
            scale,
            None if linear.bias is None else linear.bias.detach().clone(),
            None if dynamic else static_scale(activation),
            granularity=granularity,
            smooth=smooth,
            use_fast_accum=use_fast_accum,
            static_weights=static_weights,
        )

    @classmethod
    def from_quantized(
        cls,
        weight: Tensor,
        weight_scale: Tensor,
        bias: Tensor | None = None,
        activation_scale: Tensor | None = None,
        *,
        granularity: str = "row",
        smooth: Tensor | None = None,
        use_fast_accum: bool = False,
        static_weights: bool = True,
    ) -> W8A8Linear:
        """The layer of a weight that is in 8 bits already, which it keeps, on its device.

        weight: [out_features, in_features], int8 or float8_e4m3fn. weight_scale: of `granularity`, any type of float,
        with a last dimension of 1 or without; one value serves all rows. activation_scale: one value, or None for
        scales that are found in each call.
        """
        out_features, in_features = weight.shape
        layer = cls(
            in_features,
            out_features,
            bias is not None,
            dtype=weight.dtype,
            activation="dynamic" if activation_scale is None else "static",
            granularity=granularity,
            smooth=smooth is not None,
            use_fast_accum=use_fast_accum,
            static_weights=static_weights,
            device="meta",
        )
        device = weight.device
        layer.weight, layer.bias, layer.smooth = weight, bias, smooth
        layer.weight_scale = shaped_scale(weight_scale, granularity, out_features, in_features).to(device)
        if activation_scale is not None:
            layer.activation_scale = activation_scale.detach().to(device, torch.float32).reshape(1).clone()
        layer.wait_for_weights()
        return layer

    def forward(self, x: Tensor | tuple[Any, ...]) -> Tensor:
        if isinstance(x, tuple):
            if len(x) < 2:
                raise TypeError("x is a tuple of one; pass q and scale, as `Quantized` has them, or a tensor")
            return self._multiply(*x)
        flat = isinstance(x, Tensor) and x.dim() == 2 and x.size(1) == self.in_features
        if not flat:
            check_features(x, self.in_features)
        tokens = as_rows(x if flat else x.reshape(-1, self.in_features))
        buffers = self._buffers  # as attributes, they cost half a microsecond each
        scale, smooth, dtype = buffers["activation_scale"], buffers["smooth"], buffers["weight"].dtype
        # Keywords would cost as much again.
        if scale is None:
            q, scale = _quantize(tokens, dtype, self.activation_granularity, smooth)
        else:
            q = _quantize_static(tokens, scale, dtype, "tensor", smooth)
        y = self._rows(q, scale, x.dtype)
        return y if flat else y.view(*x.shape[:-1], self.out_features)

    def _multiply(self, q: Tensor, scale: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        if q.dtype != self.weight.dtype:
            raise ValueError(f"x is quantised to {q.dtype}, but the weight is {self.weight.dtype}; quantise it to that")
        check_features(q, self.in_features)
        rows = q if q.dim() == 2 else q.reshape(-1, self.in_features)
        y = self._rows(rows, scale, dtype)
        return y if rows is q else y.view(*q.shape[:-1], self.out_features)

    def _rows(self, q: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
        """y of a matrix that is quantised."""
        buffers = self._buffers
        weight_scale = buffers["weight_scale"]
        if self.granularity != "row":
            weight_scale = weight_scale.t()
        weight, bias = buffers["weight"].t(), buffers["bias"]
        return self._product(
            q, weight, scale, weight_scale, bias, dtype, self.use_fast_accum, static_b=self.static_weights
        )

    def prepare(self, example: Tensor | int, dtype: torch.dtype = torch.bfloat16) -> None:
        """Compiles what a call needs, so that it may be captured: by making that call.

        example: an input, or a number of tokens, of `dtype`. How a product is best split depends on
        the number of tokens, so each number that is captured has kernels of its own; `cleave.prepare`
        serves a range of them.
        """
        if isinstance(example, int):
            example = self.weight.new_zeros((example, self.in_features), dtype=dtype)
        with torch.no_grad():
            self(example)

    def extra_repr(self) -> str:
        activation = "dynamic" if self.activation_scale is None else "static"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, dtype={self.weight.dtype}, activation={activation}, "
            f"granularity={self.granularity}, "
            f"smooth={self.smooth is not None}, static_weights={self.static_weights}"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> W8A8Linear:
        return super()._apply(moves_only(fn, self.bias), recurse)


def replace_linears(
    model: nn.Module,
    dtype: Dtype = "int8",
    activation: Activation | Mapping[str, Activation] = "dynamic",
    *,
    granularity: str = "row",
    smooth: Mapping[str, Tensor] | None = None,
    use_fast_accum: bool = False,
    static_weights: bool = True,
    group_size: int | None = None,
    activation_dtype: Dtype | None = None,
    skip: Skip = (),
) -> list[str]:
    """Replaces the nn.Linear layers of a model by W8A8Linear, W4A16Linear or W4A8Linear, in place; returns their names.

    Classes derived from nn.Linear are left alone, since whoever derived them reads their weights, and so are layers
    whose weight is computed in each call, as by weight_norm, spectral_norm and pruning. Hooks go on hanging on what
    takes a layer's place. A layer that has several names stays one layer.

    dtype: of weights and activations, "int8" or "float8_e4m3fn"; or "int4", "mxfp4" or "nvfp4", of weights alone, which
    are rounded to nearest in groups of `group_size` (as of `W4A16Linear.from_linear`), beside activations of 16 bits,
    or of `activation_dtype`, "int8" or "float8_e4m3fn" (as of `W4A8Linear.from_linear`).

    skip: names of layers to leave alone, with * and ? as in file names ("lm_head", "*.router"), or
    a function of name and layer; one of a layer's names is enough. A name that matches no linear
    layer is refused. activation, granularity, smooth: as in `W8A8Linear.from_linear`; a mapping has them by a
    layer's first name, and layers that it lacks are dynamic or not smoothed. static_weights: False for models whose
    weights are written between calls without waiting for the GPU, as `W8A8Linear` explains.
    """
    if type(model) is nn.Linear:
        raise ValueError("model is itself a linear layer; use W8A8Linear.from_linear(model)")

    if dtype in FORMATS:
        eights = {"activation": activation != "dynamic", "granularity": granularity != "row", "smooth": smooth}
        for argument, given in (eights | {"use_fast_accum": use_fast_accum}).items():
            if given:
                raise ValueError(
                    f'{argument} is given, but dtype is "{dtype}", which leaves activations alone; leave it out'
                )
        make_four = partial(_four_bits, group_size, str(dtype), activation_dtype, static_weights)
        return replace_layers(model, (nn.Linear,), make_four, skip)
    for argument, value in (("group_size", group_size), ("activation_dtype", activation_dtype)):
        if value is not None:
            raise ValueError(
                f'{argument} is {value!r}, but dtype is {dtype!r}; it is for "int4", granularity for 8 bits'
            )
    for argument, settings in (("activation", activation), ("smooth", smooth)):
        if isinstance(settings, Mapping):
            check_names(argument, settings, model)

    def make(name: str, layer: nn.Linear) -> W8A8Linear:
        return W8A8Linear.from_linear(
            layer,
            dtype,
            activation.get(name, "dynamic") if isinstance(activation, Mapping) else activation,
            granularity=granularity,
            smooth=smooth.get(name) if smooth else None,
            use_fast_accum=use_fast_accum,
            static_weights=static_weights,
        )

    return replace_layers(model, (nn.Linear,), make, skip)


def _four_bits(
    group_size: int | None,
    format: str,
    activation_dtype: Dtype | None,
    static_weights: bool,
    name: str,
    layer: nn.Linear,
) -> W4A16Linear | W4A8Linear:
    try:
        if activation_dtype is None:
            return W4A16Linear.from_linear(layer, group_size, format, static_weights=static_weights)
        return W4A8Linear.from_linear(layer, group_size, format, activation_dtype, static_weights=static_weights)
    except ValueError as error:
        raise ValueError(f"{name}: {error}; or skip={name!r} leaves it as it is") from error
