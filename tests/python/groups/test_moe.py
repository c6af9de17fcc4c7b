"""cleave.moe on the CPU: NumPy and torch, every shape of ids, dropped tokens, bad input."""

from __future__ import annotations

from typing import Any

import moe_reference
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies_matrices import DTYPES

import cleave

moe = cleave.moe
QUANTIZED = [name for name in ("int8", "float8_e4m3fn", "float8_e5m2") if name in DTYPES]


@st.composite
def routings(draw: Any) -> tuple[np.ndarray, int]:
    experts = draw(st.integers(1, 40))
    shape = (draw(st.integers(0, 70)), draw(st.integers(1, 5)))
    low, high = draw(st.sampled_from([(0, experts), (-2, experts + 3), (0, 1)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ids = rng.integers(low, high, shape)
    return ids.astype(draw(st.sampled_from([np.int32, np.int64]))), experts


@given(routings())
def test_rows_are_sorted_and_stable(routing: tuple[np.ndarray, int]) -> None:
    ids, experts = routing
    offs, indices = moe_reference.positions(ids, experts)
    assert (moe.expert_offsets(ids, experts) == offs).all()
    for made, expected in zip(moe.sort_tokens(ids, experts), (offs, indices), strict=True):
        assert made.dtype == np.int32
        assert (made == expected).all()
    x = np.random.default_rng(0).standard_normal((len(ids), 6)).astype(np.float32)
    made = moe.permute(x, ids, experts)
    expected = moe_reference.gather(x, indices, ids.shape[1]), offs, indices
    for one, other in zip(made, expected, strict=True):
        assert one.shape == other.shape and (one == other).all()


@given(routings(), st.booleans())
def test_and_back(routing: tuple[np.ndarray, int], weighted: bool) -> None:
    ids, experts = routing
    top_k = ids.shape[1]
    indices = moe.sort_tokens(ids, experts)[1]
    rng = np.random.default_rng(1)
    y = rng.standard_normal((ids.size, 5)).astype(np.float32)
    weights = rng.random(ids.shape).astype(np.float32) if weighted else np.ones(ids.shape)
    made = moe.unpermute(y, indices, weights if weighted else None, top_k=None if weighted else top_k)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, moe_reference.unpermute(y, indices, weights), rtol=1e-5, atol=1e-5)


def test_sums_are_in_the_order_of_the_slots() -> None:
    ids = np.array([[2, 0, 1]], np.int32)
    indices = moe.sort_tokens(ids, 3)[1]
    y = np.zeros((3, 1), np.float32)
    y[indices.tolist().index(0)] = 2**25
    y[indices.tolist().index(1)] = 1  # lost beside 2**25
    y[indices.tolist().index(2)] = -(2**25)
    assert moe.unpermute(y, indices, top_k=3).tolist() == [[0.0]]


def test_a_layer_of_experts() -> None:
    """Sorted rows times experts' weights, and back, is each token through its experts."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 16)).astype(np.float32)
    experts = rng.standard_normal((6, 16, 12)).astype(np.float32)
    ids = np.argsort(rng.random((50, 6)), axis=1)[:, :2].copy()
    weights = rng.random((50, 2)).astype(np.float32)
    rows, offs, indices = moe.permute(x, ids, 6)
    y = moe.unpermute(cleave.grouped_gemm(rows, experts, offs), indices, weights)
    expected = sum(weights[:, [s]] * np.einsum("th,thn->tn", x, experts[ids[:, s]]) for s in range(2))
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@given(routings(), st.sampled_from([1, 7, 128, 300]), st.sampled_from(QUANTIZED))
def test_quantised_on_the_way_to_the_slots(routing: tuple[np.ndarray, int], features: int, dtype: str) -> None:
    """As quantise, and then copies of both parts."""
    ids, experts = routing
    x = np.random.default_rng(0).standard_normal((len(ids), features)).astype(np.float32)
    offs, indices = moe.sort_tokens(ids, experts)
    expected = [moe.gather(part, indices) for part in cleave.quantize(x, dtype, "block_1x128")]
    rows, scale, *routed = moe.permute(x, ids, experts, out_dtype=dtype)
    assert (routed[0] == offs).all() and (routed[1] == indices).all()
    for made in ((rows, scale), moe.gather(x, indices, out_dtype=dtype)):
        for one, other in zip(made, expected, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


def test_what_is_wrong_with_scaled_rows_is_said() -> None:
    y, indices = np.ones((4, 200), np.int8), np.arange(4, dtype=np.int32)
    with pytest.raises(ValueError, match="out_dtype is bfloat16; it must be int8"):
        moe.gather(np.ones((4, 8), np.float32), indices, out_dtype="bfloat16")
    with pytest.raises(TypeError, match="scaled is true and token is int8"):
        moe.gather(y, indices, out_dtype="int8")


def test_one_choice_needs_no_second_dimension() -> None:
    x = np.arange(12, dtype=np.int8).reshape(4, 3)
    rows, offs, indices = moe.permute(x, np.array([1, 0, -1, 0]), 2)
    assert rows.tolist() == [[3, 4, 5], [9, 10, 11], [0, 1, 2], [0, 0, 0]]
    assert offs.tolist() == [2, 3]
    assert indices.tolist() == [1, 3, 0, ~2]
    assert (moe.gather(x, indices) == rows).all()


def test_offsets_of_any_shape() -> None:
    for shape in ((), (7,), (2, 3), (2, 3, 4)):
        ids = np.zeros(shape, np.int64)
        assert moe.expert_offsets(ids, 2).tolist() == [ids.size] * 2


def test_strided_rows() -> None:
    x = np.arange(40, dtype=np.float32).reshape(4, 10)[:, 2:7]
    rows, _, indices = moe.permute(x, np.array([3, 2, 1, 0]), 4)
    assert (rows == x[::-1]).all()
    padded = np.zeros((4, 9), np.float32)
    padded[:, :5] = rows
    assert (moe.unpermute(padded[:, :5], indices) == x).all()


def test_indices_that_are_no_permutation_touch_nothing_else() -> None:
    x = np.ones((2, 4), np.float32)
    indices = np.array([7, -100, 0, 2**31 - 1], np.int32)
    assert moe.gather(x, indices).shape == (4, 4)
    assert moe.unpermute(np.ones((4, 4), np.float32), indices, top_k=2).shape == (2, 4)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float8_e4m3fn"])
def test_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    torch.manual_seed(0)
    x = torch.randn(30, 24).to(dtype)
    weights, ids = torch.rand(30, 8).topk(3)
    rows, offs, indices = moe.permute(x, ids, 8)
    assert rows.dtype == dtype and offs.dtype == indices.dtype == torch.int32
    assert torch.equal(rows.float(), x.float()[indices.long() // 3])
    assert torch.equal(offs, torch.bincount(ids.flatten(), minlength=8).cumsum(0).int())
    if name.startswith("float8"):
        with pytest.raises(TypeError, match="y is float8_e4m3fn"):
            moe.unpermute(rows, indices, weights)
        return
    y = moe.unpermute(rows, indices, weights.to(dtype))
    expected = x.float() * weights.to(dtype).float().sum(1, keepdim=True)
    torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=2e-2)


# --- bad input ---

X = np.ones((4, 8), np.float32)
IDS = np.zeros((4, 2), np.int32)
INDICES = np.arange(8, dtype=np.int32)

BAD: dict[str, tuple[Any, type[Exception], tuple[str, ...]]] = {
    "ids are floats": (
        lambda: moe.expert_offsets(np.ones(3), 4),
        TypeError,
        ("expert_ids is float64", "int32 or int64"),
    ),
    "ids are strided": (
        lambda: moe.expert_offsets(np.zeros((4, 4), np.int32)[:, :2], 4),
        ValueError,
        ("expert_ids is not contiguous",),
    ),
    "no experts": (
        lambda: moe.expert_offsets(IDS, 0),
        ValueError,
        ("num_experts is 0", "1 to 1024"),
    ),
    "too many experts": (lambda: moe.sort_tokens(IDS, 1025), ValueError, ("num_experts is 1025",)),
    "experts is a float": (
        lambda: moe.sort_tokens(IDS, 4.0),
        TypeError,
        ("num_experts must be an integer", "float"),
    ),
    "ids of other tokens": (
        lambda: moe.permute(X, IDS[:3], 4),
        ValueError,
        ("expert_ids is (3, 2)", "x is (4, 8)"),
    ),
    "x has a batch": (lambda: moe.permute(X[None], IDS, 4), ValueError, ("x has 3 dimensions",)),
    "x is transposed": (
        lambda: moe.permute(X.T, np.zeros(8, np.int32), 4),
        ValueError,
        ("x has strides (1, 8)", "contiguous"),
    ),
    "indices are int64": (
        lambda: moe.gather(X, INDICES.astype(np.int64)),
        TypeError,
        ("indices is int64", "int32"),
    ),
    "indices do not divide": (
        lambda: moe.gather(X, INDICES[:7]),
        ValueError,
        ("indices is (7,)", "x is (4, 8)"),
    ),
    "indices of other rows": (
        lambda: moe.unpermute(X, INDICES),
        ValueError,
        ("indices is (8,)", "y is (4, 8)"),
    ),
    "top_k does not divide": (
        lambda: moe.unpermute(X, INDICES[:4], top_k=3),
        ValueError,
        ("top_k is 3", "multiple"),
    ),
    "top_k is 0": (lambda: moe.unpermute(X, INDICES[:4], top_k=0), ValueError, ("top_k is 0",)),
    "weights of other tokens": (
        lambda: moe.unpermute(X, INDICES[:4], np.ones((3, 2), np.float32)),
        ValueError,
        ("weights is (3, 2)", "indices is (4,)"),
    ),
    "weights and top_k differ": (
        lambda: moe.unpermute(X, INDICES[:4], np.ones((2, 2), np.float32), top_k=4),
        ValueError,
        ("top_k is 4", "weights is (2, 2)"),
    ),
    "weights are float64": (
        lambda: moe.unpermute(X, INDICES[:4], np.ones((2, 2))),
        TypeError,
        ("weights is float64",),
    ),
    "rows of integers": (
        lambda: moe.unpermute(X.astype(np.int8), INDICES[:4]),
        TypeError,
        ("y is int8",),
    ),
    "a list": (lambda: moe.expert_offsets([0, 1], 2), TypeError, ("expert_ids must be an array",)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    call, exception, words = BAD[case]
    with pytest.raises(exception) as caught:
        call()
    assert type(caught.value) is exception
    for word in words:
        assert word in str(caught.value)
