"""Experts of 4-bit weights beside activations of 8 bits, on CPU tensors: beside the same arithmetic, step by step."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

import cleave  # noqa: E402
from cleave.torch import Gate, W4A8Experts, W4A16Experts  # noqa: E402

EXPERTS, FEATURES, HIDDEN = 4, 128, 96
KINDS = [("float8_e4m3fn", "int4"), ("float8_e4m3fn", "mxfp4"), ("int8", "int4")]
GPT_OSS = Gate(alpha=1.702, beta=1.0, limit=1.5)


def packed_of(format: str, **options: Any) -> list[cleave.PackedWeights]:
    torch.manual_seed(0)
    shapes = (EXPERTS, 2 * HIDDEN, FEATURES), (EXPERTS, FEATURES, HIDDEN)
    return [cleave.pack_weights(torch.randn(shape) / 8, 32, format, **options) for shape in shapes]


def experts_of(activation_dtype: str, format: str, bias: bool = False, gate: Gate = GPT_OSS) -> W4A8Experts:
    packed = packed_of(format, **{"scale_dtype": "float16"} if format == "int4" else {})
    biases = [torch.randn(each.shape[:2]).bfloat16() if bias else None for each in packed]
    return W4A8Experts.from_packed(*packed, *biases, activation_dtype, gate=gate)


def arguments(tokens: int, dtype: Any = torch.bfloat16, choices: int = 2) -> tuple[Any, Any, Any]:
    ids = torch.randint(0, EXPERTS + 1, (tokens, choices))  # the last is no expert's number
    return torch.randn(tokens, FEATURES).to(dtype), ids, torch.rand(tokens, choices)


def real(x: Any, dtype: Any) -> Any:
    q, scale = cleave.quantize(x, dtype)
    return q.double() * scale.double().reshape(-1, 1)


def expected(experts: W4A8Experts, x: Any, ids: Any, weights: Any) -> Any:
    """In float64 but for what is quantised, of x's dtype, expert by expert."""
    y = torch.zeros(x.shape, dtype=torch.float64)
    parts = experts.gate_up, experts.down
    of_all = [cleave.dequantize_weights(part.weights()).double() for part in parts]
    biases = [torch.zeros(EXPERTS, part.out_features) if part.bias is None else part.bias for part in parts]
    for expert in range(EXPERTS):
        gate_up, down = (weight[expert] for weight in of_all)
        hidden = (real(x, experts.activation_dtype) @ gate_up.T + biases[0][expert].double()).to(x.dtype)
        made = real(experts.gate(hidden), experts.activation_dtype) @ down.T + biases[1][expert].double()
        y += made * (weights * (ids == expert)).sum(1, keepdim=True)
    return y


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("activation_dtype", "format"), KINDS)
def test_beside_the_same_arithmetic(activation_dtype: str, format: str, bias: bool, dtype: Any) -> None:
    experts = experts_of(activation_dtype, format, bias)
    for tokens in (1, 33):
        x, ids, weights = arguments(tokens, dtype)
        y, reference = experts(x, ids, weights), expected(experts, x, ids, weights)
        assert y.dtype == dtype and y.shape == x.shape
        # What differs in a last bit of x's dtype may be quantised to the code beside it.
        assert (y - reference).norm() <= 0.01 * reference.norm() + 1e-6


def test_zero_points_and_scales_of_bfloat16() -> None:
    shapes = (EXPERTS, 2 * HIDDEN, FEATURES), (EXPERTS, FEATURES, HIDDEN)
    packed = []
    for count, rows, columns in shapes:
        codes = torch.randint(0, 16, (count, rows, columns), dtype=torch.uint8)
        zeros = torch.randint(0, 16, (count, columns // 32, rows), dtype=torch.uint8)
        scales = (torch.rand(zeros.shape) / 50).bfloat16()
        packed.append(cleave.pack_weights(codes, 32, scales=scales, zeros=zeros))
    experts = W4A8Experts.from_packed(*packed, activation_dtype="int8")
    assert torch.equal(experts.down.scales.bfloat16(), packed[1].scales)
    x, ids, weights = arguments(9)
    reference = expected(experts, x, ids, weights)
    assert (experts(x, ids, weights) - reference).norm() <= 0.01 * reference.norm()


def test_rows_and_tokens_that_are_not_there() -> None:
    experts = experts_of("int8", "int4")
    x, _, weights = arguments(7)
    assert not experts(x, torch.full((7, 2), EXPERTS), weights).any()
    assert experts(x[:0], torch.zeros((0, 2), dtype=torch.int32), weights[:0]).shape == (0, FEATURES)


@pytest.mark.parametrize(("activation_dtype", "format"), KINDS)
def test_a_state_dict_round_trips(activation_dtype: str, format: str) -> None:
    experts = experts_of(activation_dtype, format, bias=True)
    options = {"activation_dtype": activation_dtype, "group_size": 32, "format": format, "bias": True, "gate": GPT_OSS}
    same = W4A8Experts(EXPERTS, FEATURES, HIDDEN, **options)
    same.load_state_dict(experts.state_dict())
    given = arguments(5)
    assert torch.equal(same(*given), experts(*given))
    assert torch.equal(copy.deepcopy(experts)(*given), experts(*given))
    scales = experts.down.scales.clone()
    for cast, dtype in ((experts.half, torch.float16), (experts.bfloat16, torch.bfloat16)):
        cast()
        assert torch.equal(experts.down.scales, scales) and experts.down.bias.dtype == dtype
    assert f"activation_dtype=torch.{activation_dtype}" in repr(experts)


def test_compiled_whole() -> None:
    torch.compiler.reset()
    experts, given = experts_of("int8", "int4", bias=True), arguments(5)
    compiled = torch.compile(experts, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*given), experts(*given))


def test_mistakes_are_named() -> None:
    gate_up, down = packed_of("int4")
    with pytest.raises(ValueError, match=r"gate_up is \(4, 192, 128\) and down \(4, 192, 128\); they must be \(E, 2 H"):
        W4A8Experts.from_packed(gate_up, gate_up)
    with pytest.raises(ValueError, match=r"down_bias is \[96\]; beside weights \[4, 128, 96\] it must be \[4, 128\]"):
        W4A8Experts.from_packed(gate_up, down, None, torch.zeros(96))
    with pytest.raises(ValueError, match='activation_dtype is \'int4\'; it must be "int8" or "float8_e4m3fn"'):
        W4A8Experts(EXPERTS, FEATURES, HIDDEN, activation_dtype="int4")
    tiny = cleave.pack_weights(torch.randn(EXPERTS, FEATURES, HIDDEN) * 2.0**-20, 32, scale_dtype="bfloat16")
    with pytest.raises(ValueError, match="down has scales that float16 has not"):
        W4A8Experts.from_packed(gate_up, tiny)
    of_sixteen = W4A16Experts.from_packed(gate_up, down).state_dict()
    same = W4A8Experts(EXPERTS, FEATURES, HIDDEN, group_size=32)
    same.load_state_dict(of_sixteen)  # of the same weights, whose scales are cast
    assert same.down.scales.dtype == torch.float16
