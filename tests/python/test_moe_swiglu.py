"""The experts of cleave.torch.MoE in training, whose products make SwiGLU and its gradients."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from cleave.torch import MoE  # noqa: E402

FEATURES, HIDDEN = 64, 24
RANGES = [(0, 9), (9, 9), (9, 33)]  # the second expert has no rows; the last three rows belong to none
ROWS = 36


def layer(dtype: Any = torch.bfloat16, hidden: int = HIDDEN, features: int = FEATURES, **options: Any) -> MoE:
    torch.manual_seed(0)
    return MoE(len(RANGES), 1, features, hidden, dtype=dtype, **options)


def unfused(moe: MoE) -> MoE:
    """A copy whose layers have a hook, so that torch computes SwiGLU."""
    options = {"recipe": moe.gate_up.recipe, "accumulate_main_grad": moe.gate_up.accumulate_main_grad}
    copy = MoE(len(RANGES), 1, moe.gate_up.in_features, moe.down.in_features, dtype=moe.down.weight.dtype, **options)
    copy.load_state_dict(moe.state_dict())
    copy.gate_up.register_forward_hook(lambda *_: None)
    return copy


def operands(dtype: Any = torch.bfloat16, features: int = FEATURES) -> tuple[Any, Any, Any]:
    """Rows, where each expert's end, and y's gradient."""
    torch.manual_seed(1)
    rows, grad = (torch.randn(ROWS, features).to(dtype) for _ in range(2))
    return rows.requires_grad_(), torch.tensor([end for _, end in RANGES], dtype=torch.int32), grad


def gradients(moe: MoE, rows: Any, offs: Any, grad: Any) -> tuple[Any, ...]:
    """y, and the gradients of rows and weights."""
    y = moe.run_experts(rows, offs)
    return y, *torch.autograd.grad(y, (rows, moe.gate_up.weight, moe.down.weight), grad)


def exact_with_bounds(moe: MoE, rows: Any, grad: Any) -> list[tuple[Any, Any]]:
    """What `gradients` gives in float64, and how far off roundings to the dtype may take it."""
    unit = torch.finfo(rows.dtype).eps / 2
    x, w1, w2, dy = (t.detach().double() for t in (rows, moe.gate_up.weight, moe.down.weight, grad))
    made = [(torch.zeros_like(t), torch.zeros_like(t)) for t in (dy, x, w1, w2)]
    for e, (begin, end) in enumerate(RANGES):
        part = slice(begin, end)
        gate, up = (x[part] @ w1[e].T).chunk(2, -1)
        sigmoid = torch.sigmoid(gate)
        silu, slope = gate * sigmoid, sigmoid * (1 + gate * (1 - sigmoid))
        dh = dy[part] @ w2[e]
        dgate, dup, hidden = dh * up * slope, dh * silu, silu * up
        sums = torch.cat([dgate, dup], 1)
        # Gates and ups are kept rounded; silu's slope is below 1.1, and changes by 0.5 at most. Sums are rounded then.
        off_gate = unit * (2 * dgate.abs() + 0.5 * (dh * up * gate).abs())
        off_sums = torch.cat([off_gate, unit * (dup.abs() + 1.1 * (dh * gate).abs())], 1)
        off_hidden = unit * (2 * hidden.abs() + 1.1 * (gate * up).abs())
        results = (
            (part, hidden @ w2[e].T, unit * hidden.abs() @ w2[e].T.abs()),
            (part, sums @ w1[e], off_sums @ w1[e].abs()),
            (e, sums.T @ x[part], off_sums.T @ x[part].abs()),
            (e, dy[part].T @ hidden, dy[part].T.abs() @ off_hidden),
        )
        for (value, bound), (place, result, off) in zip(made, results, strict=True):
            value[place], bound[place] = result, 1.02 * (off + unit * result.abs()) + 1e-6
    return made


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
        assert linear.weight.grad is None and linear.weight.grad_added_to_main_grad
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
