"""cleave.compat beside the originals, where torch has them on the CPU, or their definition."""

from __future__ import annotations

import inspect

import pytest
from gemm_reference import spread

from cleave.compat import deep_gemm, vllm
from cleave.compat import torch as compat_torch

torch = pytest.importorskip("torch")

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
M, N, K = 48, 160, 320
K_BLOCKS = 3


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def operand(rows: int, dtype: torch.dtype = E4M3, k: int = K) -> torch.Tensor:
    if dtype == torch.int8:
        return torch.randint(-128, 128, (rows, k), dtype=dtype)
    return torch.randn(rows, k).to(dtype)


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(shape) + 0.1


def real(values: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
    """`values` times scales of one, [rows, 1], or [rows or blocks, blocks], in float64."""
    matrix = torch.as_tensor(scale)
    matrix = matrix if matrix.ndim == 2 else matrix.reshape(1, 1)
    return values.double() * torch.tensor(spread(matrix, *values.shape))


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | float = 1.0,
    scale_b: torch.Tensor | float = 1.0,
) -> torch.Tensor:
    """a [M, K] times b [N, K]."""
    return real(a, scale_a) @ real(b, scale_b).mT


def assert_close(result: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert result.dtype == dtype and result.is_contiguous()
    rounding = 1e-5 if dtype == torch.float32 else torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), expected, rtol=rounding, atol=1e-3)


# --- torch ---


def test_signatures_of_torch() -> None:
    for name in ("_int_mm", "_scaled_mm"):
        ours = inspect.signature(getattr(compat_torch, name)).parameters
        overload = getattr(torch.ops.aten, name).out
        theirs = ["input" if a.name == "self" else a.name for a in overload._schema.arguments]
        assert list(ours) == theirs
        keyword_only = [a.name for a in overload._schema.arguments if a.kwarg_only]
        assert [p.name for p in ours.values() if p.kind is p.KEYWORD_ONLY] == keyword_only
    theirs = inspect.signature(torch.nn.functional.scaled_mm).parameters
    ours = inspect.signature(compat_torch.scaled_mm).parameters
    assert list(ours) == list(theirs)
    assert [p.kind for p in ours.values()] == [p.kind for p in theirs.values()]


def test_int_mm() -> None:
    a, b = operand(M, torch.int8), operand(N, torch.int8)
    expected = torch._int_mm(a, b.t())
    assert torch.equal(compat_torch._int_mm(a, b.t()), expected)
    assert torch.equal(compat_torch._int_mm(a, b.t().contiguous()), expected)
    out = torch.empty_like(expected)
    assert compat_torch._int_mm(a, b.t(), out=out) is out and torch.equal(out, expected)
    with pytest.raises(TypeError, match="int8"):
        compat_torch._int_mm(a.float(), b.t().float())


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float16, torch.float32, E4M3])
@pytest.mark.parametrize("scale_result", [None, torch.tensor(0.5)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_scaled_mm_of_tensors(out_dtype, scale_result, has_bias) -> None:
    a, b, scale_a, scale_b = operand(M), operand(N), torch.tensor(0.3), torch.tensor([[1.7]])
    bias = torch.randn(N).bfloat16() if has_bias else None
    arguments = (a, b.t(), scale_a, scale_b, bias, scale_result, out_dtype)
    theirs = torch._scaled_mm(*arguments)
    ours = compat_torch._scaled_mm(*arguments)
    assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
    rounding = 1e-4 if out_dtype == torch.float32 else torch.finfo(out_dtype).eps
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=rounding, atol=1e-3)
    out = torch.empty_like(theirs)
    assert compat_torch._scaled_mm(*arguments, True, out=out) is out
    assert torch.equal(out.float(), ours.float())


def test_scaled_mm_gives_its_inputs_type_by_default() -> None:
    a, b, one = operand(M, E5M2), operand(N), torch.ones(1)
    d = compat_torch._scaled_mm(a, b.t(), one, one)
    assert d.dtype == E5M2
    assert torch.equal(d.float(), torch._scaled_mm(a, b.t(), one, one, out_dtype=E5M2).float())


def test_scaled_mm_of_rows_and_blocks() -> None:
    a, b = operand(M), operand(N, E5M2)
    outer_major = scales(K_BLOCKS, M).t()
    for scale_a, scale_b in (
        (scales(M, 1), scales(N, 1)),
        (outer_major, scales(2, K_BLOCKS)),
        (scales(1, K_BLOCKS), scales(K_BLOCKS, N).t()),
        (outer_major, scales(K_BLOCKS, N).t()),
    ):
        d = compat_torch._scaled_mm(a, b.t(), scale_a, scale_b.t(), out_dtype=torch.bfloat16)
        assert_close(d, product(a, b, scale_a, scale_b), torch.bfloat16)


@pytest.mark.parametrize("scale", [float("inf"), -float("inf"), float("nan")])
def test_scaled_mm_of_nothing_is_zero(scale: float) -> None:
    a, b = operand(M, k=0), operand(N, k=0)
    one = torch.tensor(scale)
    zeros = torch.zeros(M, N, dtype=torch.bfloat16)
    assert torch.equal(compat_torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16), zeros)
    rows, columns = one.expand(M, 1).contiguous(), one.expand(1, N).contiguous()
    d = compat_torch._scaled_mm(a, b.t(), rows, columns, out_dtype=torch.bfloat16)
    assert torch.equal(d, zeros)
    of_tensor = recipe("TensorWise")
    d = compat_torch.scaled_mm(a, b.t(), one, of_tensor, one, of_tensor, output_dtype=torch.bfloat16)
    assert torch.equal(d, zeros)


