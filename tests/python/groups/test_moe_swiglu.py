"""The experts of cleave.torch.MoE in training, whose products make SwiGLU and its gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from swiglu_checks import (  # noqa: E402
    FEATURES,
    HIDDEN,
    RANGES,
    ROWS,
    exact_with_bounds,
    gradients,
    layer,
    operands,
    unfused,
)
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from cleave.torch import MoE  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(dtype: Any, compiled: bool) -> None:
    moe, (rows, offs, grad) = layer(dtype), operands(dtype)
    if compiled:
        torch.compiler.reset()
        moe.run_experts = torch.compile(moe.run_experts, fullgraph=True, dynamic=True)
    exact = exact_with_bounds(moe, rows, grad)
    for got, (value, bound) in zip(gradients(moe, rows, offs, grad), exact, strict=True):
        assert got.dtype == dtype
        assert ((got.double() - value).abs() <= bound).all()


class Calls(TorchDispatchMode):
    """What is computed, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "cleave" or func.name() in ("aten::silu", "aten::mul.Tensor", "aten::cat"):
            self.names.append(f"{func._opname}.{func._overloadname}")
        return func(*args, **kwargs or {})


def test_nothing_runs_between_the_products() -> None:
    moe, (rows, offs, grad) = layer(), operands()
    with Calls() as calls:
        gradients(moe, rows, offs, grad)
    product = "grouped_gemm.default"
    assert calls.names == ["grouped_gemm.epilogue", product, "grouped_swiglu_backward.default", *[product] * 3]
    with Calls() as calls:
        gradients(unfused(moe), rows, offs, grad)
    assert "silu.default" in calls.names and "mul.Tensor" in calls.names


def bytes_kept(moe: MoE, rows: Any, offs: Any) -> int:
    """For backward, without weights and what backward had anyway."""
    kept: dict[int, int] = {}

    def keep(x: Any) -> Any:
        if x.data_ptr() not in {t.data_ptr() for t in (rows, offs, *moe.parameters())}:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        y = moe.run_experts(rows, offs)
    assert y.requires_grad
    return sum(kept.values())


def test_gates_and_ups_are_all_that_is_kept() -> None:
    moe, (rows, offs, _) = layer(), operands()
    assert bytes_kept(moe, rows, offs) == ROWS * 2 * HIDDEN * 2
    assert bytes_kept(unfused(moe), rows, offs) == ROWS * 4 * HIDDEN * 2
    in_8_bits = layer(recipe="blockwise", hidden=128, features=128)
    rows, offs, _ = operands(features=128)
    # The third is silu(gate).
    assert bytes_kept(unfused(in_8_bits), rows, offs) - bytes_kept(in_8_bits, rows, offs) >= ROWS * 128 * 2


@pytest.mark.parametrize("compiled", [False, True])
def test_8_bits(compiled: bool) -> None:
    """As far from float64 as where torch computes SwiGLU: what blocks of 8 bits lose is the same."""
    moe, (rows, offs, grad) = layer(recipe="blockwise", hidden=128, features=128), operands(features=128)
    exact = exact_with_bounds(moe, rows, grad)
    theirs = gradients(unfused(moe), rows, offs, grad)
    with Calls() as calls:
        gradients(moe, rows, offs, grad)
    assert "grouped_swiglu_backward.default" in calls.names and "silu.default" not in calls.names
    if compiled:
        torch.compiler.reset()
        moe.run_experts = torch.compile(moe.run_experts, fullgraph=True)
    for got, other, (value, _) in zip(gradients(moe, rows, offs, grad), theirs, exact, strict=True):
        error, usual = ((x.double() - value).norm() / value.norm() for x in (got, other))
        assert error < 0.1 and error < 1.05 * usual


@pytest.mark.parametrize("recipe", [None, "blockwise"])
def test_main_grad(recipe: str | None) -> None:
    plain = layer(recipe=recipe, hidden=128, features=128)
    added = layer(recipe=recipe, hidden=128, features=128, accumulate_main_grad=True)
    rows, offs, grad = operands(features=128)
    for linear in (added.gate_up, added.down):
        linear.weight.main_grad = torch.ones_like(linear.weight, dtype=torch.float32)
    with Calls() as calls:
        added.run_experts(rows, offs).backward(grad)
    assert "grouped_swiglu_backward.default" in calls.names
    _, of_rows, *of_weights = gradients(plain, rows, offs, grad)
    assert torch.equal(rows.grad, of_rows)
    for linear, expected in zip((added.gate_up, added.down), of_weights, strict=True):
        assert linear.weight.grad is None
        torch.testing.assert_close(linear.weight.main_grad - 1, expected.float(), rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("frozen", ["rows", "gate_up", "down"])
@pytest.mark.parametrize("recipe", [None, "blockwise"])
def test_what_needs_no_gradient_changes_no_other(recipe: str | None, frozen: str) -> None:
    moe, (rows, offs, grad) = layer(recipe=recipe, hidden=128, features=128), operands(features=128)
    inputs = {"rows": rows, "gate_up": moe.gate_up.weight, "down": moe.down.weight}
    expected = dict(zip(inputs, gradients(moe, rows, offs, grad)[1:], strict=True))
    inputs.pop(frozen).requires_grad_(False)
    for name, got in zip(inputs, torch.autograd.grad(moe.run_experts(rows, offs), inputs.values(), grad), strict=True):
        assert torch.equal(got, expected[name])


def test_second_derivatives() -> None:
    moe, (rows, offs, grad) = layer(), operands()
    results = []
    for each in (moe, unfused(moe)):
        y = each.run_experts(rows, offs)
        inputs = rows, each.gate_up.weight, each.down.weight
        made = torch.autograd.grad(y, inputs, grad, create_graph=True)
        results.append(torch.autograd.grad(sum(x.float().square().sum() for x in made), inputs))
    for got, expected in zip(*results, strict=True):
        assert expected.norm() > 0 and (got - expected).norm() <= 2**-6 * expected.norm()


def test_whole_layers() -> None:
    """With the router and its tokens; no tokens at all, too."""
    moe = layer()
    x = torch.randn(3, 10, FEATURES).bfloat16()
    results = []
    for each in (moe, unfused(moe)):
        y = each(x)
        results.append((y, *torch.autograd.grad(y.float().square().sum(), list(each.parameters()))))
    for got, expected in zip(*results, strict=True):
        assert (got - expected).norm() <= 2**-6 * expected.norm()
    moe(x[:0]).sum().backward()
    assert not moe.down.weight.grad.any() and not moe.gate_up.weight.grad.any()


@pytest.mark.parametrize("case", ["float32", "20 columns", "bias", "hooks", "autocast"])
def test_where_torch_computes_swiglu(case: str) -> None:
    dtype = torch.float32 if case == "float32" else torch.bfloat16
    moe, (rows, offs, _) = layer(dtype, 20 if case == "20 columns" else HIDDEN), operands(dtype)
    called = []
    if case == "hooks":
        moe.down.register_forward_pre_hook(lambda *_: called.append("down"))
    if case == "bias":
        moe.down.bias = torch.nn.Parameter(torch.ones(len(RANGES), FEATURES, dtype=dtype))
    with Calls() as calls, torch.autocast("cpu", torch.bfloat16, enabled=case == "autocast"):
        moe.run_experts(rows, offs)
    assert "silu.default" in calls.names and "grouped_gemm.epilogue" not in calls.names
    assert called == (["down"] if case == "hooks" else [])
