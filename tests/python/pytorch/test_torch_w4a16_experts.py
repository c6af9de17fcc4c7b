"""Experts of 4-bit weights on CPU tensors, beside their dequantised weights; state_dicts."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

import cleave  # noqa: E402
from cleave.torch import Gate, W4A16Experts  # noqa: E402

EXPERTS, FEATURES, HIDDEN = 4, 128, 96
GROUPS = {"int4": 32, "mxfp4": 32, "nvfp4": 16}


GPT_OSS = Gate(alpha=1.702, beta=1.0, limit=1.5)


def experts_of(format: str, dtype: Any = torch.bfloat16, bias: bool = False, **options: Any) -> W4A16Experts:
    torch.manual_seed(0)
    shapes = (EXPERTS, 2 * HIDDEN, FEATURES), (EXPERTS, FEATURES, HIDDEN)
    weights = [torch.randn(shape, dtype=dtype) / 8 for shape in shapes]
    packed = [cleave.pack_weights(weight, GROUPS[format], format) for weight in weights]
    biases = [torch.randn(shape[:2], dtype=dtype) if bias else None for shape in shapes]
    return W4A16Experts.from_packed(*packed, *biases, **options)


def expected(experts: W4A16Experts, x: Any, ids: Any, weights: Any) -> Any:
    gate_up, down = (cleave.dequantize_weights(part.weights()).double() for part in (experts.gate_up, experts.down))
    biases = [0 if part.bias is None else part.bias.double()[:, None] for part in (experts.gate_up, experts.down)]
    alpha, beta, limit = experts.gate.alpha, experts.gate.beta, experts.gate.limit or float("inf")
    gates, ups = (x.double() @ gate_up.mT + biases[0]).chunk(2, 2)
    gates, ups = gates.clamp(max=limit), ups.clamp(-limit, limit)
    of_all = (gates / (1 + (-alpha * gates).exp()) * (ups + beta)) @ down.mT + biases[1]
    chosen = torch.stack([(weights * (ids == expert)).sum(1, keepdim=True) for expert in range(EXPERTS)])
    return (of_all * chosen).sum(0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("format", ["int4", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("tokens", [1, 33])
def test_beside_dequantised_weights(tokens: int, format: str, dtype: Any) -> None:
    experts = experts_of(format, dtype)
    x, weights = torch.randn(tokens, FEATURES).to(dtype), torch.rand(tokens, 2)
    ids = torch.randint(0, EXPERTS + 1, (tokens, 2))  # the last is no expert's number
    y, reference = experts(x, ids, weights), expected(experts, x, ids, weights)
    assert y.dtype == dtype
    assert (y - reference).norm() <= 0.02 * reference.norm() + 1e-6


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gate", [Gate(limit=1.5), Gate(alpha=1.702), GPT_OSS], ids=str)
@pytest.mark.parametrize("format", ["int4", "mxfp4"])
def test_biases_and_other_gates(format: str, gate: Gate, bias: bool) -> None:
    experts = experts_of(format, torch.float16, bias, gate=gate)
    x, weights = torch.randn(33, FEATURES).half(), torch.rand(33, 2)
    ids = torch.randint(0, EXPERTS + 1, (33, 2))
    y, reference = experts(x, ids, weights), expected(experts, x, ids, weights)
    assert (y - reference).norm() <= 0.003 * reference.norm()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0.0}, "limit is 0.0; it must be positive and finite, or None"),
        ({"limit": float("nan")}, "limit is nan; it must be positive"),
        ({"alpha": float("inf")}, "alpha is inf; it must be finite"),
        ({"beta": float("nan")}, "beta is nan; it must be finite"),
    ],
)
def test_gates_that_are_none(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Gate(**options)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("format", ["int4", "mxfp4", "nvfp4"])
def test_a_state_dict_round_trips(format: str, bias: bool) -> None:
    experts = experts_of(format, bias=bias, gate=GPT_OSS)
    same = W4A16Experts(EXPERTS, FEATURES, HIDDEN, group_size=GROUPS[format], format=format, bias=bias, gate=GPT_OSS)
    same.load_state_dict(experts.state_dict())
    x, ids, weights = torch.randn(5, FEATURES).bfloat16(), torch.randint(0, EXPERTS, (5, 2)), torch.rand(5, 2)
    assert torch.equal(same(x, ids, weights), experts(x, ids, weights))
    half = copy.deepcopy(experts).half()
    assert half(x.half(), ids, weights).dtype == torch.float16
    state = experts.state_dict() | {"down.version": torch.tensor(3)}
    with pytest.raises(ValueError, match=r"down\.version is 3"):
        same.load_state_dict(state)


def test_mistakes_are_named() -> None:
    gate_up, down = (cleave.pack_weights(torch.randn(2, *shape), 32) for shape in ((128, 96), (96, 32)))
    with pytest.raises(ValueError, match=r"gate_up is \(2, 128, 96\) and down \(2, 96, 32\); they must be \(E, 2 H"):
        W4A16Experts.from_packed(gate_up, down)
    gate_up, down = (cleave.pack_weights(torch.randn(2, *shape), 32) for shape in ((128, 96), (96, 64)))
    with pytest.raises(ValueError, match=r"gate_up_bias is \[2, 64\]; beside weights \[2, 128, 96\] .* \[2, 128\]"):
        W4A16Experts.from_packed(gate_up, down, torch.zeros(2, 64))
    with pytest.raises(ValueError, match=r"down_bias is \[96\]; beside weights \[2, 96, 64\] it must be \[2, 96\]"):
        W4A16Experts.from_packed(gate_up, down, None, torch.zeros(96))
    experts = experts_of("int4")
    with pytest.raises(TypeError, match=r"x is torch\.float32, but the layer multiplies torch\.bfloat16"):
        experts(torch.randn(3, FEATURES), torch.zeros(3, 2, dtype=torch.int32), torch.ones(3, 2))


@pytest.mark.parametrize("gate", [Gate(), GPT_OSS], ids=str)
def test_compiled_whole(gate: Gate) -> None:
    experts = experts_of("int4", bias=True, gate=gate)
    x, ids, weights = torch.randn(5, FEATURES).bfloat16(), torch.randint(0, EXPERTS, (5, 2)), torch.rand(5, 2)
    torch.compiler.reset()  # else one code object meets too many kinds of arguments
    compiled = torch.compile(experts, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, ids, weights), experts(x, ids, weights))
