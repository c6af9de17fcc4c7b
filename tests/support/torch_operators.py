"""Calls of every operator of torch.ops.cleave, for the tests on the CPU and on a GPU."""

from __future__ import annotations

from typing import Any

import torch

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# Arguments that an operator writes into.
WRITTEN = ("out", "scale_out", "zero_out", "residual_out", "normed_out", "amax")
QUANTIZED = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)


def is_fp8(dtype: torch.dtype) -> bool:
    return dtype in QUANTIZED[1:]


def every_name() -> set[str]:
    """The operators that are registered: "gemm", "gemm.out" and so on."""
    names = torch._C._dispatch_get_all_op_names()
    return {name.removeprefix("cleave::") for name in names if name.startswith("cleave::")}


def integers(*shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.randint(-7, 8, shape, device=device).to(dtype)


def calls(device: str) -> dict[str, list[Call]]:
    """For each operator some that use all of its arguments."""
    ops = torch.ops.cleave

    def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, device=device).to(dtype)

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    m, n, k = 24, 40, 272
    made: dict[str, list[Call]] = {}

    def add(op: Any, *arguments: Any, **options: Any) -> None:
        name = op._schema.name.removeprefix("cleave::")
        overload = op._schema.overload_name
        made.setdefault(f"{name}.{overload}" if overload else name, []).append((op, arguments, options))

    split = {"split_k_mode": "serial", "split_k_slices": 2}
    for dtype in FLOATS:
        a, b = draw(m, k, dtype=dtype), draw(n, k, dtype=dtype).t()
        add(ops.gemm.default, a, b)
        add(ops.gemm.out, a, b, draw(n), activation="silu", out=empty(m, n, dtype=dtype))
        add(ops.gemm.quantized, a, b, draw(n), activation="silu", out_dtype=torch.int8, scale_major="mn")
    a3, b3 = draw(3, m, k), draw(3, k, n)
    add(ops.gemm.default, a3, b3, None, draw(3, m, n), alpha=0.5, beta=2.0, **split)
    add(ops.gemm.default, a3, b3[0], draw(m, 1), out_dtype=torch.bfloat16, activation="gelu")
    add(ops.gemm.default, a3[0].requires_grad_(), b3, draw(n).requires_grad_(), activation="relu")
    add(ops.gemm.default, a3[0].detach(), b3[0], draw(n), activation="swiglu")
    add(ops.gemm.out, a3[:1].detach(), b3, None, draw(n, m).t(), out=empty(3, n, m).mT, **split)

    function = "r row\nc column\ns scalar\nm matrix\n%0 = multiply acc s\n%1 = add %0 r\n%2 = tanh %1\n"
    function += "%3 = multiply %2 c\n%4 = add %3 m\nd = %4\npre = %1\nother:float16 = %3\n"
    inputs = [draw(n), draw(m), draw(m, n)]
    tracked = [x.requires_grad_() for x in (draw(n), draw(m), draw(1), draw(m, n))]
    for dtype in FLOATS:
        a, b = draw(m, k, dtype=dtype), draw(n, k, dtype=dtype).t()
        add(ops.gemm.epilogue, a, b, function, inputs, [0.5], [2])
        add(ops.gemm.epilogue, a.requires_grad_(), b, function, tracked, bias=draw(n))
    add(ops.gemm.epilogue, a3.detach(), b3, function, inputs, [0.5], [2], c=draw(3, m, n), alpha=0.5, **split)

    bias = draw(n, dtype=torch.bfloat16)
    row, column, one = draw(m, 1).abs(), draw(n).abs(), draw(1).abs()
    for dtype in QUANTIZED:
        q, w = (integers(rows, k, dtype=dtype, device=device) for rows in (m, n))
        blocks = draw(m, 3).abs(), draw(1, 3).abs().t()
        add(ops.gemm.default, q, w.t())
        add(ops.scaled_gemm.default, q, w.t(), None, None)
        add(ops.scaled_gemm.default, q, w.t(), *blocks, None, torch.float16, is_fp8(dtype))
        add(ops.scaled_gemm.full, q, w.t(), row, column, bias, use_fast_accum=is_fp8(dtype), static_b=True)
        add(ops.scaled_gemm.full, q, w.t(), one, one, out_dtype=dtype, scale_d=one, **split)
        add(ops.scaled_gemm.full, q, w.t(), *blocks, c=draw(m, n), alpha=2.0, beta=0.5)
        add(ops.scaled_gemm.epilogue, q, w.t(), row, column, function, tracked, out_dtype=torch.float32)
        add(ops.scaled_gemm.epilogue, q, w.t(), *blocks, function, inputs, [2.0], [2], bias=bias, beta=0.0)
        add(ops.scaled_gemm.quantized, q, w.t(), row, column, bias, dtype, activation="swiglu", use_ue8m0=True,
            static_b=True)  # fmt: skip
        out = {"out": empty(m, n, dtype=torch.float16), "amax": empty(1)}
        add(ops.scaled_gemm.out, q, w.t(), row, one, bias, activation="relu", **out)
    azp = integers(m, dtype=torch.int32, device=device)
    adj = integers(n, dtype=torch.int32, device=device)
    q, w = (integers(rows, k, dtype=torch.int8, device=device) for rows in (m, n))
    add(ops.scaled_gemm.full, q, w.t(), row, column, bias, azp=azp, azp_adj=adj)
    add(ops.scaled_gemm.out, q, w.t(), row, column, azp_adj=adj, out=empty(m, n))

    codes = torch.randint(0, 256, (1, 5, 2048), dtype=torch.uint8, device=device)  # of 4 bits
    for dtype in FLOATS[:2]:
        a, scales = draw(m, k, dtype=dtype), draw(1, n, dtype=dtype)
        zeros = torch.randint(0, 16, (1, n), dtype=torch.uint8, device=device)
        add(ops.mixed_gemm.default, a, codes, scales, None, n, k)
        add(ops.mixed_gemm.full, a, codes, scales, zeros, n, k, draw(n), torch.float32, c=draw(m, n), beta=2.0,
            activation="silu", static_b=True, **split)  # fmt: skip
        add(ops.mixed_gemm.out, a, codes, scales, zeros, n, k, draw(n), out=empty(m, n, dtype=dtype))
        add(ops.mixed_gemm.epilogue, a, codes, scales, zeros, n, k, function, inputs, [0.5], [2], bias=draw(n),
            c=draw(m, n), alpha=0.5, beta=2.0, out_dtype=torch.float32, static_b=True, **split)  # fmt: skip
        nvfp4 = torch.randint(0, 127, (k // 16, n), dtype=torch.uint8, device=device).view(torch.float8_e4m3fn)
        add(ops.mixed_gemm.default, a, codes, nvfp4, None, n, 16, None, torch.float32, "nvfp4", draw(1).abs())
        add(ops.mixed_gemm.epilogue, a, codes, nvfp4, None, n, 16, function, inputs, [0.5], [2], format="nvfp4",
            global_scale=draw(1).abs())  # fmt: skip

    half = draw(1, n, dtype=torch.float16)
    for dtype in (torch.int8, torch.float8_e4m3fn):
        q = integers(m, k, dtype=dtype, device=device)
        add(ops.mixed_gemm.default, q, codes, half, None, n, k, scale_a=row)
        add(ops.mixed_gemm.full, q, codes, half, zeros, n, k, draw(n), torch.float32, scale_a=one, c=draw(m, n),
            static_b=True, **split)  # fmt: skip
        add(ops.mixed_gemm.default, q, codes, nvfp4, None, n, 16, None, torch.float32, "nvfp4", draw(1).abs(), row)

    groups, total = 3, 300  # of which the last 43 belong to none
    ends = torch.tensor([130, 130, 257], dtype=torch.int32, device=device)
    codes = torch.randint(0, 256, (groups, 1, 5, 2048), dtype=torch.uint8, device=device)
    scales = draw(groups, 1, n, dtype=torch.bfloat16)
    add(ops.mixed_grouped_gemm.default, draw(total, k, dtype=torch.bfloat16), codes, scales, None, n, k, ends)
    for dtype in (torch.int8, torch.float8_e4m3fn):
        q = integers(total, k, dtype=dtype, device=device)
        add(ops.mixed_grouped_gemm.default, q, codes, scales.half(), None, n, k, ends, None, torch.float32,
            scale_a=draw(total).abs())  # fmt: skip
    batch = draw(groups, m, k, dtype=torch.bfloat16)
    add(ops.mixed_gemm.default, batch, codes, scales, None, n, k)
    add(ops.mixed_gemm.default, batch[0], codes, scales, None, n, k)
    add(ops.mixed_grouped_gemm.default, batch, codes, scales, None, n, k, None)
    nvfp4 = torch.randint(0, 127, (groups, k // 16, n), dtype=torch.uint8, device=device).view(torch.float8_e4m3fn)
    add(ops.mixed_grouped_gemm.default, draw(total, k, dtype=torch.bfloat16), codes, nvfp4, None, n, 16, ends, None,
        torch.float32, "nvfp4", draw(groups).abs())  # fmt: skip
    of_groups = "r row\nm matrix\n%0 = add acc r\n%1 = tanh %0\n%2 = multiply %1 m\nd = %2\npre:float16 = %0\n"
    given = [draw(groups, n), draw(total, n)]
    for nibbles, of_codes, size, options in (
        (codes, scales, k, {"bias": draw(n), "c": draw(total, n), "beta": 0.5, **split}),
        (codes, nvfp4, 16, {"format": "nvfp4", "global_scale": draw(groups).abs(), "out_dtype": torch.float32}),
    ):
        add(ops.mixed_grouped_gemm.epilogue, draw(total, k, dtype=torch.bfloat16), nibbles, of_codes, None, n, size,
            ends, of_groups, given, **options)  # fmt: skip
    indptr = torch.nn.functional.pad(ends, (1, 0)).long()
    starts, counts = indptr[:-1], indptr.diff()
    for dtype in FLOATS:
        rows, weight = draw(total, k, dtype=dtype), draw(groups, n, k, dtype=dtype).mT
        add(ops.grouped_gemm.default, rows, weight, ends)
        add(ops.grouped_gemm.out, rows.t(), draw(total, n, dtype=dtype), ends,
            c=draw(groups, k, n), out=empty(groups, k, n))  # fmt: skip
    quantized = {"out_dtype": torch.int8, "out_scale": "block_1x128", "scale_major": "mn"}
    rows, weight = (draw(*shape, k, dtype=torch.bfloat16) for shape in ((total,), (groups, n)))
    add(ops.grouped_gemm.quantized, rows, weight.mT, ends, activation="swiglu", **quantized)
    add(ops.grouped_gemm.quantized, draw(groups, 80, k), draw(groups, k, n), counts=counts // 2, **quantized)
    rows, weight, group_bias = draw(total, k), draw(groups, k, n), draw(groups, n)
    differentiable = [x.requires_grad_() for x in (draw(total, k), draw(groups, k, n))]
    add(ops.grouped_gemm.default, *differentiable, ends, draw(n).requires_grad_())
    add(ops.grouped_gemm.epilogue, rows, weight, ends, of_groups, [group_bias, draw(total, n)])
    add(ops.grouped_gemm.epilogue, rows[:240].view(groups, 80, k), weight, None, of_groups,
        [group_bias, draw(groups, 80, n)], counts=counts // 2, **split)  # fmt: skip
    add(ops.grouped_gemm.full, *differentiable, indptr=indptr, activation="swiglu", alpha=0.5)
    add(ops.grouped_gemm.full, weight.mT.contiguous(), rows.t(), starts=starts, sizes=counts,
        out_dtype=torch.bfloat16, **split)  # fmt: skip
    add(ops.grouped_gemm.full, rows.t(), draw(total, n), ends // 64 * 64, alignment=64)
    add(ops.grouped_gemm.full, rows[:240].view(groups, 80, k), weight, counts=counts // 2)
    add(ops.grouped_gemm.full, weight.mT.contiguous(), weight)
    add(ops.grouped_gemm.out, rows, weight, ends, group_bias, c=draw(total, n), beta=0.5,
        activation="silu", zero_rest=True, out=empty(total, n))  # fmt: skip
    for dtype in QUANTIZED:
        q = integers(total, k, dtype=dtype, device=device)
        w = integers(groups, n, k, dtype=dtype, device=device).mT
        vectors, blocks = (draw(total).abs(), draw(groups, n).abs()), draw(total, 3).abs()
        add(ops.grouped_gemm.default, q, w, ends, None, torch.float16, *vectors, is_fp8(dtype))
        add(ops.grouped_gemm.default, q, w, ends, scale_a=blocks, scale_b=draw(groups, 3, 1).abs())

    for dtype in FLOATS[:2]:
        grad, weight = draw(total, k, dtype=dtype), draw(groups, k, n, dtype=dtype)
        gate_and_up = draw(total, n, dtype=dtype), draw(total, n, dtype=dtype)
        for with_hidden in (False, True):
            add(ops.grouped_swiglu_backward.default, grad, weight, ends, *gate_and_up, with_hidden)
        q = integers(total, k, dtype=torch.float8_e5m2, device=device)
        w = integers(groups, n, k, dtype=torch.float8_e4m3fn, device=device).mT
        add(ops.grouped_swiglu_backward.default, q, w, ends, *gate_and_up, False, draw(total, 3).abs(),
            draw(groups, 3, 1).abs())  # fmt: skip

    def nhwc(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return draw(shape[0], *shape[2:], shape[1], dtype=dtype).movedim(-1, 1)

    geometry = ((2, 1), (1, 0, 2, 1), (1, 2), 2)  # padding: top, left; bottom, right
    x, w, y = (2, 8, 9, 7), (16, 4, 3, 2), (2, 16, 5, 6)
    for dtype in FLOATS:
        images, filters, grad = (nhwc(*shape, dtype=dtype) for shape in (x, w, y))
        add(ops.conv.default, images, filters, draw(16), *geometry)
        add(ops.conv_dgrad.default, x, filters, grad, *geometry, draw(8))
        add(ops.conv_wgrad.default, images, w, grad, *geometry)
        add(ops.conv.out, images, filters, None, *geometry, activation="silu",
            out=empty(2, 5, 6, 16, dtype=dtype).movedim(-1, 1))  # fmt: skip
    images, filters, grad = (nhwc(*shape) for shape in (x, w, y))
    for activation in ("relu", "gelu"):
        differentiable = [nhwc(*shape).requires_grad_() for shape in (x, w, y)]
        add(ops.conv.full, *differentiable[:2], draw(16).requires_grad_(), *geometry,
            nhwc(*y).requires_grad_(), alpha=0.5, beta=2.0, activation=activation)  # fmt: skip
        add(ops.conv_dgrad.full, x, *differentiable[1:], *geometry, draw(8).requires_grad_(),
            nhwc(*x).requires_grad_(), alpha=0.5, beta=2.0, activation=activation)  # fmt: skip
    named = dict(zip(("stride", "padding", "dilation", "groups"), geometry, strict=True))
    by_channel = "scale row\n%0 = multiply acc scale\nd = %0\nother = acc\nnorm = sum column %0\n"
    by_filter = "scale column\n%0 = multiply acc scale\nd = %0\nnorm = sum row %0\n"
    add(ops.conv.epilogue, *differentiable[:2], by_channel, [draw(16).requires_grad_()], bias=draw(16), **named)
    add(ops.conv_dgrad.epilogue, x, filters, grad, by_channel, [draw(8)], **named, **split)
    add(ops.conv_wgrad.epilogue, images, w, grad, by_filter, [draw(16)], **named, alpha=0.5)
    add(ops.conv_wgrad.full, differentiable[0], w, differentiable[2], *geometry, nhwc(*w), **split)
    add(ops.conv.full, images, filters, None, *geometry, out_dtype=torch.bfloat16, **split)
    add(ops.conv_dgrad.out, x, filters, grad, *geometry, c=nhwc(*x), out=nhwc(*x), **split)
    add(ops.conv_wgrad.out, images, w, grad, *geometry, c=nhwc(*w), out=nhwc(*w))
    add(ops.conv.default, nhwc(2, 5, 11), nhwc(6, 5, 3), None, 2, (1, 0))
    add(ops.conv.default, nhwc(1, 4, 4, 5, 6), nhwc(3, 4, 2, 3, 1), draw(3), (1, 2, 3))
    images, filters = (nhwc(*shape).mul(9).to(torch.int8) for shape in (x, w))
    add(ops.conv.default, images, filters, None, *geometry)
    add(ops.conv.full, images, filters, None, *geometry, out_dtype=torch.float32)
    each = draw(16).abs()
    for dtype in QUANTIZED:
        images, filters = (nhwc(*shape).mul(9).to(dtype) for shape in (x, w))
        add(ops.scaled_conv.default, images, filters, one, each, draw(16), *geometry, torch.float16, is_fp8(dtype))
        add(ops.scaled_conv.default, images, filters, None, None, None, *geometry)
        add(
            ops.scaled_conv.epilogue,
            images,
            filters,
            one,
            each,
            by_channel,
            [draw(16)],
            **named,
            out_dtype=torch.float32,
        )
        add(ops.scaled_conv.full, images, filters, one, one, None, *geometry, out_dtype=dtype, scale_d=one, **split)
        add(ops.scaled_conv.out, images, filters, one, each, None, *geometry, activation="silu", c=nhwc(*y), beta=0.5,
            out=nhwc(*y), amax=empty(1))  # fmt: skip

    smooth = draw(k).abs() + 0.5
    for granularity, scales, x_dtype, dtype in (
        ("tensor", (1, 1), torch.float32, torch.float8_e5m2),
        ("row", (m, 1), torch.bfloat16, torch.int8),
        ("block_1x128", (m, 3), torch.float16, torch.float8_e4m3fn),
        ("block_128x128", (1, 3), torch.bfloat16, torch.float8_e4m3fn),
    ):
        x, scale, out = draw(m, k, dtype=x_dtype), draw(*scales).abs(), empty(m, k, dtype=dtype)
        add(ops.quantize.default, x, dtype, granularity)
        add(ops.quantize.default, x, dtype, granularity, smooth=smooth, scale_major="mn")
        add(ops.quantize.out, x, granularity, smooth=smooth, out=out, scale_out=empty(*scales))
        add(ops.quantize_static.default, x, scale, dtype, granularity, smooth=smooth)
        add(ops.quantize_static.out, x, scale, granularity, out=out)
    for granularity, rows in (("tensor", 1), ("row", m)):
        scale, zero = draw(rows, 1).abs(), integers(rows, 1, dtype=torch.int32, device=device)
        out = empty(m, k, dtype=torch.int8)
        new = {"scale_out": empty(rows, 1), "zero_out": empty(rows, dtype=torch.int32)}
        add(ops.quantize_asymmetric.default, x, granularity, smooth=smooth)
        add(ops.quantize_asymmetric.out, x, granularity, smooth=smooth, out=out, **new)
        add(ops.quantize_static.default, x, scale, torch.int8, granularity, zero=zero)
        add(ops.quantize_static.out, x, scale, granularity, zero=zero, out=out)
    norm = {"norm": "layer_norm", "eps": 1e-3, "bias": draw(k)}
    for granularity, scales in (("row", (m, 1)), ("block_1x128", (m, 3))):
        x, residual, weight = draw(m, k, dtype=torch.bfloat16), draw(m, k), draw(k)
        out, scale, sums = empty(m, k, dtype=torch.int8), empty(*scales), empty(m, k)
        add(ops.quantize_normed.default, x, weight, torch.int8, granularity=granularity, zero_centered=True)
        add(ops.quantize_normed.default, x, None, torch.float8_e5m2, **norm, granularity=granularity, scale_major="mn")
        add(ops.quantize_normed_sum.default, x, residual, weight, torch.float8_e4m3fn, granularity=granularity)
        given = {"granularity": granularity, "residual": residual, "out": out, "residual_out": sums}
        add(ops.quantize_normed.out, x, weight, **given, scale_out=scale, normed_out=empty(m, k, dtype=x.dtype))
        add(ops.quantize_normed_sum_static.default, x, residual, draw(*scales).abs(), weight, torch.int8, **norm,
            granularity=granularity)  # fmt: skip
    one, zero = draw(1, 1).abs(), empty(m, 1, dtype=torch.int32)
    add(ops.quantize_normed_static.default, x, one, weight, torch.float8_e4m3fn, zero_centered=True)
    add(ops.quantize_normed_static.out, x, one, weight, **norm, residual=residual, out=out, residual_out=sums)
    add(ops.quantize_normed_asymmetric.default, x, weight)
    add(ops.quantize_normed_sum_asymmetric.default, x, residual, weight, **norm)
    add(ops.quantize_normed_asymmetric.out, x, weight, residual=residual, out=out, scale_out=empty(m, 1), zero_out=zero,
        residual_out=sums)  # fmt: skip
    for dtype in QUANTIZED:
        add(ops.quantize_grouped.default, draw(total, k), ends, dtype)
        add(ops.quantize_transposed.default, draw(total, k), dtype)
        add(ops.quantize_transposed.default, draw(total, k), dtype, "block_128x128", scale_major="mn")
    add(ops.quantize_grouped.default, draw(90, k), ends.long(), torch.int8, scale_major="mn")

    for dtype in FLOATS[:2]:
        lora_a, lora_b = draw(2, 8, k, dtype=dtype), draw(2, n, 8, dtype=dtype)
        ends = torch.tensor([3, m - 1], dtype=torch.int32, device=device)
        add(ops.lora.out, draw(m, k, dtype=dtype), lora_a, lora_b, ends, 0.5, out=draw(m, n, dtype=dtype))

    ids = torch.randint(-1, 6, (m, 2), device=device)  # -1: dropped
    indices = ops.moe_sort_tokens(ids, 5)[1]
    weights = draw(m, 2)
    for dtype in FLOATS:
        x, y = draw(m, k, dtype=dtype), draw(2 * m, k, dtype=dtype)
        add(ops.moe_permute.default, x.requires_grad_(), ids.int(), 5)
        add(ops.moe_gather.default, x, indices)
        add(ops.moe_unpermute.default, y.requires_grad_(), indices, top_k=2)
        add(ops.moe_unpermute.default, y, indices, draw(m, 2, dtype=dtype).requires_grad_())
        add(ops.moe_unpermute_backward.default, x.detach(), y.detach(), indices, weights)
        add(ops.moe_router_logits.default, x.detach().requires_grad_(), draw(5, k).requires_grad_(), static_weight=True)
        for form in ({}, {"renormalize": False}, {"bias": draw(k), "scoring_func": "sigmoid"}):
            add(ops.moe_route.default, x.detach().clone().requires_grad_(), 2, **form)
        for of_rows in QUANTIZED:
            add(ops.moe_permute_quantized.default, x.detach(), ids, 5, of_rows)
            add(ops.moe_gather_quantized.default, x.detach(), indices, of_rows)
    add(ops.moe_permute.default, q[:m], ids, 5)
    add(ops.moe_expert_offsets.default, ids, 5)
    add(ops.moe_sort_tokens.default, ids[:, 0].contiguous(), 5)
    return made


def uses_fp8(call: Call) -> bool:
    _, arguments, options = call
    values = (*arguments, *options.values())
    return any(is_fp8(x.dtype if isinstance(x, torch.Tensor) else x) for x in values)
