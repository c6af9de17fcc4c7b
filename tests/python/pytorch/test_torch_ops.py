"""torch.ops.cleave on CPU tensors: results, gradients, and what torch.compile makes of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import doc_snippets  # noqa: E402
import torch_operators  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.library import opcheck  # noqa: E402

import cleave.torch  # noqa: E402
from cleave.testing.activations import ELEMENTWISE, activate  # noqa: E402
from cleave.testing.arrays import TorchArrays  # noqa: E402

ops = torch.ops.cleave

# In torch.library.opcheck's words.
CHECKS = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_dynamic",
)


def test_half_of_a_call_on_the_meta_device_is_refused() -> None:
    """Its result would be made without computing it, on the device of the other half."""
    a, b = torch.randn(4, 8), torch.randn(8, 16)
    assert ops.gemm(a.to("meta"), b.to("meta")).is_meta
    with pytest.raises(ValueError, match="a is on cpu and b on meta; move one of them"):
        ops.gemm(a, b.to("meta"))
    with pytest.raises(ValueError, match="a is on meta and bias on cpu"):
        ops.gemm(a.to("meta"), b.to("meta"), torch.zeros(16))


def some_calls() -> list[Any]:
    torch.manual_seed(0)
    calls = torch_operators.calls("cpu")
    return [pytest.param(call, id=f"{name}-{i}") for name, listed in calls.items() for i, call in enumerate(listed)]


every_call = pytest.mark.parametrize("call", some_calls())


def test_every_operator_is_called_here() -> None:
    assert torch_operators.calls("cpu").keys() == torch_operators.every_name()


@every_call
def test_opcheck(call: torch_operators.Call) -> None:
    op, arguments, options = call
    checks = set(CHECKS)
    if torch_operators.uses_fp8(call):
        checks.remove("test_schema")  # torch compares no 8-bit floats on the CPU
    opcheck(op, arguments, options, test_utils=sorted(checks))


@every_call
def test_fakes_have_the_form_of_results(call: torch_operators.Call) -> None:
    op, arguments, options = call
    real = op(*arguments, **options)
    with FakeTensorMode() as mode:
        arguments, options = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, (arguments, options))
        fake = op(*arguments, **options)
    for x, y in zip(*(r if isinstance(r, (tuple, list)) else (r,) for r in (real, fake)), strict=True):
        if isinstance(x, torch.Tensor):
            assert (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)
        else:
            assert x is None and y is None


@every_call
def test_no_call_prints_its_tensors(call: torch_operators.Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch does for each overload that comes before the one that fits: of a GPU's it would wait for the GPU, and
    fail while a graph is captured."""
    op, arguments, options = call
    monkeypatch.setattr(torch.Tensor, "__repr__", lambda *_, **__: pytest.fail("a tensor was printed"))
    op.overloadpacket(*arguments, **options)


@every_call
def test_compiles_as_one_graph(call: torch_operators.Call) -> None:
    op, arguments, options = call
    written = [name for name in torch_operators.WRITTEN if name in options]
    if not all(options[name].is_contiguous() for name in written):
        pytest.skip("torch.compile takes contiguous outputs only")

    def function(*inputs: torch.Tensor) -> Any:
        """What is written must reach what reads it."""
        result = op(*arguments, **(options | dict(zip(written, inputs, strict=True))))
        return result, [x.float() + 1 for x in inputs]

    def run(function: Any) -> Any:
        inputs = [torch.zeros_like(options[name]) for name in written]
        return function(*inputs), inputs

    torch.compiler.reset()
    compiled = run(torch.compile(function, fullgraph=True, backend="aot_eager"))
    torch.testing.assert_close(compiled, run(function), rtol=0, atol=0)


def test_an_exported_program_can_be_packaged(tmp_path: Path) -> None:
    """Compiled ahead (AOTInductor), for any number of rows, and loaded again."""

    class Layer(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return ops.gemm(x.sin(), w.t(), activation="silu") + 1

    x, w = torch.randn(8, 64), torch.randn(96, 64)
    rows = {0: torch.export.Dim("rows", min=2, max=1024)}
    program = torch.export.export(Layer(), (x, w), dynamic_shapes={"x": rows, "w": None})
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "layer.pt2"))
    packaged = torch._inductor.aoti_load_package(package)
    for given in (x, torch.randn(33, 64)):
        torch.testing.assert_close(packaged(given, w), Layer()(given, w))


# --- results ---