def test_scaled_mm_refuses_microscaling() -> None:
    a, b = operand(M), operand(N)
    mx = torch.ones(M * K // 32, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    with pytest.raises(TypeError, match="scale_a is float8_e8m0fnu; it must be float32"):
        compat_torch._scaled_mm(a, b.t(), mx, mx)


def recipe(name: str) -> object:
    return getattr(torch.nn.functional.ScalingType, name)


def test_functional_scaled_mm() -> None:
    a, b, bias = operand(M), operand(N), torch.randn(N).bfloat16()
    outer_a, outer_b = scales(K_BLOCKS, M).t(), scales(K_BLOCKS, N).t()
    square_a, square_b = scales(1, K_BLOCKS), scales(2, K_BLOCKS)

    def padded(square: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(square, (0, 1), value=float("nan")).t()

    for name_a, scale_a, passed_a, name_b, scale_b, passed_b in (
        ("TensorWise", 0.5, torch.tensor(0.5), "TensorWise", 2.0, torch.tensor([[2.0]])),
        ("RowWise", outer_a[:, :1], outer_a[:, :1], "RowWise", outer_b[:, :1], outer_b[:, 0][None]),
        ("BlockWise1x128", outer_a, outer_a, "BlockWise1x128", outer_b, outer_b),
        ("BlockWise1x128", outer_a, outer_a, "BlockWise128x128", square_b, padded(square_b)),
        ("BlockWise128x128", square_a, padded(square_a), "BlockWise1x128", outer_b, outer_b),
    ):
        d = compat_torch.scaled_mm(a, b.t(), passed_a, recipe(name_a), [passed_b], [recipe(name_b)], bias=bias)
        assert_close(d, product(a, b, scale_a, scale_b) + bias.double(), torch.bfloat16)
    assert compat_torch.scaled_mm(
        a, b.t(), torch.ones(1), recipe("TensorWise"), torch.ones(1), recipe("TensorWise"),
        output_dtype=None,
    ).dtype == E4M3  # fmt: skip


def test_functional_scaled_mm_refusals() -> None:
    a, b, one, tensor_wise = operand(M), operand(N), torch.ones(1), recipe("TensorWise")
    rows = scales(M, 1), recipe("RowWise")
    swizzle = torch.nn.functional.SwizzleType.SWIZZLE_32_4_4
    for arguments, options, words in (
        ((one, recipe("BlockWise1x32"), one, tensor_wise), {}, "scale_a is .*BlockWise1x32"),
        (([one, one], [tensor_wise] * 2, one, tensor_wise), {}, "scale_a has 2 levels"),
        ((*rows, scales(N + 1), recipe("RowWise")), {}, r"scale_b is \(161, 1\).* \(160, 1\)"),
        ((scales(M, 2), recipe("BlockWise1x128"), one, tensor_wise), {}, r"scale_a is \(48, 2\)"),
        ((one, tensor_wise) * 2, {"swizzle_b": swizzle}, "swizzle_b is"),
        ((one, tensor_wise) * 2, {"contraction_dim": (0, 1)}, "contraction_dim is"),
    ):
        with pytest.raises(ValueError, match=words):
            compat_torch.scaled_mm(a, b.t(), *arguments, **options)


# --- vLLM ---


@pytest.mark.parametrize("dtype", [torch.int8, E4M3])
@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float16])
def test_cutlass_scaled_mm(dtype: torch.dtype, out_dtype: torch.dtype) -> None:
    a, b, bias = operand(M, dtype), operand(N, dtype), torch.randn(N).to(out_dtype)
    for scale_a, scale_b in (
        (scales(1, 1) / 99, scales(1) / 99),
        (scales(M, 1) / 99, scales(N, 1) / 99),  # per channel as checkpoints store them
        (scales(M, 1) / 99, scales(1, 1) / 99),
    ):
        d = vllm.cutlass_scaled_mm(a, b.t(), scale_a, scale_b, out_dtype, bias)
        assert_close(d, product(a, b, scale_a, scale_b) + bias.double(), out_dtype)
        batched = vllm.cutlass_scaled_mm(a.view(4, M // 4, K), b.t(), scale_a, scale_b, out_dtype=out_dtype, bias=bias)
        assert torch.equal(batched, d.view(4, M // 4, N))


def test_cutlass_scaled_mm_of_blocks() -> None:
    a, b, scale_a, scale_b = operand(M), operand(N), scales(K_BLOCKS, M).t(), scales(2, K_BLOCKS)
    d = vllm.cutlass_scaled_mm(a, b.t(), scale_a, scale_b.t(), torch.bfloat16)
    assert_close(d, product(a, b, scale_a, scale_b), torch.bfloat16)


def test_cutlass_scaled_mm_azp() -> None:
    """Activations that are asymmetric: real = scale * (element - azp)."""
    a, b, bias = operand(M, torch.int8), operand(N, torch.int8), torch.randn(N).half()
    scale_a, scale_b = scales(M, 1) / 999, scales(N, 1) / 999
    adj = b.sum(1, dtype=torch.int32)
    azp = torch.randint(-128, 128, (M, 1), dtype=torch.int32)
    for shift, arguments in (
        (azp, {"azp_adj": adj, "azp": azp}),
        (7, {"azp_adj": 7 * adj[None]}),
    ):
        d = vllm.cutlass_scaled_mm_azp(a, b.t(), scale_a, scale_b, torch.float16, **arguments, bias=bias)
        expected = product(a.int() - shift, b, scale_a, scale_b) + bias.double()
        assert_close(d, expected, torch.float16)


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x.double(), (x.shape[-1],), weight.double(), 1e-5)


@pytest.mark.parametrize("dtype", [torch.int8, E4M3])
def test_rms_norm_dynamic_per_token_quant(dtype: torch.dtype) -> None:
    x, residual, weight = torch.randn(4, 3, 300).half(), torch.randn(4, 3, 300).half(), torch.randn(300).half()
    for added in (None, residual):
        sums = x if added is None else (x.float() + added.float()).half()
        q, scale = vllm.rms_norm_dynamic_per_token_quant(x, weight, 1e-5, dtype, residual=added)
        assert q.shape == x.shape and q.dtype == dtype and scale.shape == (12, 1)
        assert added is None or torch.equal(added, sums), "the residual becomes the sum"
        exact = normed(sums, weight)
        bound = scale.double().view(4, 3, 1) * 0.5001 if dtype == torch.int8 else exact.abs() / 15.9 + 1e-3
        assert ((q.double() * scale.view(4, 3, 1) - exact).abs() <= bound).all()
    with pytest.raises(ValueError, match="scale_ub is given"):
        vllm.rms_norm_dynamic_per_token_quant(x, weight, 1e-5, dtype, torch.ones(1))


def test_rms_norm_per_block_quant() -> None:
    x, weight = torch.randn(12, 384).bfloat16(), torch.randn(384).bfloat16()
    exact = normed(x, weight)
    for transposed in (False, True):
        q, scale = vllm.rms_norm_per_block_quant(x, weight, 1e-5, E4M3, [1, 128], None, None, transposed, 4)
        assert scale.stride() == ((1, 12) if transposed else (3, 1))
        torch.testing.assert_close(scale.double() * 448, exact.view(12, 3, 128).abs().amax(2), rtol=1e-5, atol=0)
        real = (q.double().view(12, 3, 128) * scale[:, :, None]).view(12, 384)
        assert ((real - exact).abs() <= exact.abs() / 15.9 + 1e-3).all()
    with pytest.raises(ValueError, match=r"group_size is \[1, 64\]"):
        vllm.rms_norm_per_block_quant(x, weight, 1e-5, E4M3, [1, 64])
    with pytest.raises(ValueError, match="tma_alignment is 5 for 12 rows"):
        vllm.rms_norm_per_block_quant(x, weight, 1e-5, E4M3, [1, 128], None, None, True, 5)


def test_norms_with_static_scales() -> None:
    x, residual, weight = torch.randn(2, 5, 96), torch.randn(2, 5, 96), torch.randn(96)
    result, scale = torch.empty(2, 5, 96, dtype=E4M3), torch.tensor([0.02])
    vllm.rms_norm_static_fp8_quant(result, x, weight, scale, 1e-5)
    exact = normed(x, weight)
    assert ((result.double() * 0.02 - exact).abs() <= exact.abs() / 15.9 + 1e-3).all()
    exact, sums = normed(x + residual, weight), x + residual
    vllm.fused_add_rms_norm_static_fp8_quant(result, x, residual, weight, scale, 1e-5)
    assert torch.equal(residual, sums)
    assert ((result.double() * 0.02 - exact).abs() <= exact.abs() / 15.9 + 1e-3).all()


def test_signatures_of_vllm() -> None:
    """As vllm._custom_ops has them, which cannot be imported here."""
    assert list(inspect.signature(vllm.cutlass_scaled_mm).parameters) == [
        "a", "b", "scale_a", "scale_b", "out_dtype", "bias",
    ]  # fmt: skip
    assert list(inspect.signature(vllm.cutlass_scaled_mm_azp).parameters) == [
        "a", "b", "scale_a", "scale_b", "out_dtype", "azp_adj", "azp", "bias",
    ]  # fmt: skip
    assert list(inspect.signature(vllm.rms_norm_dynamic_per_token_quant).parameters) == [
        "input", "weight", "epsilon", "quant_dtype", "scale_ub", "residual",
    ]  # fmt: skip
    assert list(inspect.signature(vllm.rms_norm_per_block_quant).parameters) == [
        "input", "weight", "epsilon", "quant_dtype", "group_size", "scale_ub", "residual", "is_scale_transposed",
        "tma_alignment",
    ]  # fmt: skip


# --- DeepGEMM ---


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("recipe", [(1, 128, 128), (1, 1, 128)])
def test_fp8_gemm_nt(out_dtype: torch.dtype, recipe: tuple[int, int, int]) -> None:
    a, b = operand(M), operand(N)
    scale_b = scales(-(-N // recipe[1]), K_BLOCKS)
    d = torch.empty(M, N, dtype=out_dtype)
    for scale_a in (scales(M, K_BLOCKS), scales(K_BLOCKS, M).t()):
        expected = product(a, b, scale_a, scale_b)
        for options in ({}, {"recipe": recipe}, {"recipe_a": (1, 128), "disable_ue8m0_cast": True}):
            d.fill_(float("nan"))
            assert deep_gemm.fp8_gemm_nt((a, scale_a), (b, scale_b), d, **options) is None
            assert_close(d, expected, out_dtype)
    c = torch.randn(M, N).to(out_dtype)
    deep_gemm.fp8_gemm_nt((a, scale_a), (b, scale_b), d, c)
    assert_close(d, expected + c.double(), out_dtype)
    expected = 0.5 * expected + c.double()
    deep_gemm.fp8_gemm_nt((a, scale_a), (b, scale_b), c, c, alpha=0.5)
    assert_close(c, expected, out_dtype)


def test_fp8_gemm_nt_without_k_or_rows() -> None:
    c, d = torch.randn(4, 8), torch.empty(4, 8)
    empty = torch.empty(4, 0).to(E4M3), torch.empty(4, 0)
    deep_gemm.fp8_gemm_nt(empty, (torch.empty(8, 0).to(E4M3), torch.empty(1, 0)), d, c)
    assert torch.equal(c, d)
    deep_gemm.fp8_gemm_nt((operand(0), scales(0, K_BLOCKS)), (operand(8), scales(1, K_BLOCKS)), d[:0])


def test_bf16_gemm_nt() -> None:
    a, b, c = torch.randn(M, K).bfloat16(), torch.randn(N, K).bfloat16(), torch.randn(M, N)
    for dtype in (torch.bfloat16, torch.float32):
        d = torch.empty(M, N, dtype=dtype)
        assert deep_gemm.bf16_gemm_nt(a, b, d) is None
        assert_close(d, product(a, b), dtype)
        deep_gemm.bf16_gemm_nt(a, b, d, c.to(dtype), compiled_dims="nk")
        assert_close(d, product(a, b) + c.to(dtype).double(), dtype)


def test_deep_gemm_refusals() -> None:
    a, b, d = operand(M), operand(N), torch.empty(M, N)
    pair_a, pair_b = (a, scales(M, K_BLOCKS)), (b, scales(2, K_BLOCKS))
    packed = torch.ones(M, 1, dtype=torch.int32)
    for exception, words, arguments, options in (
        (TypeError, "scale_a is int32; it must be float32", ((a, packed), pair_b), {}),
        (ValueError, r"recipe of b is \(32, 128\)", (pair_a, pair_b), {"recipe": (1, 32, 128)}),
        (ValueError, r"scales of b are \(2, 3\); .* \(160, 3\)", (pair_a, pair_b),
         {"recipe": (1, 1, 128)}),
    ):  # fmt: skip
        with pytest.raises(exception, match=words):
            deep_gemm.fp8_gemm_nt(*arguments, d, **options)
