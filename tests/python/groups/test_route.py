"""cleave.moe.route on the CPU: drawn routers against float64, ties, values that are no numbers, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from route_reference import Routing

import cleave

route = cleave.moe.route


@st.composite
def routers(draw: Any) -> tuple[Routing, np.ndarray, np.ndarray | None]:
    """Logits whose scores, and sums of two, are apart: from experts of a few hundred steps, in any order."""
    n_group = draw(st.sampled_from([1, 1, 2, 3, 8, 32]))
    experts = n_group * draw(st.integers(2, min(70, 512 // n_group)))
    topk_group = draw(st.integers(1, n_group))
    top_k = draw(st.integers(1, min(32, topk_group * experts // n_group)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    routing = Routing(
        top_k,
        draw(st.sampled_from(["softmax", "sigmoid"])),
        n_group,
        topk_group,
        draw(st.sampled_from(["max", "top2_sum"])),
        draw(st.booleans()),
        draw(st.sampled_from([1.0, 2.5])),
    )
    logits = rng.standard_normal((draw(st.integers(0, 9)), experts)).astype(np.float32)
    bias = rng.standard_normal(experts).astype(np.float32) if draw(st.booleans()) else None
    return routing, logits, bias


@given(routers())
def test_as_in_float64(router: tuple[Routing, np.ndarray, np.ndarray | None]) -> None:
    routing, logits, bias = router
    weights, ids = route(logits, bias=bias, **vars(routing))
    assert weights.dtype == np.float32 and ids.dtype == np.int32
    assert weights.shape == ids.shape == (len(logits), routing.top_k)
    expected = routing.chosen(logits, bias)
    if (ids != expected).any():  # only among scores that float32 has not apart
        check_nearly_best(routing, logits, bias, ids, expected)
    np.testing.assert_allclose(weights, routing.weights(logits, ids), rtol=4e-6)


def check_nearly_best(
    routing: Routing, logits: np.ndarray, bias: np.ndarray | None, ids: np.ndarray, expected: np.ndarray
) -> None:
    """What is compared of the chosen, in their order, is as large as of the best but for roundoff."""
    assert bias is not None or routing.group_score == "top2_sum", "logits are compared exactly"
    if routing.topk_group < routing.n_group:
        return  # whole groups may be as near
    compared = routing.scores(logits) + (0.0 if bias is None else bias)
    best, made = (np.take_along_axis(compared, x.astype(np.int64), 1) for x in (expected, ids))
    np.testing.assert_allclose(made, best, rtol=1e-6, atol=1e-6)


def test_deepseek_v3() -> None:
    """256 experts in 8 groups, 4 of them, 8 experts, a bias."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((300, 256)).astype(np.float32)
    bias = rng.standard_normal(256).astype(np.float32) * 0.1
    routing = Routing(8, "sigmoid", 8, 4, routed_scaling_factor=2.5)
    weights, ids = route(logits, bias=bias, **vars(routing))
    assert (ids == routing.chosen(logits, bias)).all()
    np.testing.assert_allclose(weights, routing.weights(logits, ids), rtol=2e-6)
    np.testing.assert_allclose(weights.sum(1), 2.5, rtol=1e-6)


def test_ties_go_to_the_lower_number() -> None:
    logits = np.zeros((3, 200), np.float32)
    logits[1, 50::3] = -0.0
    logits[2, 100:] = 1
    for options in ({}, {"scoring_func": "sigmoid"}, {"bias": np.ones(200, np.float32)}):
        ids = route(logits, 5, **options)[1]
        assert ids.tolist() == [list(range(5)), list(range(5)), list(range(100, 105))]
    ids = route(logits, 5, n_group=4, topk_group=2)[1]
    assert ids.tolist() == [list(range(5)), list(range(5)), list(range(100, 105))]


def test_logits_tell_apart_what_scores_do_not() -> None:
    logits = np.array([[30, 31, 29, -200, -199]], np.float32)
    for scoring_func in ("sigmoid", "softmax"):
        assert route(logits, 5, scoring_func=scoring_func)[1].tolist() == [[1, 0, 2, 4, 3]]
    # A bias decides, but weighs nothing.
    weights, ids = route(logits, 2, bias=np.array([0, 0, 0, 9, 8], np.float32))
    assert ids.tolist() == [[3, 4]]
    np.testing.assert_allclose(weights, [[1 / (1 + np.e), np.e / (1 + np.e)]], rtol=1e-6)


