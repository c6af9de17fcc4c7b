"""torch.ops.cleave.grouped_gemm with gather, and the layers that compute this way: beside copies of rows."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cleave.torch")

from cleave.torch import MoE, W8A8Experts  # noqa: E402
from cleave.torch.dispatch import Arrived, OneRank  # noqa: E402

full, quantized = torch.ops.cleave.grouped_gemm.full, torch.ops.cleave.grouped_gemm.quantized
TOKENS, EXPERTS, TOP_K, FEATURES, HIDDEN = 30, 5, 3, 64, 48


def sorted_tokens() -> tuple[Any, Any]:
    ids = torch.randint(-1, EXPERTS + 1, (TOKENS, TOP_K), generator=torch.Generator().manual_seed(0))
    return torch.ops.cleave.moe_sort_tokens(ids, EXPERTS)


def test_operators_gather_rows() -> None:
    x, w = torch.randn(TOKENS, FEATURES), torch.randn(EXPERTS, FEATURES, 128)
    offs, indices = sorted_tokens()
    rows = torch.ops.cleave.moe_gather(x, indices)
    listed: dict[str, Any] = {"gather": indices, "top_k": TOP_K}
    assert torch.equal(full(x, w, offs, **listed), full(rows, w, offs))
    out = torch.empty(len(indices), 128)
    torch.ops.cleave.grouped_gemm.out(x, w, offs, **listed, zero_rest=True, out=out)
    assert torch.equal(out, full(rows, w, offs))
    for major in ("k", "mn"):
        found: dict[str, Any] = {"out_dtype": torch.float8_e4m3fn, "scale_major": major}
        for own, other in zip(quantized(x, w, offs, **listed, **found), quantized(rows, w, offs, **found), strict=True):
            assert torch.equal(own.float(), other.float()) and own.stride() == other.stride()


def test_under_the_compiler() -> None:
    x, w = torch.randn(TOKENS, FEATURES), torch.randn(EXPERTS, FEATURES, 128)
    offs, indices = sorted_tokens()

    def product(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return full(x, w, offs, gather=indices, top_k=TOP_K).relu()

    compiled = torch.compile(product, fullgraph=True, dynamic=True)
    assert torch.equal(compiled(x, indices), product(x, indices))
    torch.library.opcheck(full, (x, w, offs), {"gather": indices, "top_k": TOP_K}, test_utils="test_faketensor")


def test_what_is_named_has_no_gradient() -> None:
    x, w = torch.randn(TOKENS, FEATURES, requires_grad=True), torch.randn(EXPERTS, FEATURES, 8)
    offs, indices = sorted_tokens()
    with pytest.raises(RuntimeError, match="gather is given, and what it names has no gradient"):
        full(x, w, offs, gather=indices, top_k=TOP_K)
    with torch.no_grad():
        full(x, w, offs, gather=indices, top_k=TOP_K)


class Copies(OneRank):
    """As a class of a user's own gets them."""

    def dispatch(self, *arguments: Any, **options: Any) -> Arrived:
        arrived = super().dispatch(*arguments, **options)
        assert arrived.gather is None and len(arrived.rows) == TOKENS * TOP_K
        return arrived


@pytest.mark.parametrize(("dtype", "recipe"), [("float32", None), ("bfloat16", None), ("bfloat16", "blockwise")])
@torch.no_grad()
def test_a_mixture_without_gradients_copies_no_rows(
    dtype: str, recipe: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    made: dict[str, Any] = {"recipe": recipe, "dtype": getattr(torch, dtype)}
    moe = MoE(EXPERTS, TOP_K, 128, 128, **made)
    other = MoE(EXPERTS, TOP_K, 128, 128, dispatcher=Copies(), **made)
    other.load_state_dict(moe.state_dict())
    x = torch.randn(TOKENS, 128, dtype=made["dtype"])
    expected = other(x)
    monkeypatch.delattr(torch.ops.cleave, "moe_permute")
    assert torch.equal(moe(x), expected)


def experts_in_8_bits(dtype: torch.dtype, **options: Any) -> W8A8Experts:
    layer = W8A8Experts(EXPERTS, 300, 128, dtype=dtype, **options)
    generator = torch.Generator().manual_seed(2)
    for buffer in layer.buffers():
        buffer.copy_(torch.rand(buffer.shape, generator=generator) - 0.5)
    return layer


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("granularity", ["row", "block_1x128", "block_128x128"])
def test_experts_in_8_bits_of_blocks_copy_and_quantise_in_one(
    granularity: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bits of what a dispatcher of a user's own copies, which reads 8 bits; and of rows that a product gathers."""
    in_one = experts_in_8_bits(dtype, granularity=granularity, dispatcher=OneRank())
    apart = experts_in_8_bits(dtype, granularity=granularity, dispatcher=Copies())
    gathers = experts_in_8_bits(dtype, granularity=granularity)
    x = torch.randn(TOKENS, 300).bfloat16()
    ids, weights = torch.randint(-1, EXPERTS + 1, (TOKENS, TOP_K)), torch.rand(TOKENS, TOP_K)
    expected = apart(x, ids, weights)
    assert torch.equal(gathers(x, ids, weights), expected)
    if granularity != "row":
        monkeypatch.delattr(torch.ops.cleave, "moe_gather")
    assert torch.equal(in_one(x, ids, weights), expected)
