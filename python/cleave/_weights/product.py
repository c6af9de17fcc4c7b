"""`cleave.mixed_gemm`: products of activations of 16 or 8 bits with packed weights."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._epilogue.activations import GATED
from .._epilogue.graph import HALVES, INTERLEAVED
from .packed import PackedWeights, check_packed


def mixed_gemm(
    a: Any,
    weights: PackedWeights,
    *,
    scale_a: Any = None,
    offs: Any = None,
    indptr: Any = None,
    starts: Any = None,
    sizes: Any = None,
    counts: Any = None,
    alignment: int | None = None,
    zero_rest: bool | None = None,
    check_offsets: bool = False,
    bias: Any = None,
    c: Any = None,
    alpha: float = 1.0,
    beta: float | None = None,
    activation: str = "none",
    epilogue: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    out_scale: str | None = None,
    scale_out: Any = None,
    scale_major: str = "k",
    use_ue8m0: bool = False,
    split_k_mode: str = "auto",
    split_k_slices: int | None = None,
    deterministic: bool | str = True,
    sum_order: str | None = None,
    kernel: str = "auto",
    static_b: bool = False,
    stream: Any = None,
    workspace: Any = None,
) -> Any:
    """D = activation(alpha * a @ W^T + beta * c + bias), where W is a packed weight of 4 bits (W4A16, W4A8).

        packed = cleave.pack_weights(linear.weight)
        y = cleave.mixed_gemm(x, packed, bias=linear.bias)

    The kernel reads W's codes and makes elements of a's dtype of them in registers, just before the tensor cores
    multiply them: each is what `dequantize_weights` has, rounded once; of "nvfp4" it is exact, and global_scale
    multiplies the sums. Sums are float32. On Hopper rows of a are to begin at multiples of 16 bytes for that. A second
    kernel, "streamed", serves Ampere and later, rows of a of any alignment, and on Hopper few tokens: of "int4" it
    scales the sums of groups instead of elements, and rows of a with an infinity become NaNs. In bfloat16, scales are
    to be below 2^21; those of "mxfp4" below 2^26, and beside float16 below 2^16.

    Beside an a of 8 bits (W4A8) elements are codes less zero points, which are exact, and sums over a group of columns
    are scaled, as float32; Hopper's kernel alone serves it.

        packed = cleave.pack_weights(linear.weight, scale_dtype="float16")
        q, scale = cleave.quantize(x, "float8_e4m3fn")
        y = cleave.mixed_gemm(q, packed, scale_a=scale, bias=linear.bias)

    Args:
        a: [M, K], float16 or bfloat16, of the dtype of scales of "int4"; [E, M, K] for weights of E experts. Or
            float8_e4m3fn or int8: scales of "int4" are float16 then.
        weights: [N, K] or [E, N, K], as `pack_weights` makes it, on a's device. Where it has columns in another order
            (`perm`), a's are copied into that one first, on the current stream.
        scale_a: float32, of an a of 8 bits: one for each row, [M] or [M, 1] as `quantize` makes them, or one for all.
        offs, indptr, starts, sizes, counts, alignment, zero_rest, check_offsets: where each expert's rows of a are, as
            in `grouped_gemm`.
        kernel: "sm90" (Hopper's) or "streamed", which serves the product or refuses it; "auto" takes the faster one.
        static_b: True promises that nothing that may still be under way writes the weight, as nobody writes a model's
            at inference: kernels may then load it before the launch ahead is done.
        out_scale, scale_out, scale_major, use_ue8m0: as in `gemm`, by a kernel behind the product's.
        Others: as in `gemm`. "swiglu" and epilogue functions of acc.gate and acc.up join the rows of a weight that is
            packed with gated=True, and nothing else does; a bias has the gates' first. D of an a of 8 bits is bfloat16
            where out_dtype does not say.

    Returns:
        D, or `out`; with out_scale a tuple of D and its scales.

    Raises:
        TypeError, ValueError: for what does not fit together, by name. RuntimeError: where the GPU has no kernel for
        it.

    Legal inside a CUDA graph; as repeatable as `gemm`.
    """
    bounds = {"offs": offs, "indptr": indptr, "starts": starts, "sizes": sizes, "counts": counts}
    check(a, weights, activation, epilogue, **bounds)
    if weights.perm is not None:
        if stream is not None:
            raise ValueError(
                "stream is given, but weights has its columns in another order (perm), into which a is copied on the "
                "current stream; make it the current one"
            )
        a = a[..., weights.perm]
    return _core.mixed_gemm(
        a,
        **arguments_of(weights),
        scale_a=scale_a,
        **bounds,
        alignment=alignment,
        zero_rest=zero_rest,
        check_offsets=check_offsets,
        bias=bias,
        c=c,
        alpha=alpha,
        beta=beta,
        activation=activation,
        epilogue=epilogue,
        out=out,
        out_dtype=out_dtype,
        out_scale=out_scale,
        scale_out=scale_out,
        scale_major=scale_major,
        use_ue8m0=use_ue8m0,
        split_k_mode=split_k_mode,
        split_k_slices=split_k_slices,
        deterministic=deterministic,
        sum_order=sum_order,
        kernel=kernel,
        static_b=static_b,
        stream=stream,
        workspace=workspace,
    )


def plan_mixed_gemm(a: Any, weights: PackedWeights, **options: Any) -> Any:
    """Plans a product without running it; the arguments and errors are those of `mixed_gemm`.

        plan = cleave.plan_mixed_gemm(x, packed)
        plan.run(x, packed.packed, scales=packed.scales, zeros=packed.zeros, global_scale=packed.global_scale, out=y)

    Only shape, strides, dtype, device and alignment of the arrays matter, and which of them are given. Returns a
    `GemmPlan`; what it runs has a's columns in the weight's order (`a[..., weights.perm]`, if there is one). Compiles
    nothing.
    """
    bounds = {name: options.get(name) for name in ("offs", "indptr", "starts", "sizes", "counts")}
    check(a, weights, options.get("activation", "none"), options.get("epilogue"), **bounds)
    return _core.plan_mixed_gemm(a, **arguments_of(weights), **options)


def check(a: Any, weights: PackedWeights, activation: str = "none", epilogue: Any = None, **bounds: Any | None) -> None:
    check_packed(weights)
    if len(weights.shape) == 2:
        for name, given in bounds.items():
            if given is not None:
                raise ValueError(f"{name} is given, but weights is {weights.shape}, of no experts; leave {name} out")
    shape = tuple(getattr(a, "shape", ()))
    if shape and shape[-1] != weights.shape[-1]:
        raise ValueError(f"a is {shape}, but weights is {weights.shape}; both must have the same columns")
    text = "" if epilogue is None else getattr(epilogue, "text", None)
    if text is None:  # no function: the product says so
        return
    joins = activation in GATED or any(name in text for name in (*HALVES, *INTERLEAVED))
    if joins != weights.gated:
        raise ValueError(
            'weights is packed with gated=True, but nothing joins its gates and ups: pass activation="swiglu" or a '
            "function of acc.gate and acc.up, or pack it without"
            if weights.gated
            else "the epilogue joins gates and ups, but weights is packed without gated=True, which puts them beside "
            "each other; pack it with"
        )


def arguments_of(weights: PackedWeights) -> dict[str, Any]:
    """What products take of `weights`, by their names for it."""
    return {
        "packed": weights.packed,
        "scales": weights.scales,
        "zeros": weights.zeros,
        "global_scale": weights.global_scale,
        "out_features": weights.shape[-2],
        "group_size": weights.group_size,
        "format": weights.format,
    }
