"""`cleave.prepare`: what it chooses without a GPU, compiles with the fake driver, and finds in a model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cleave
from cleave import _core

PREPARE = """
import cleave
from cleave import _core

plan = cleave.plan_problem(16, 1024, 2048, dtype="float8_e4m3fn", scaling="row", out_dtype="bfloat16", device="cuda")
before = cleave.cache_info()["entries"]
for tokens in ((1, 300), (1, 300), (1, 20)):
    made = cleave.prepare(plan, tokens, stream=64)
    print(made.products, made.kernels, cleave.cache_info()["entries"] - before)
sources = set()
for m in range(1, 301):
    sources.add(cleave.plan_problem(
        m, 1024, 2048, dtype="float8_e4m3fn", scaling="row", out_dtype="bfloat16", device="cuda").kernel_source)
print(len(sources))
"""


def test_kernels_are_compiled_once_and_found(tmp_path, fake_gpu):
    done = subprocess.run(
        [sys.executable, "-c", PREPARE], cwd=tmp_path, env=fake_gpu, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    (first, second, fewer), (sources,) = (lines.splitlines() for lines in done.stdout.rsplit("\n", 2)[:2])
    products, kernels, compiled = map(int, first.split())
    assert (products, kernels) == (1, compiled)
    assert second == first
    assert int(fewer.split()[1]) <= kernels
    assert 1 < kernels <= 24
    assert int(sources) >= 1


def test_layers_compile_nothing_after_it(tmp_path, fake_gpu):
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    script = Path(__file__).parents[2] / "fake_driver" / "layers.py"
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=fake_gpu, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) > 10
    for name, *counts in lines:
        products, compiled, multiplied, unprepared = map(int, counts)
        assert products > 1 and multiplied >= 8 and (compiled, unprepared) == (0, 0), name


def test_a_prepared_product_keeps_to_its_kernels():
    options = {"n": 4352, "k": 2048, "dtype": "bfloat16", "device": "h100"}
    planned = cleave.plan_problem(16, **options)
    sources = {plan.kernel_source for plan in _core.prepare_rows(planned, 1, 2000, "covering")}
    for m in (1, 2, 15, 16, 17, 333, 1024, 2000):
        plan = cleave.plan_problem(m, **options)
        assert plan.kernel_source in sources
        assert "prepared for these operands" in plan.why
    assert "prepared" not in cleave.plan_problem(2001, **options).why
    assert "prepared" not in cleave.plan_problem(16, **options | {"bias": "row"}).why
    assert "prepared" not in cleave.plan_problem(16, **options | {"static_b": True}).why


def test_covering_kernels_can_be_asked_for():
    script = """