@pytest.mark.parametrize("scoring_func", ["softmax", "sigmoid"])
@pytest.mark.parametrize("groups", [{}, {"n_group": 4, "topk_group": 1, "group_score": "max"}])
def test_no_numbers(scoring_func: str, groups: dict[str, Any]) -> None:
    """NaNs come first, infinities are numbers, and ids are experts, each once."""
    nan, inf = np.nan, np.inf
    logits = np.zeros((5, 40), np.float32)
    logits[0] = nan
    logits[1, [35, 31]] = nan
    logits[2] = -inf
    logits[3, 33] = inf
    logits[4, 34] = -nan
    bias = np.array([nan, inf, -inf, -nan] * 10, np.float32)
    for form in (groups, {**groups, "group_score": "top2_sum"}, {**groups, "bias": bias}):
        ids = route(logits, 4, scoring_func=scoring_func, **form)[1]
        assert all(len(set(row)) == 4 and min(row) >= 0 and max(row) < 40 for row in ids.tolist())
    weights, ids = route(logits, 4, scoring_func=scoring_func, **groups)
    assert ids[0].tolist() == ids[2].tolist() == [0, 1, 2, 3]
    assert ids[1, :2].tolist() == [31, 35]
    assert ids[3, 0] == 33 and ids[4, 0] == 34
    assert np.isnan(weights[[0, 1, 4]]).all()
    if scoring_func == "sigmoid":
        assert weights[2].tolist() == [0] * 4, "of sigmoids that are all 0"
        np.testing.assert_allclose(weights[3], np.array([1, 0.5, 0.5, 0.5]) / 2.5, rtol=1e-6)


def test_rows_may_be_apart() -> None:
    logits = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    for made, expected in zip(route(logits[::2, 3:40], 4), route(logits[::2, 3:40].copy(), 4), strict=True):
        assert (made == expected).all()


def test_a_token_is_the_same_in_any_batch() -> None:
    logits = np.random.default_rng(0).standard_normal((500, 129)).astype(np.float32)
    of_all = route(logits, 9, renormalize=False)
    for token in (0, 77, 499):
        for made, expected in zip(route(logits[token : token + 1], 9, renormalize=False), of_all, strict=True):
            assert (made == expected[token : token + 1]).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    logits = torch.randn(64, 60).to(getattr(torch, name))
    weights, ids = route(logits, 4)
    best, expected = logits.float().topk(4)
    assert weights.dtype == torch.float32 and ids.dtype == torch.int32
    assert torch.equal(logits.float().gather(1, ids.long()), best)
    assert name != "float32" or torch.equal(ids.long(), expected)
    torch.testing.assert_close(weights, best.softmax(1))
    rows, _, indices = cleave.moe.permute(logits, ids, 60)
    torch.testing.assert_close(cleave.moe.unpermute(rows, indices, weights), logits, rtol=1e-2, atol=1e-2)


# --- bad input ---

X = np.zeros((4, 24), np.float32)

BAD: dict[str, tuple[Any, type[Exception], tuple[str, ...]]] = {
    "integers": (lambda: route(X.astype(np.int32), 2), TypeError, ("logits is int32", "float32")),
    "one token without its row": (lambda: route(X[0], 2), ValueError, ("logits has 1 dimension", "must have 2")),
    "columns apart": (lambda: route(X[:, ::2], 2), ValueError, ("logits", "contiguous")),
    "too many experts": (lambda: route(np.zeros((1, 513), np.float32), 2), ValueError, ("experts is 513", "512")),
    "no expert": (lambda: route(X[:, :0], 1), ValueError, ("experts is 0",)),
    "no choice": (lambda: route(X, 0), ValueError, ("top_k is 0", "1 to 24")),
    "more than there are": (lambda: route(X, 25), ValueError, ("top_k is 25", "1 to 24")),
    "more than a warp": (lambda: route(np.zeros((1, 64), np.float32), 33), ValueError, ("top_k is 33", "1 to 32")),
    "more than kept groups have": (
        lambda: route(X, 13, n_group=4, topk_group=2),
        ValueError,
        ("top_k is 13", "1 to 12"),
    ),
    "groups of no size": (lambda: route(X, 1, n_group=5), ValueError, ("n_group is 5 for 24 experts", "divide")),
    "more groups than there are": (
        lambda: route(X, 1, n_group=4, topk_group=5),
        ValueError,
        ("topk_group is 5", "n_group, 4"),
    ),
    "no group": (lambda: route(X, 1, n_group=4, topk_group=0), ValueError, ("topk_group is 0",)),
    "two of one": (lambda: route(X, 1, n_group=24, topk_group=3), ValueError, ("top2_sum", "take max")),
    "a bias too few": (
        lambda: route(X, 1, bias=np.zeros(23, np.float32)),
        ValueError,
        ("bias is (23,)", "logits is (4, 24)"),
    ),
    "a bias in float64": (lambda: route(X, 1, bias=np.zeros(24)), TypeError, ("bias is float64", "float32")),
    "no such score": (lambda: route(X, 1, scoring_func="softmin"), ValueError, ("scoring_func", 'mean "softmax"')),
    "no such group score": (lambda: route(X, 1, group_score="sum"), ValueError, ("group_score", "top2_sum")),
    "a factor that is none": (
        lambda: route(X, 1, routed_scaling_factor=float("nan")),
        ValueError,
        ("routed_scaling_factor is nan", "finite"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, error, parts = BAD[name]
    with pytest.raises(error) as raised:
        call()
    for part in parts:
        assert part in str(raised.value)
