"""What is no tensor, or no pair of them, is refused by every function of cleave.compat with the argument's name."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

LIBRARIES = ("deep_gemm", "flashinfer", "sgl_kernel", "torch", "vllm")
E4M3, BFLOAT16, INT8, INT32 = torch.float8_e4m3fn, torch.bfloat16, torch.int8, torch.int32
G, M, N, K = 2, 128, 128, 256


def of(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.ones(shape).to(dtype)


def fp32(*shape: int) -> torch.Tensor:
    return of(torch.float32, *shape)


def scaled(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """8-bit floats and the scales of their rows."""
    return of(E4M3, *shape), fp32(*shape[:-1], -(-shape[-1] // 128))


def weights(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """8-bit floats and the scales of 128 x 128 of them."""
    return of(E4M3, *shape), fp32(*shape[:-2], *(-(-each // 128) for each in shape[-2:]))


def columns(operand: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return operand[0].mT.contiguous(), operand[1].mT.contiguous()


def dense(a: tuple[int, int], b: tuple[int, int]) -> dict[str, Any]:
    return {"a": of(BFLOAT16, *a), "b": of(BFLOAT16, *b), "d": of(BFLOAT16, M, N), "c": of(BFLOAT16, M, N)}


def dense_fp8(layout: str) -> dict[str, Any]:
    a, b = scaled(M, K), weights(N, K)
    if layout[0] == "t":
        a = columns(a)
    if layout[1] == "n":
        b = columns(b)
    return {"a": a, "b": b, "d": fp32(M, N), "c": fp32(M, N)}


ROWS = torch.arange(G, dtype=INT32).repeat_interleave(M // G)
ENDS = torch.tensor([M // G, M], dtype=INT32)
SHAPES = {"nt": ((M, K), (N, K)), "nn": ((M, K), (K, N)), "tn": ((K, M), (K, N)), "tt": ((K, M), (N, K))}


def groups(b: Any, a: Any = None) -> dict[str, Any]:
    a = of(BFLOAT16, M, K) if a is None else a
    return {"a": a, "b": b, "d": of(BFLOAT16, M, N), "grouped_layout": ROWS}


def masked(a: Any, b: Any) -> dict[str, Any]:
    return {"a": a, "b": b, "d": of(BFLOAT16, G, M, N), "masked_m": ENDS, "expected_m": M}


def k_groups(a: Any, b: Any) -> dict[str, Any]:
    ks = torch.full((G,), 128, dtype=INT32)
    return {"a": a, "b": b, "d": fp32(G, M, N), "ks_cpu": None, "grouped_layout": ks, "c": fp32(G, M, N)}


def routed(*numbered: str) -> dict[str, Any]:
    given = {"topk_weights": fp32(8, 2), "topk_ids": of(INT32, 8, 2)}
    return given | {name: of(INT32, 8, 2) for name in numbered} | {"gating_output": torch.randn(8, 16)}


def product_of_8_bits(a: str, b: str, scale_a: str, scale_b: str, dtype: torch.dtype = E4M3) -> dict[str, Any]:
    return {
        a: of(dtype, M, K), b: of(dtype, N, K).T, scale_a: fp32(M, 1), scale_b: fp32(1, N),
        "out_dtype": BFLOAT16, "bias": of(BFLOAT16, N),
    }  # fmt: skip


def deep_gemm_calls() -> Iterator[tuple[str, dict[str, Any]]]:
    for layout, shapes in SHAPES.items():
        for kind in ("bf16", "cublaslt"):
            yield f"{kind}_gemm_{layout}", dense(*shapes)
        for kind in ("fp8", "fp8_fp4"):
            yield f"{kind}_gemm_{layout}", dense_fp8(layout)
    heads = {"a": scaled(M, K), "b": weights(N, K), "d": of(BFLOAT16, M, 192), "head_splits": (64, 64, 64)}
    yield "fp8_gemm_nt_skip_head_mid", heads
    sums = {"expr": "bhr,hdr->bhd", "d": of(BFLOAT16, M, G, N), "c": of(BFLOAT16, M, G, N)}
    yield "einsum", sums | {"a": of(BFLOAT16, M, G, K), "b": of(BFLOAT16, G, N, K)}
    yield "fp8_einsum", sums | {"a": scaled(M, G, K), "b": weights(G, N, K)}
    w16, w8 = of(BFLOAT16, G, N, K), weights(G, N, K)
    yield "m_grouped_bf16_gemm_nt_contiguous", groups(w16)
    yield "m_grouped_bf16_gemm_nn_contiguous", groups(w16.mT.contiguous())
    for kind in ("fp8", "fp8_fp4"):
        yield f"m_grouped_{kind}_gemm_nt_contiguous", groups(w8, scaled(M, K))
        yield f"m_grouped_{kind}_gemm_nn_contiguous", groups(columns(w8), scaled(M, K))
    for name in ("m_grouped_bf16_gemm_nt_masked", "bf16_m_grouped_gemm_nt_masked"):
        yield name, masked(of(BFLOAT16, G, M, K), w16)
    for name in ("m_grouped_fp8_gemm_nt_masked", "fp8_m_grouped_gemm_nt_masked", "m_grouped_fp8_fp4_gemm_nt_masked"):
        yield name, masked(scaled(G, M, K), w8)
    yield "k_grouped_bf16_gemm_tn_contiguous", k_groups(of(BFLOAT16, K, M), of(BFLOAT16, K, N))
    columns_of = (of(E4M3, K, M), fp32(K // 128, M)), (of(E4M3, K, N), fp32(K // 128, N))
    yield "k_grouped_fp8_gemm_tn_contiguous", k_groups(*columns_of)
    stored = (of(E4M3, K * M), fp32(M, K // 128)), (of(E4M3, K * N), fp32(N, K // 128))
    yield "k_grouped_fp8_gemm_nt_contiguous", k_groups(*stored)
    for name in ("per_token_cast_to_fp8", "per_block_cast_to_fp8"):
        yield name, {"x": of(BFLOAT16, M, K), "use_ue8m0": False}
    yield "get_mn_major_tma_aligned_tensor", {"sf": fp32(M, 2)}
    yield "transform_sf_into_required_layout", {"sf": fp32(M, 2), "mn": M, "k": K, "recipe": (1, 128)}


def flashinfer_calls() -> Iterator[tuple[str, dict[str, Any]]]:
    indptr = torch.tensor([0, M // G, M], dtype=INT32)
    new = {"m_indptr": indptr, "out": of(BFLOAT16, M, N)}
    yield "grouped_mm_bf16", {"a": of(BFLOAT16, M, K), "b": of(BFLOAT16, G, N, K)} | new
    eights = {"a": of(E4M3, M, K), "b": of(E4M3, G, N, K)}
    yield "grouped_mm_fp8", eights | {"alpha": fp32(1)} | new
    scales = {"a_scale": fp32(K // 128, M), "b_scale": fp32(G, K // 128, N // 128)}
    yield "group_gemm_fp8_nt_groupwise", eights | scales | new


def sgl_kernel_calls() -> Iterator[tuple[str, dict[str, Any]]]:
    names = ("mat_a", "mat_b", "scales_a", "scales_b")
    yield "fp8_scaled_mm", product_of_8_bits(*names)
    yield "int8_scaled_mm", product_of_8_bits(*names, INT8)
    written = {"input": of(BFLOAT16, M, K), "output_q": of(E4M3, M, K)}
    yield "sgl_per_token_quant_fp8", written | {"output_s": fp32(M, 1)}
    form = {"group_size": 128, "eps": 1e-10, "fp8_min": -448.0, "fp8_max": 448.0}
    yield "sgl_per_token_group_quant_8bit", written | {"output_s": fp32(M, K // 128)} | form
    yield "topk_softmax", routed()
    yield "topk_sigmoid", routed() | {"correction_bias": fp32(16)}


def torch_calls() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "_int_mm", {"input": of(INT8, M, K), "mat2": of(INT8, K, N), "out": of(INT32, M, N)}
    yield "_scaled_mm", product_of_8_bits("input", "mat2", "scale_a", "scale_b")
    recipes = {"scale_recipe_a": 1, "scale_recipe_b": 1}
    scaled_product = product_of_8_bits("mat_a", "mat_b", "scale_a", "scale_b") | recipes
    scaled_product["output_dtype"] = scaled_product.pop("out_dtype")
    yield "scaled_mm", scaled_product
    for name, a, b in (("_grouped_mm", "input", "mat2"), ("grouped_mm", "mat_a", "mat_b")):
        yield name, {a: of(BFLOAT16, M, K), b: of(BFLOAT16, G, K, N), "offs": ENDS}
    scales = {"scale_a": fp32(M), "scale_b": fp32(G, N), "offs": ENDS}
    weights_of_groups = of(E4M3, G, N, K).mT
    yield "_scaled_grouped_mm", {"input": of(E4M3, M, K), "mat2": weights_of_groups} | scales
    yield "scaled_grouped_mm", {"mat_a": of(E4M3, M, K), "mat_b": weights_of_groups} | scales | recipes


def vllm_calls() -> Iterator[tuple[str, dict[str, Any]]]:
    names = ("a", "b", "scale_a", "scale_b")
    yield "cutlass_scaled_mm", product_of_8_bits(*names)
    zero_points = {"azp_adj": of(INT32, N), "azp": of(INT32, M)}
    yield "cutlass_scaled_mm_azp", product_of_8_bits(*names, INT8) | zero_points
    normed = {"input": of(BFLOAT16, M, K), "weight": of(BFLOAT16, K), "epsilon": 1e-6}
    residual = {"residual": of(BFLOAT16, M, K)}
    dynamic = normed | residual | {"quant_dtype": E4M3}
    yield "rms_norm_dynamic_per_token_quant", dynamic
    yield "rms_norm_per_block_quant", dynamic | {"group_size": [1, 128]}
    static = normed | {"result": of(E4M3, M, K), "scale": fp32(1)}
    yield "rms_norm_static_fp8_quant", static
    yield "fused_add_rms_norm_static_fp8_quant", static | residual
    matrix = {"input": of(BFLOAT16, M, K)}
    yield "scaled_fp8_quant", matrix | {"scale": fp32(1), "output": of(E4M3, M, K)}
    yield "scaled_int8_quant", matrix | {"scale": fp32(1), "azp": of(INT32, 1), "symmetric": False}
    x = {"x": of(BFLOAT16, M, K), "group_size": 128}
    yield "per_token_group_quant_fp8", x | {"out_q": of(E4M3, M, K)}
    yield "per_token_group_quant_int8", x
    numbered = routed("token_expert_indices") | {"e_score_correction_bias": fp32(16)}
    yield "topk_softmax", numbered
    yield "topk_sigmoid", numbered
    form = {"num_expert_group": 4, "topk_group": 2, "topk": 2, "renormalize": True, "routed_scaling_factor": 1.0}
    yield "grouped_topk", {"scores": torch.randn(8, 16), "bias": fp32(16), "scoring_func": 1} | form


CALLS = {(library, name): given for library in LIBRARIES for name, given in globals()[f"{library}_calls"]()}
# What has no operand at all.
PLAIN = {
    "deep_gemm": {"align", "ceil_div", "get_tma_aligned_size"},
    "vllm": {
        "cutlass_group_gemm_supported",
        "cutlass_scaled_mm_supports_block_fp8",
        "cutlass_scaled_mm_supports_fp8",
    },
}
# What may be None here, though it has no default there: a norm without weights, a router without a bias.
MAY_BE_NONE = {"weight", "bias"}


def function_of(library: str, name: str) -> Any:
    return getattr(importlib.import_module(f"cleave.compat.{library}"), name)


def is_pair(operand: Any) -> bool:
    return isinstance(operand, tuple) and isinstance(operand[0], torch.Tensor)


def operands_of(given: dict[str, Any]) -> list[str]:
    return [name for name, operand in given.items() if isinstance(operand, torch.Tensor) or is_pair(operand)]


OPERANDS = [(*call, operand) for call, given in CALLS.items() for operand in operands_of(given)]


def test_every_function_is_called() -> None:
    for library in LIBRARIES:
        plain = PLAIN.get(library, set())
        served = {*importlib.import_module(f"cleave.compat.{library}").__all__} - plain
        settings = {name for name in served if re.match("[gs]et_.*(alignment|sms|util|pdl|dims|multiple_of)", name)}
        assert {name for of, name in CALLS if of == library} == served - settings


@pytest.mark.parametrize("library, name", CALLS)
def test_the_calls_are_right(library: str, name: str) -> None:
    function_of(library, name)(**CALLS[library, name])


@pytest.mark.parametrize("wrong", [3.5, "words", [1, 2, 3], None], ids=str)
@pytest.mark.parametrize("library, name, operand", OPERANDS)
def test_what_is_no_tensor_is_named(library: str, name: str, operand: str, wrong: Any) -> None:
    function, given = function_of(library, name), CALLS[library, name]
    if wrong is None and (operand in MAY_BE_NONE or inspect.signature(function).parameters[operand].default is None):
        return
    refusal = rf"^{operand} (of \w+ )?is .*; it must be a (float32 )?t(ensor|uple)"
    with pytest.raises(TypeError, match=refusal) as caught:
        function(**given | {operand: wrong})
    assert re.search(rf"{re.escape(repr(wrong))}|{type(wrong).__name__}", str(caught.value))


@pytest.mark.parametrize("library, name, operand", [each for each in OPERANDS if is_pair(CALLS[each[:2]][each[2]])])
def test_what_is_no_pair_is_named(library: str, name: str, operand: str) -> None:
    function, given = function_of(library, name), CALLS[library, name]
    data, scale = given[operand]
    for wrong in (data, (data,), (data, scale, scale)):
        with pytest.raises(TypeError, match=f"^{operand} is .*; it must be a tuple of 8-bit floats and their scales"):
            function(**given | {operand: wrong})
    for place, wrong in enumerate(((None, scale), (data, None))):
        with pytest.raises(
            TypeError, match=rf"^{operand}\[{place}\] of {function.__name__} is None, a NoneType; it mu"
        ):
            function(**given | {operand: wrong})


@pytest.mark.parametrize(
    "library, name, operand, wrong",
    [
        ("deep_gemm", "einsum", "a", of(BFLOAT16, K)),
        ("deep_gemm", "m_grouped_bf16_gemm_nt_contiguous", "b", of(BFLOAT16, N)),
        ("torch", "scaled_mm", "mat_a", of(E4M3, K)),
        ("vllm", "cutlass_scaled_mm", "b", of(E4M3, K)),
    ],
)
def test_too_few_dimensions_are_shown(library: str, name: str, operand: str, wrong: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=rf"{operand} is \({wrong.shape[0]},\)"):
        function_of(library, name)(**CALLS[library, name] | {operand: wrong})