import cleave
plans = [cleave.plan_problem(m, 4096, 4096, dtype="bfloat16", device="h100") for m in range(1, 4000, 37)]
print(len({plan.kernel_source for plan in plans}))
"""

    def kernels(**environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script], env=os.environ | environment, capture_output=True, text=True, timeout=120
        )
        return done.stdout or done.stderr

    assert int(kernels(CLEAVE_KERNELS="covering")) < int(kernels())
    assert 'CLEAVE_KERNELS is "some"; it must be "all" or "covering"' in kernels(CLEAVE_KERNELS="some")


@pytest.mark.parametrize(
    ("what", "arguments", "message"),
    [
        (3, {}, "what is int; it must be a torch module, or plans"),
        (("h100",), {"tokens": (0, 5)}, "tokens are 0 to 5"),
        (("h100",), {"tokens": (6, 5)}, "tokens are 6 to 5"),
        (("h100",), {"tokens": 5}, "tokens is 5; it must be two integers"),
        (("h100",), {"kernels": "cover"}, 'kernels is "cover"; it must be "all" or "covering"'),
        (("cpu",), {}, "only products on a GPU"),
    ],
)
def test_what_cannot_be_prepared_is_refused(what, arguments, message):
    if isinstance(what, tuple):
        what = [cleave.plan_problem(16, 64, 128, dtype="bfloat16", device=device) for device in what]
    else:
        pytest.importorskip("cleave.torch", exc_type=ImportError)
    with pytest.raises((TypeError, ValueError), match=message.replace("(", r"\(")):
        cleave.prepare(what, **arguments)


@pytest.mark.parametrize("static", [True, False])
def test_static_weights_are_prepared_as_such(monkeypatch, static):
    torch = pytest.importorskip("torch")
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    from cleave.torch import W4A16Linear, W8A8Linear, _prepare

    planned = []
    for name in ("plan_scaled_gemm", "plan_mixed_gemm"):
        monkeypatch.setattr(cleave, name, lambda *_, static_b, **__: planned.append(static_b))
    monkeypatch.setattr(_prepare, "_on_gpu", lambda layer: True)
    linear = torch.nn.Linear(64, 48)
    in_8_bits = W8A8Linear.from_linear(linear, static_weights=static)
    in_4_bits = W4A16Linear.from_linear(linear, 64, static_weights=static)
    list(_prepare.products(torch.nn.Sequential(in_8_bits, in_4_bits), 1, 8, torch.bfloat16))
    assert planned == [static] * 2


def test_products_of_layers_are_those_of_their_calls(monkeypatch):
    """A plan refuses tensors of another form, those of the later calls are of its."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    from torch.utils._python_dispatch import TorchDispatchMode

    from cleave.torch import (
        GroupedLinear,
        MoE,
        RMSNormQuantize,
        W4A8Experts,
        W4A16Experts,
        W4A16Linear,
        W8A8Linear,
        _prepare,
    )

    monkeypatch.setattr(_prepare, "_on_gpu", lambda layer: True)

    class Calls(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.made = []

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            self.made.append((function.__name__.partition(".")[0], arguments, options or {}))
            return function(*arguments, **options or {})

        def of(self, name):
            return [call[1:] for call in self.made if call[0] == name]

    def products(layer):
        return [plan for plan, _, _ in _prepare.products(layer, 1, 8, torch.bfloat16)]

    x = torch.randn(16, 64, dtype=torch.bfloat16)
    linear = torch.nn.Linear(64, 48)
    for dtype, activation, granularity, smooth in (
        ("int8", "dynamic", "row", None),
        ("float8_e4m3fn", 0.1, "row", torch.ones(64)),
        ("float8_e4m3fn", "dynamic", "block_128x128", None),
        ("int8", "dynamic", "block_1x128", None),
    ):
        layer = W8A8Linear.from_linear(linear, dtype, activation, granularity=granularity, smooth=smooth)
        with Calls() as calls:
            layer(x)
        quantize, product = products(layer)
        assert isinstance(quantize, cleave.QuantizePlan)
        ((q, weight, scale, weight_scale, bias, *_), _) = calls.of("scaled_gemm")[0]
        product.run(q, weight, scale_a=scale, scale_b=weight_scale, bias=bias)
        with pytest.raises(ValueError, match="bias"):
            product.run(q, weight, scale_a=scale, scale_b=weight_scale)

    plain, with_residual = products(RMSNormQuantize(64))
    assert isinstance(plain, cleave.QuantizePlan) and isinstance(with_residual, cleave.QuantizePlan)

    offs = torch.tensor([4, 9, 16], dtype=torch.int32)
    layer = GroupedLinear(3, 64, 48, dtype=torch.bfloat16)
    with Calls() as calls, torch.no_grad():
        layer(x, offs)
    (product,) = products(layer)
    ((a, b, ends, bias, *_), _) = calls.of("grouped_gemm")[0]
    with torch.no_grad():
        product.run(a, b, offs=ends, bias=bias)

    for options in ({"group_size": 32}, {"format": "mxfp4"}, {"format": "nvfp4"}):
        layer = W4A16Linear.from_linear(linear, **options)
        with Calls() as calls:
            layer(x)
        (product,) = products(layer)
        packed = layer.weights()
        beside = {"scales": packed.scales, "global_scale": packed.global_scale}
        assert torch.equal(product.run(x, packed.packed, bias=layer.bias, **beside), layer(x))
        with pytest.raises(ValueError, match="scales is missing, but b is a packed weight"):
            product.run(x, packed.packed, bias=layer.bias)

    shapes = (4, 64, 64), (4, 64, 32)
    weights = [cleave.pack_weights(torch.randn(shape).bfloat16(), 32) for shape in shapes]
    for biases in ([], [torch.randn(shape[:2]).bfloat16() for shape in shapes]):
        experts = W4A16Experts.from_packed(*weights, *biases)
        with Calls() as moves:
            gate_up, down = products(experts)
        assert not moves.of("mixed_grouped_gemm")
        ids = torch.zeros((8, 4), dtype=torch.int32)
        with Calls() as calls:
            experts(x[:8], ids, ids.float())
        (first, _), (second, _) = calls.of("mixed_grouped_gemm")[:2]
        for plan, (rows, packed, scales, zeros, _, _, ends, *bias) in ((gate_up, first), (down, second)):
            beside = {"scales": scales, "zeros": zeros, "offs": ends}
            plan.run(rows[:16], packed, **beside, bias=bias[0] if bias else None)
            with pytest.raises(ValueError, match="bias is"):
                plan.run(rows[:16], packed, **beside, bias=None if biases else torch.zeros(packed.shape[0], 64))
    called = {(call[0][0].dtype, call[0][0].shape[0]) for call in moves.of("moe_sort_tokens")}
    assert called == {(torch.int32, 8), (torch.int64, 8), (torch.int32, 16)}

    experts = W4A8Experts.from_packed(*weights)
    with Calls() as moves:
        of_tokens, gate_up, of_hidden, down = products(experts)
    assert isinstance(of_tokens, cleave.QuantizePlan) and isinstance(of_hidden, cleave.QuantizePlan)
    with Calls() as calls:
        experts(x[:8], ids, ids.float())
    (first, _), (second, _) = calls.of("mixed_grouped_gemm")
    for plan, (rows, packed, scales, zeros, _, _, ends, *_, scale) in ((gate_up, first), (down, second)):
        plan.run(rows[:16], packed, scales=scales, zeros=zeros, offs=ends, scale_a=scale[:16])
    gathered = {call[0][0].dtype for call in moves.of("moe_gather")}
    assert gathered == {torch.float8_e4m3fn, torch.float32} and not moves.of("quantize")

    moe = MoE(4, 2, 64, 32, dtype=torch.bfloat16)
    router, gate_up, down = products(torch.nn.Sequential(moe))
    with Calls() as calls, torch.no_grad():
        moe(torch.randn(16, 64, dtype=torch.bfloat16))
    (first, _), (second, _) = calls.of("grouped_gemm")
    with torch.no_grad():
        gate_up.run(first[0], first[1], offs=first[2], gather=first[-1])
        down.run(second[0][:16], second[1], offs=second[2])
    assert router.kernel_name == "cpu"