@pytest.mark.parametrize("dtype", torch_operators.FLOATS)
def test_gemm_is_that_of_cleave(dtype: torch.dtype) -> None:
    a, b, c, bias = torch.randn(37, 83), torch.randn(29, 83), torch.randn(37, 29), torch.randn(29)
    a, b, c = a.to(dtype), b.to(dtype).t(), c.to(dtype)
    options = {"alpha": 0.5, "beta": 2.0, "activation": "gelu", "split_k_mode": "parallel"}
    expected = cleave.gemm(a, b, c=c, bias=bias, split_k_slices=3, **options)
    assert torch.equal(ops.gemm(a, b, bias, c, split_k_slices=3, **options), expected)
    out = torch.zeros(37, 40, dtype=dtype)[:, :29]
    assert ops.gemm(a, b, bias, c, split_k_slices=3, **options, out=out) is None
    assert torch.equal(out, expected)


@pytest.mark.parametrize("dtype", torch_operators.QUANTIZED)
def test_scaled_gemm_is_exact_up_to_its_last_rounding(dtype: torch.dtype) -> None:
    a = torch_operators.integers(37, 256, dtype=dtype, device="cpu")
    b = torch_operators.integers(29, 256, dtype=dtype, device="cpu").t()
    scale_a, scale_b = 2.0 ** torch.randint(-3, 4, (37, 1)), 2.0 ** torch.randint(-3, 4, (29,))
    bias = torch.randint(-9, 9, (29,)).to(torch.bfloat16)
    expected = (a.double() @ b.double()) * scale_a * scale_b + bias
    assert torch.equal(ops.scaled_gemm(a, b, scale_a, scale_b, bias), expected.bfloat16())
    out, amax = torch.zeros(37, 29), torch.zeros(1)
    ops.scaled_gemm(a, b, scale_a, scale_b, bias, out=out, amax=amax)
    assert torch.equal(out, expected.float())
    assert amax == expected.abs().max()


