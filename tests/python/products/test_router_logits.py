"""cleave.moe.router_logits on the CPU: float32 sums of exact products, whatever the types; bad input."""

from __future__ import annotations

from typing import Any

import float32_errors
import numpy as np
import pytest

import cleave

router_logits = cleave.moe.router_logits


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("features", [1, 3, 130, 2048, 7168])
@pytest.mark.parametrize(
    ("x_type", "weight_type"), [("float16", "float32"), ("float32", "float32"), ("float32", "float16")]
)
def test_as_in_float64(x_type: str, weight_type: str, features: int) -> None:
    x, weight = normal(5, features).astype(x_type), normal(33, features, seed=1).astype(weight_type)
    made = router_logits(x, weight)
    assert made.dtype == np.float32 and made.shape == (5, 33)
    a, b = x.astype(np.float64), weight.astype(np.float64).T
    assert (abs(made - a @ b) <= float32_errors.bound(features, (a * a) @ (b * b))).all()


def test_a_logit_is_the_same_in_any_batch_and_layout() -> None:
    x, weight = normal(70, 1000), normal(40, 1000, seed=1)
    of_all = router_logits(x, weight)
    assert np.array_equal(router_logits(x[9:10], weight), of_all[9:10])
    assert np.array_equal(router_logits(x[::2], weight[3:]), of_all[::2, 3:])
    apart = np.zeros((70, 1003), np.float32)[:, 1:1001]
    apart[:] = x
    assert np.array_equal(router_logits(apart, weight, static_weight=True), of_all)


def test_without_features_tokens_or_experts() -> None:
    assert np.array_equal(router_logits(np.zeros((3, 0), np.float32), np.zeros((4, 0), np.float32)), np.zeros((3, 4)))
    assert router_logits(normal(0, 8), normal(4, 8)).shape == (0, 4)
    assert router_logits(normal(3, 8), normal(0, 8)).shape == (3, 0)


def test_torch_multiplies_bfloat16_by_float32() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    torch.manual_seed(0)
    x = torch.randn(6, 300).bfloat16().requires_grad_()
    weight = torch.randn(20, 300, requires_grad=True)
    made = torch.ops.cleave.moe_router_logits(x, weight)
    assert torch.equal(made, router_logits(x.detach(), weight.detach()))
    grad = torch.randn(6, 20)
    of_x, of_weight = torch.autograd.grad(made, (x, weight), grad)
    assert of_x.dtype == torch.bfloat16 and of_weight.dtype == torch.float32
    torch.testing.assert_close(of_x, (grad @ weight).bfloat16(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(of_weight, grad.t() @ x.float())
    (alone,) = torch.autograd.grad(torch.ops.cleave.moe_router_logits(x.detach(), weight), weight, grad)
    assert torch.equal(alone, of_weight)


X = np.zeros((4, 24), np.float32)

BAD: dict[str, tuple[Any, type[Exception], tuple[str, ...]]] = {
    "integers": (lambda: router_logits(X.astype(np.int32), X), TypeError, ("x is int32", "float32")),
    "weights in float64": (lambda: router_logits(X, X.astype(np.float64)), TypeError, ("weight is float64", "float32")),
    "one token without its row": (lambda: router_logits(X[0], X), ValueError, ("x has 1 dimension", "must have 2")),
    "columns apart": (lambda: router_logits(X, X.T.copy().T), ValueError, ("weight", "contiguous")),
    "other features": (lambda: router_logits(X, X[:, :23]), ValueError, ("weight is (4, 23)", "x is (4, 24)")),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, error, parts = BAD[name]
    with pytest.raises(error) as raised:
        call()
    for part in parts:
        assert part in str(raised.value)
