"""Operations of many kinds, types and architectures, planned without a GPU, for the tests of what
`cleave.emit` writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cleave

SM_80, SM_90A, BOTH = ("sm_80",), ("sm_90a",), ("sm_80", "sm_90a")


@dataclass(frozen=True)
class Operation:
    """`options` are those of cleave.plan_problem."""

    name: str
    archs: tuple[str, ...]
    options: dict[str, Any] = field(hash=False)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K."""
        default = {"m": 256, "n": 384, "k": 1024} | self.options
        return default["m"], default["n"], default["k"]

    def plan(self, device: str = "h100") -> cleave.GemmPlan:
        options = {name: value for name, value in self.options.items() if name not in "mnk"}
        return cleave.plan_problem(*self.sizes, **options, device=device)


@dataclass(frozen=True)
class Convolution:
    """`options` are those of cleave.plan_conv_problem."""

    name: str
    archs: tuple[str, ...]
    options: dict[str, Any] = field(hash=False)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of X and W, in PyTorch's order."""
        o = self.options
        return {
            "x": (o["images"], o["channels"], *o["size"]),
            "w": (o["filters"], o["channels"] // o.get("groups", 1), *o["filter_size"]),
        }

    def plan(self, device: str = "h100") -> cleave.GemmPlan:
        return cleave.plan_conv_problem(**self.options, device=device)


def _split(mode: str, slices: int | None = None) -> dict[str, Any]:
    return {"split_k_mode": mode, "split_k_slices": slices}


def _groups(dimension: str, bounds: str = "ends", spacing: int = 1) -> dict[str, Any]:
    sizes = {"m": 512, "n": 512, "k": 512} | {dimension: 2048}
    return sizes | {"grouping": dimension, "bounds": bounds, "spacing": spacing, "batch": 4}


def _operation(name: str, archs: tuple[str, ...], *options: dict[str, Any], **more: Any) -> Any:
    merged: dict[str, Any] = {}
    for option in options:
        merged |= option
    return Operation(name, archs, merged | more)


@cleave.epilogue
def gelu_residual(acc, bias: cleave.row, scale: cleave.scalar, residual: cleave.matrix):
    pre = acc * scale + bias
    return cleave.outputs(d=cleave.gelu(pre) + residual, pre=pre)


@cleave.epilogue
def masked(acc, mask: cleave.column, floor: cleave.scalar, shift: cleave.row):
    """With two outputs of types of their own, one of which no gradient reaches."""
    kept = cleave.where(acc > floor, acc * mask, shift)
    return cleave.outputs(
        d=kept, above=cleave.where(acc > floor, 1.0, 0.0).to("int8"), half=(kept * 0.5).to("bfloat16")
    )


@cleave.epilogue
def limited_swiglu(acc, limit: cleave.scalar):
    gate = cleave.minimum(acc.gate, limit)
    return gate * cleave.sigmoid(1.702 * gate) * (cleave.clamp(acc.up, -limit, limit) + 1.0)


@cleave.epilogue
def geglu_in_pairs(acc):
    return cleave.gelu(acc.even) * acc.odd


@cleave.epilogue
def soft_cap(acc):
    return 30.0 * cleave.tanh(acc / 30.0)


@cleave.epilogue
def normed(acc, stream: cleave.matrix):
    x = acc + stream
    return cleave.outputs(d=x, norm=cleave.sum_of_squares(x, over="columns"), largest=cleave.absmax(x))


@cleave.epilogue
def totalled(acc, shift: cleave.row):
    x = cleave.silu(acc + shift)
    return cleave.outputs(d=x, total=cleave.sum(x, over="rows"), whole=cleave.sum(x))


@cleave.epilogue
def fake_quantised(acc, step: cleave.row):
    x = (acc / step).to("int8") * step
    return cleave.outputs(d=x, total=cleave.sum(x, over="rows"))


@fake_quantised.backward
def straight_through(acc, step, grad_d, grad_total):
    grad = cleave.where(abs(acc) < 100.0 * step, grad_d + grad_total, 0.0)
    return {"acc": grad, "step": grad * 0.5}


FUSED = gelu_residual(bias="bfloat16", scale=0.5, residual="bfloat16")
MASKED = masked(mask="float32", floor="bfloat16", shift="float32")
GATED = limited_swiglu(limit=7.0)
NORMED, TOTALLED, QUANTISED = normed(stream="float32"), totalled(shift="float32"), fake_quantised(step="float32")

OPERATIONS = [
    _operation("f16", BOTH, dtype="float16"),
    _operation("f16_nn", SM_90A, dtype="float16", layout="nn", out_dtype="float32"),
    _operation("f16_nt_serial", BOTH, _split("serial", 4), dtype="float16", layout="nt"),
    _operation("f16_portable", SM_80, dtype="float16", kernel="portable", bias="row"),
    _operation("bf16", SM_90A, dtype="bfloat16", batch=3),
    _operation("bf16_bias_relu", BOTH, dtype="bfloat16", bias="row", activation="relu"),
    _operation("bf16_column_gelu", SM_90A, dtype="bfloat16", bias="column", activation="gelu"),
    _operation("bf16_gelu_tanh", SM_80, dtype="bfloat16", activation="gelu_tanh", layout="tt"),
    _operation("bf16_swiglu", SM_90A, dtype="bfloat16", activation="swiglu", bias="row"),
    _operation("bf16_swiglu_interleaved", SM_90A, dtype="bfloat16", activation="swiglu_interleaved", bias="row"),
    _operation("bf16_parallel", BOTH, _split("parallel", 8), dtype="bfloat16", k=8192),
    _operation("bf16_cluster", SM_90A, _split("cluster", 4), dtype="bfloat16", bias="row"),
    _operation("bf16_stream_k", BOTH, _split("stream_k"), dtype="bfloat16", batch=2),
    _operation("f32_silu", BOTH, dtype="float32", activation="silu"),
    _operation("i8", BOTH, dtype="int8"),
    _operation("i8_row", BOTH, dtype="int8", scaling="row", bias="row", out_dtype="float16"),
    _operation("e4m3_row", SM_90A, dtype="float8_e4m3fn", scaling="row", use_fast_accum=True),
    _operation("e4m3_1x128", SM_90A, dtype="float8_e4m3fn", scaling="block_1x128"),
    _operation("e4m3_128x128", SM_90A, dtype="float8_e4m3fn", scaling="block_128x128", k=1152),
    _operation("e5m2", SM_90A, _split("serial", 2), dtype="float8_e5m2", out_dtype="float16"),
    _operation("experts", BOTH, _groups("m"), dtype="bfloat16"),
    _operation("experts_bias", SM_90A, _groups("m", "indptr"), dtype="float16", bias="row"),
    _operation("experts_transposed", SM_80, _groups("n", "starts"), dtype="bfloat16", layout="nn"),
    _operation("experts_wgrad", BOTH, _groups("k"), dtype="bfloat16", layout="nt"),
    _operation("experts_padded", SM_90A, _groups("k", "aligned_ends", 128), dtype="bfloat16"),
    _operation("experts_masked", SM_90A, _groups("m", "counts", 512), dtype="float8_e4m3fn",
               scaling="block_128x128"),
    _operation("experts_i8", BOTH, _groups("m"), dtype="int8", scaling="row"),
    _operation("fused", BOTH, dtype="bfloat16", epilogue=FUSED),
    _operation("fused_batch", SM_90A, _split("serial", 2), dtype="float16", batch=3, layout="nn", epilogue=MASKED),
    _operation("fused_gates", BOTH, dtype="bfloat16", bias="row", epilogue=GATED),
    _operation("fused_pairs", BOTH, dtype="float16", bias="row", epilogue=geglu_in_pairs),
    _operation("fused_i8", BOTH, _split("parallel", 4), dtype="int8", scaling="row", out_dtype="float16",
               epilogue=FUSED),
    _operation("fused_fp8", SM_90A, dtype="float8_e4m3fn", scaling="row", epilogue=soft_cap),
    _operation("fused_experts", SM_90A, _groups("m"), dtype="bfloat16", epilogue=FUSED),
    _operation("fused_slots", SM_90A, _groups("m", "counts", 512), dtype="bfloat16", epilogue=MASKED),
    _operation("packed", SM_90A, dtype="bfloat16", weights="int4", group_size=64, zeros=True, bias="row"),
    _operation("packed_rows", SM_90A, _split("parallel", 4), dtype="float16", weights="int4", group_size=-1, batch=3),
    _operation("packed_experts", SM_90A, _groups("m"), dtype="bfloat16", weights="mxfp4"),
    _operation("packed_nvfp4", SM_90A, dtype="float16", weights="nvfp4", out_dtype="float32"),
    _operation("packed_slots", SM_90A, _groups("m", "counts", 512), dtype="bfloat16", weights="nvfp4"),
    _operation("packed_bytes", SM_90A, dtype="int8", scaling="row", weights="int4", zeros=True, bias="row"),
    _operation("packed_bytes_experts", SM_90A, _groups("m"), dtype="float8_e4m3fn", scaling="row", weights="mxfp4"),
    _operation("packed_gates", SM_90A, dtype="bfloat16", weights="int4", activation="swiglu", bias="row"),
    _operation("packed_fused_gates", SM_90A, _groups("m"), dtype="bfloat16", weights="mxfp4", epilogue=GATED),
    _operation("packed_fused", SM_90A, dtype="bfloat16", weights="int4", epilogue=FUSED),
    _operation("reduced", BOTH, dtype="bfloat16", epilogue=NORMED),
    _operation("reduced_batch", SM_90A, _split("serial", 2), dtype="float16", batch=3, layout="nn", epilogue=TOTALLED),
    _operation("reduced_i8", BOTH, dtype="int8", scaling="row", out_dtype="bfloat16", epilogue=NORMED),
    _operation("reduced_experts", BOTH, _groups("m"), dtype="bfloat16", epilogue=TOTALLED),
    _operation("reduced_slots", SM_90A, _groups("m", "counts", 512), dtype="bfloat16", epilogue=NORMED),
    _operation("reduced_columns", SM_90A, _groups("n", "starts"), dtype="bfloat16", layout="nn", epilogue=NORMED),
    _operation("reduced_wgrad", SM_90A, _groups("k"), dtype="bfloat16", layout="nt", epilogue=TOTALLED),
    _operation("packed_reduced", SM_90A, dtype="bfloat16", weights="int4", epilogue=TOTALLED),
    _operation("given_backward", BOTH, dtype="bfloat16", epilogue=QUANTISED),
    _operation("fused_wgrad", BOTH, _groups("k"), dtype="bfloat16", layout="nt", epilogue=MASKED),
]  # fmt: skip


def _convolution(name: str, archs: tuple[str, ...], **options: Any) -> Convolution:
    default = {"images": 8, "size": (56, 56), "channels": 64, "filters": 128}
    default |= {"filter_size": (3, 3), "padding": 1, "dtype": "float16"}
    return Convolution(name, archs, default | options)


CONVOLUTIONS = [
    _convolution("conv", BOTH),
    _convolution("conv_strided", SM_90A, stride=2, dtype="bfloat16", bias="row", activation="relu"),
    _convolution("conv_stem", SM_90A, channels=8, filter_size=(7, 7), padding=3, stride=2),
    _convolution("conv_same", BOTH, size=(20, 20), channels=16, filters=64, groups=2,
                 filter_size=(4, 4), padding=((1, 2), (1, 2)), activation="gelu"),
    _convolution("conv_deep", SM_90A, size=(12, 12, 12), filter_size=(3, 3, 3), activation="silu"),
    _convolution("conv_i8", SM_80, dtype="int8", out_dtype="int32"),
    _convolution("images_gradient", BOTH, kind="dgrad", stride=2),
    _convolution("upsampling", SM_90A, kind="dgrad", channels=8, filters=64, filter_size=(4, 4),
                 stride=2, bias="row", activation="gelu_tanh"),
    _convolution("filters_gradient", BOTH, kind="wgrad", out_dtype="float32"),
    _convolution("conv_fp8", SM_90A, dtype="float8_e4m3fn", scaling="row"),
    _convolution("conv_chain", BOTH, dtype="int8", scaling="row", out_dtype="int8", padding=((2, 0), (1, 1))),
    _convolution("conv_fused", BOTH, dtype="bfloat16", epilogue=FUSED),
    _convolution("conv_fused_groups", SM_90A, groups=2, epilogue=MASKED),
    _convolution("upsampling_fused", SM_90A, kind="dgrad", stride=2, dtype="bfloat16", epilogue=MASKED),
    _convolution("conv_reduced", BOTH, dtype="bfloat16", epilogue=NORMED),
    _convolution("conv_reduced_groups", SM_90A, groups=2, epilogue=TOTALLED),
    _convolution("upsampling_reduced", SM_90A, kind="dgrad", stride=2, dtype="bfloat16", epilogue=NORMED),
    _convolution("filters_reduced", SM_90A, kind="wgrad", out_dtype="float32", epilogue=TOTALLED),
    _convolution("conv_given_backward", SM_90A, dtype="bfloat16", epilogue=QUANTISED),
    _convolution("filters_fused", BOTH, kind="wgrad", out_dtype="float32", epilogue=MASKED),
]  # fmt: skip


def plan_of(name: str) -> cleave.GemmPlan:
    return next(operation for operation in OPERATIONS if operation.name == name).plan()