def test_zero_points_are_taken_off() -> None:
    x, w = torch.randn(37, 256) + 3, torch.randn(29, 256)
    q, scale, zero = ops.quantize_asymmetric(x)
    v, w_scale = ops.quantize(w, torch.int8)
    sums = v.sum(1, dtype=torch.int32)
    d = ops.scaled_gemm(q, v.t(), scale, w_scale.t(), azp=zero, azp_adj=sums, out_dtype=torch.float32)
    expected = ((q.double() - zero) * scale) @ (v.double() * w_scale).t()
    torch.testing.assert_close(d.double(), expected, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("dtype", torch_operators.QUANTIZED)
@pytest.mark.parametrize("granularity", ["tensor", "row", "block_1x128", "block_128x128"])
def test_quantize_is_that_of_cleave(dtype: torch.dtype, granularity: str) -> None:
    x, smooth = torch.randn(130, 300), torch.rand(300) + 0.5
    for options in ({}, {"smooth": smooth}, {"scale_major": "mn"}):
        q, scale = ops.quantize(x, dtype, granularity, **options)
        expected, expected_scale = cleave.quantize(x, dtype, granularity, **options)
        assert torch.equal(q.float(), expected.float()) and torch.equal(scale, expected_scale)
        assert scale.stride() == expected_scale.stride()
    again = ops.quantize_static(x, scale, dtype, granularity)
    assert torch.equal(again.float(), q.float())


@pytest.mark.parametrize("granularity", ["row", "block_1x128"])
def test_quantize_normed_is_that_of_cleave(granularity: str) -> None:
    x, residual = torch.randn(9, 300).bfloat16(), torch.randn(9, 300)
    weight, bias = torch.randn(300), torch.randn(300)
    rms, layer = cleave.rms_norm(weight, 1e-5, zero_centered=True), cleave.layer_norm(weight, bias, 1e-3)
    made = ops.quantize_normed(x, weight, torch.int8, "rms_norm", 1e-5, granularity, zero_centered=True)
    assert_equal(made, cleave.quantize(x, "int8", granularity, norm=rms))
    expected = cleave.quantize(x, "int8", granularity, norm=layer, residual=residual)
    options = {"norm": "layer_norm", "eps": 1e-3, "granularity": granularity, "bias": bias}
    assert_equal(ops.quantize_normed_sum(x, residual, weight, torch.int8, **options), expected)
    q, sums = ops.quantize_normed_sum_static(x, residual, expected[1], weight, torch.int8, **options)
    assert_equal((q, sums), expected[::2])
    if granularity == "row":
        asymmetric = ops.quantize_normed_sum_asymmetric(x, residual, weight, **options)
        assert_equal(asymmetric, cleave.quantize(x, symmetric=False, norm=layer, residual=residual))

    # In place, as vLLM's fused_add_rms_norm.
    out, scale, normed = torch.empty_like(expected[0]), torch.empty_like(expected[1]), x.clone()
    ops.quantize_normed(normed, weight, **options, residual=residual, out=out, scale_out=scale, residual_out=residual,
                        normed_out=normed)  # fmt: skip
    assert_equal((out, scale, residual), expected)
    plain = torch.nn.functional.layer_norm(residual.double(), (300,), weight.double(), bias.double(), 1e-3)
    torch.testing.assert_close(normed, plain.bfloat16(), rtol=0.01, atol=1e-5)


def assert_equal(made: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...]) -> None:
    for one, other in zip(made, expected, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


def test_the_page_of_documentation_runs() -> None:
    program: dict[str, Any] = {}
    for source in doc_snippets.python_snippets(doc_snippets.ROOT / "docs" / "pytorch.md"):
        exec(compile(source, "docs/pytorch.md", "exec"), program)


def test_empty_products() -> None:
    assert ops.gemm(torch.ones(0, 3), torch.ones(3, 4)).shape == (0, 4)
    assert torch.equal(ops.gemm(torch.ones(2, 0), torch.ones(0, 4)), torch.zeros(2, 4))
    q, scale = ops.quantize(torch.ones(0, 8), torch.int8)
    assert q.shape == (0, 8) and scale.shape == (0, 1)


# --- errors ---


def test_errors_name_the_argument() -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    refused = [
        (lambda: ops.gemm(a, a), "a's columns (3) must match b's rows (2)"),
        (lambda: ops.gemm(a.double(), b), "a is float64; it must be float16"),
        (lambda: ops.gemm(a, b.half()), "a is float32 and b is float16; convert one of them"),
        (lambda: ops.gemm(a[0], b), "a has 1 dimension; it must have 2 or 3"),
        (lambda: ops.gemm(a, b, torch.ones(3)), "bias is (3,); it must be (4,)"),
        (lambda: ops.gemm(a, b, c=b), "c is (3, 4); it must be (2, 4)"),
        (lambda: ops.gemm(a, b, beta=1.0), "beta is 1 but there is no c"),
        (lambda: ops.gemm(a, b, alpha=1e300), "alpha is 1e+300, too large for float32"),
        (lambda: ops.gemm(a, b, activation="tanh"), 'activation is "tanh"; it must be one of'),
        (lambda: ops.gemm(a, b, activation="rleu"), 'Did you mean "relu"?'),
        (lambda: ops.gemm(a, b, split_k_slices=0), "split_k_slices is 0"),
        (lambda: ops.gemm(a, b, out_dtype=torch.int64), "out_dtype is int64"),
        (lambda: ops.gemm(a, b, out=a), "out is (2, 3); it must be (2, 4)"),
        (lambda: ops.gemm(b, b.mT, out=b[:, :3]), "(d is out)"),
        (lambda: ops.scaled_gemm(a, b, torch.ones(1), None), "scale_b is missing"),
        (lambda: ops.quantize(a, torch.half), "dtype is float16; it must be int8"),
        (lambda: ops.quantize(a.t(), torch.int8), "x has strides (1, 3); its rows must be"),
        (lambda: ops.quantize(a, torch.int8, "column"), 'granularity is "column"'),
        (lambda: ops.quantize_static(a, b, torch.int8), "scale is (3, 4); it must be (1, 1)"),
        (lambda: ops.quantize_normed(a, b[0], torch.int8), "norm.weight is (4,); it must be (3,)"),
        (lambda: ops.quantize_normed(a, None, torch.int8, "rmsnorm"), 'Did you mean "rms_norm"?'),
        (lambda: ops.quantize_normed(a, None, torch.int8, eps=-1.0), "norm.eps is -1"),
        (lambda: ops.gemm(a.to_sparse(), b), "Sparse"),
    ]  # fmt: skip
    for call, message in refused:
        with pytest.raises(RuntimeError, match=re.escape(message)):
            call()


# --- gradients ---

OPERANDS = {
    "matrices": ((5, 7), (7, 6)),
    "batches": ((3, 5, 7), (3, 7, 6)),
    "a shared": ((5, 7), (3, 7, 6)),
    "b shared": ((3, 5, 7), (7, 6)),
    "batch of one": ((3, 5, 7), (1, 7, 6)),
}


def reference(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor,
    c: torch.Tensor,
    activation: str,
) -> torch.Tensor:
    return activate(TorchArrays("cpu"), activation, 0.5 * (a @ b) + 2.0 * c + bias)


@pytest.mark.parametrize("shapes", OPERANDS.values(), ids=OPERANDS)
@pytest.mark.parametrize("bias_shape", [(6,), (1, 6), (5, 1)])
@pytest.mark.parametrize("activation", ELEMENTWISE)
def test_gradients(shapes: Any, bias_shape: tuple[int, ...], activation: str) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in (*shapes, bias_shape, (5, 6))]
    wanted = [x.requires_grad_() for x in inputs]
    given = [x.detach().float().requires_grad_() for x in inputs]
    expected = reference(*wanted, activation)
    weights = torch.randn(expected.shape)
    (expected * weights).sum().backward()
    d = ops.gemm(*given, alpha=0.5, beta=2.0, activation=activation)
    (d * weights).sum().backward()
    torch.testing.assert_close(d.double(), expected, rtol=1e-6, atol=1e-5)
    for x, y in zip(given, wanted, strict=True):
        torch.testing.assert_close(x.grad.double(), y.grad, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_gradients_of_swiglu(batch: tuple[int, ...]) -> None:
    """Which joins the first half of b's columns with the second."""
    torch.manual_seed(0)
    shapes = ((*batch, 5, 7), (*batch, 7, 12), (12,))
    wanted = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    given = [x.detach().float().requires_grad_() for x in wanted]
    a, b, bias = wanted
    gate, up = (a @ b + bias).chunk(2, -1)
    expected = torch.nn.functional.silu(gate) * up
    d = ops.gemm(*given, activation="swiglu")
    torch.testing.assert_close(d.double(), expected, rtol=0, atol=1e-5)
    weights = torch.randn(expected.shape)
    (expected * weights).sum().backward()
    (d * weights).sum().backward()
    for x, y in zip(given, wanted, strict=True):
        torch.testing.assert_close(x.grad.double(), y.grad, rtol=0, atol=1e-4)


def test_gradients_have_the_dtypes_of_their_operands() -> None:
    a = torch.randn(5, 7, dtype=torch.bfloat16, requires_grad=True)
    b = torch.randn(6, 7, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.randn(6, requires_grad=True)
    ops.gemm(a, b.t(), bias, out_dtype=torch.float32).sum().backward()
    for x in (a, b, bias):
        assert x.grad.dtype == x.dtype
    torch.testing.assert_close(a.grad, b.detach().sum(0).expand(5, 7), rtol=2**-7, atol=0)


def test_only_asked_for_gradients_are_made() -> None:
    a, b = torch.randn(5, 7), torch.randn(7, 6, requires_grad=True)
    ops.gemm(a, b).sum().backward()
    assert a.grad is None and torch.allclose(b.grad, a.sum(0)[:, None].expand(7, 6), atol=1e-5)


def test_second_derivatives() -> None:
    a, b = (torch.randn(shape, requires_grad=True) for shape in ((5, 7), (7, 6)))

    def second(product: Any) -> torch.Tensor:
        (first,) = torch.autograd.grad((product(a, b) ** 3).sum(), a, create_graph=True)
        return torch.autograd.grad((first**2).sum(), b)[0]

    torch.testing.assert_close(second(ops.gemm), second(torch.matmul), rtol=1e-4, atol=1e-2)


def test_products_of_8_bits_have_no_gradient() -> None:
    a = torch.ones(2, 16).to(torch.float8_e4m3fn).requires_grad_()
    with pytest.raises(RuntimeError, match="products of 8-bit operands have no gradient"):
        ops.gemm(a, a.t())


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_training(dynamic: bool) -> None:
    """With gradients, and with sizes that change from call to call."""

    def loss(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        hidden = ops.gemm(x, w.t(), bias, activation="gelu")
        return (ops.gemm(hidden, w) ** 2).mean()

    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic)
    w = torch.randn(24, 16, requires_grad=True)
    bias = torch.randn(24, requires_grad=True)
    for rows in (5, 9) if dynamic else (5,):
        x = torch.randn(rows, 16)
        expected = torch.autograd.grad(loss(x, w, bias), (w, bias))
        found = torch.autograd.grad(compiled(x, w, bias), (w, bias))
        for y, z in zip(found, expected, strict=True):
            torch.testing.assert_close(y, z, rtol=1e-4, atol=1e-5)


def test_export() -> None:
    class Product(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.ops.cleave.gemm(a, b, activation="relu")

    a, b = torch.randn(5, 7), torch.randn(7, 6)
    program = torch.export.export(Product(), (a, b))
    assert torch.equal(program.module()(a, b), ops.gemm(a, b, activation="relu"))
