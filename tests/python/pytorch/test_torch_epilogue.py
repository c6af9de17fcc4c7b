"""Epilogue functions in torch: the operators, torch.compile, and gradients against those of torch in float64."""

from __future__ import annotations

import copy
import pickle
import re
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import epilogue_functions  # noqa: E402
from epilogue_gradients import SHAPES, Case, K, M, N, Products  # noqa: E402

import cleave.torch  # noqa: E402

OF_ONE = [
    *(f"cleave.{name}(acc + x)" for name in ("exp", "tanh", "erf", "sigmoid", "relu", "relu2", "gelu", "silu")),
    *(f"cleave.{name}(0.25 + abs(acc * x))" for name in ("log", "sqrt", "rsqrt")),
    "-acc * x", "acc + x", "acc - x", "x - acc", "acc * x", "acc / (2.0 + x * x)", "x / (2.0 + acc * acc)",
    "abs(acc) * x", "cleave.minimum(acc, x)", "cleave.maximum(acc, x)", "cleave.clamp(acc * x, -0.5, 0.75)",
    "cleave.where((acc < x) & ~(acc <= -1.0) | (x > 1.0), acc * x, x * 2.0 + acc)", "acc * acc * acc + x",
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("expression", OF_ONE)
def test_gradients_of_every_operation(expression: str, shape: str) -> None:
    case = Case(f"def drawn(acc, x: cleave.{shape}):\n    return {expression}\n")
    case.check(case.ours())


def test_every_operation_was_tried() -> None:
    texts = [Case(f"def drawn(acc, x: cleave.row):\n    return {e}\n").traced().text for e in OF_ONE]
    tried = {line.split()[2] for text in texts for line in text.splitlines() if line.startswith("%")}
    from cleave._epilogue import derivative

    assert set(derivative._RULES) - {"to"} <= tried


@pytest.mark.parametrize("seed", range(60))
def test_gradients_of_drawn_functions(seed: int) -> None:
    """All outputs have gradients here; no casts, whose steps float32 may miss."""
    drawn = epilogue_functions.draw(Random(seed), types=("float32",))
    text = re.sub(r"\.to\('\w+'\)", "", drawn.text)
    case = Case(text, seed, batch=(2,) if seed % 4 == 0 else ())
    outputs = case.ours()
    if any(x.requires_grad for x in outputs):
        case.check(outputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2"])
def test_casts_pass_the_gradient(dtype: str) -> None:
    case = Case(f"def drawn(acc, x: cleave.matrix):\n    return 0.0 + (acc * x).to({dtype!r})\n")
    (d,) = case.ours()
    got = torch.autograd.grad(d, case.inputs["x"], torch.ones_like(d))[0]
    torch.testing.assert_close(got, (case.a @ case.b).detach())


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_equal_values_share_the_gradient(name: str) -> None:
    x, y = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    names: dict[str, Any] = {"cleave": cleave}
    exec(f"def drawn(acc, y: cleave.matrix):\n    return cleave.{name}(acc, y)", names)
    d = cleave.torch.gemm(torch.eye(4), x, epilogue=cleave.epilogue(names["drawn"])(y=y))
    d.sum().backward()
    assert (x.grad == 0.5).all() and (y.grad == 0.5).all()


@cleave.epilogue
def gelu_residual(acc, bias: cleave.row, scale: cleave.scalar, residual: cleave.matrix):
    pre = acc * scale + bias
    return cleave.outputs(d=cleave.gelu(pre) + residual, pre=pre)


@cleave.epilogue
def gelu_only(acc, bias: cleave.row, scale: cleave.column):
    return cleave.gelu(acc * scale + bias)


def operands(dtype: Any = torch.float32) -> list[Any]:
    """a, b, bias, scale, residual."""
    torch.manual_seed(0)
    shapes = (M, K), (K, N), (N,), (), (M, N)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def backward_calls(loss: Any) -> list[tuple[str, list[str]]]:
    with Products() as products:
        loss.backward()
    return products.calls


def test_the_derivative_is_the_epilogue_of_the_same_product() -> None:
    a, b, bias, _, _ = operands()
    scale = torch.randn(M, requires_grad=True)
    d = cleave.torch.gemm(a, b, epilogue=gelu_only(bias=bias, scale=scale))
    first, *others = backward_calls(d.sum())
    assert first == ("epilogue", ["d0:float32", "d1:float32", "d2:float32"])
    assert [name for name, _ in others] == ["default", "default"]  # of a and b


def test_an_output_that_says_enough_saves_the_product() -> None:
    a, b, bias, _, residual = operands()
    d, _ = cleave.torch.gemm(a, b, epilogue=gelu_residual(bias=bias, scale=0.5, residual=residual))
    assert [name for name, _ in backward_calls(d.sum())] == ["default", "default"]


def test_a_linear_function_needs_no_product() -> None:
    @cleave.epilogue
    def shifted(acc, bias: cleave.row):
        return 2.0 * acc + bias

    a, b, bias, _, _ = operands()
    d = cleave.torch.gemm(a, b, epilogue=shifted(bias=bias))
    assert [name for name, _ in backward_calls(d.sum())] == ["default", "default"]
    torch.testing.assert_close(bias.grad, torch.full((N,), float(M)))


def test_more_gradients_than_outputs() -> None:
    case = Case(
        "def drawn(acc, v: cleave.row, w: cleave.column, x: cleave.scalar, y: cleave.matrix, z: cleave.row):\n"
        "    return cleave.tanh(acc * v) * cleave.sigmoid(acc * w + x) * cleave.exp(-abs(acc * y)) + acc * z\n"
    )
    case.check(case.ours())


def test_most_inputs() -> None:
    names = [f"x{i}" for i in range(8)]
    sums = " + ".join(f"cleave.tanh(acc * {name})" for name in names)
    case = Case(f"def drawn(acc, {', '.join(f'{name}: cleave.row' for name in names)}):\n    return {sums}\n")
    case.check(case.ours())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(dtype: Any) -> None:
    leaves = operands(dtype)
    a, b, bias, scale, residual = leaves
    d, pre = cleave.torch.gemm(a, b, epilogue=gelu_residual(bias=bias, scale=scale, residual=residual))
    assert d.dtype == pre.dtype == dtype
    grads = torch.autograd.grad(d.sum() + pre.sum(), leaves)
    exact = [x.detach().double().requires_grad_() for x in leaves]
    expected = exact[0] @ exact[1] * exact[3] + exact[2]
    loss = (torch.nn.functional.gelu(expected) + exact[4]).sum() + expected.sum()
    unit = torch.finfo(dtype).eps
    for x, y in zip(grads, torch.autograd.grad(loss, exact), strict=True):
        assert x.dtype == dtype
        torch.testing.assert_close(x.double(), y, rtol=8 * unit, atol=8 * unit * float(y.abs().max()))


def test_gradcheck() -> None:
    """By torch's own differences: float32, so with long steps."""
    a, b, bias, scale, residual = operands()

    def product(*inputs: Any) -> Any:
        return cleave.torch.gemm(a, b, epilogue=gelu_residual(bias=inputs[0], scale=inputs[1], residual=inputs[2]))

    kinds = {"eps": 1e-2, "atol": 2e-2, "rtol": 2e-2, "nondet_tol": 0.0}
    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(product, (bias, scale, residual), **kinds)


def test_second_derivatives() -> None:
    case = Case("def drawn(acc, x: cleave.row):\n    return cleave.tanh(acc * x)\n")

    def penalty(d: Any, leaves: list[Any]) -> list[Any]:
        grads = torch.autograd.grad(d.sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in grads), leaves)

    exact = [leaf.detach().double().requires_grad_() for leaf in case.leaves]
    expected = penalty(torch.tanh(exact[0] @ exact[1] * exact[2]), exact)
    for x, y in zip(penalty(case.ours()[0], case.leaves), expected, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=1e-3, atol=1e-3 * float(y.abs().max()))


def test_no_gradient_where_exp_overflows() -> None:
    @cleave.epilogue
    def activated(acc):
        return cleave.silu(acc)

    x = torch.tensor([[-200.0, -90.0, 0.0, 90.0]], requires_grad=True)
    cleave.torch.gemm(torch.ones(1, 1), x, epilogue=activated).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([[0.0, 0.0, 0.5, 1.0]]))


def test_a_backward_of_its_own() -> None:
    @cleave.epilogue
    def rounded(acc, step: cleave.scalar, bias: cleave.row):
        return cleave.outputs(d=(acc / step).to("int8") * step + bias, scaled=acc * step)

    @rounded.backward
    def _(acc, step, grad_d):
        return {"acc": cleave.where(abs(acc) < 127.0 * step, grad_d, 0.0), "bias": 3.0 * grad_d}

    a, b, bias, _, _ = operands()
    step = torch.tensor(0.01, requires_grad=True)
    d, scaled = cleave.torch.gemm(a, b, epilogue=rounded(step=step, bias=bias))
    (d.sum() + 5.0 * scaled.sum()).backward()
    inside = ((a @ b).abs() < 1.27).float()
    assert 0.1 < inside.mean() < 0.9
    torch.testing.assert_close(a.grad, inside @ b.detach().T)
    torch.testing.assert_close(bias.grad, torch.full((N,), 3.0 * M))
    assert step.grad is None
    a.grad = None
    scaled = cleave.torch.gemm(a, b, epilogue=rounded(step=step, bias=bias))[1]
    scaled.sum().backward()  # the other output's gradient alone: the backward above does not use it
    assert (a.grad == 0).all()


def test_what_backward_refuses() -> None:
    @cleave.epilogue
    def shifted(acc, bias: cleave.row):
        return acc + bias

    with pytest.raises(TypeError, match=r"parameter grad_pre of back\(\) is none of acc, bias, grad_d"):
        _backward_of(shifted, "grad_pre")
    with pytest.raises(cleave.EpilogueError, match="it must return a dict of the gradients of acc, bias"):
        _backward_of(shifted, "grad_d", "residual")


def _backward_of(function: cleave.Epilogue, parameter: str, name: str = "acc") -> None:
    names: dict[str, Any] = {}
    exec(f"def back({parameter}):\n    return {{{name!r}: {parameter}}}", names)
    function.backward(names["back"])


def test_compiled() -> None:
    leaves = operands()

    def step(a: Any, b: Any, bias: Any, scale: Any, residual: Any, factor: float) -> Any:
        d, pre = cleave.torch.gemm(a, b, epilogue=gelu_residual(bias=bias, scale=scale, residual=residual))
        fixed = gelu_residual(bias=bias, scale=factor, residual=residual)
        e, _ = cleave.torch.gemm(a, b, epilogue=fixed, out_dtype=torch.bfloat16)
        return d.sum() + pre.sum() + e.float().sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for factor in (0.25, 0.5):
        expected, got = step(*leaves, factor), compiled(*leaves, factor)
        torch.testing.assert_close(got, expected)
        for x, y in zip(torch.autograd.grad(got, leaves), torch.autograd.grad(expected, leaves), strict=True):
            torch.testing.assert_close(x, y)


def test_compiled_with_what_was_bound_before() -> None:
    a, b, bias, scale, residual = operands()
    bound = gelu_residual(bias=bias, scale=scale, residual=residual)
    compiled = torch.compile(lambda a, b: cleave.torch.gemm(a, b, epilogue=bound)[0], fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(a, b), cleave.torch.gemm(a, b, epilogue=bound)[0])


def test_the_operator_is_the_function() -> None:
    with torch.no_grad():
        a, b, bias, scale, residual = (x.detach() for x in operands())
    bound = gelu_residual(bias=bias, scale=scale, residual=residual)
    for x, y in zip(cleave.torch.gemm(a, b, epilogue=bound), cleave.gemm(a, b, epilogue=bound), strict=True):
        assert torch.equal(x, y)


@cleave.epilogue
def dequantised(acc, weight: cleave.column, residual: cleave.matrix):
    return acc * weight + residual


def test_scaled_products_give_the_functions_inputs_gradients() -> None:
    torch.manual_seed(0)
    q, w = (torch.randint(-7, 8, (rows, 32)).to(torch.int8) for rows in (M, N))
    scale_a, scale_b = torch.rand(M, 1), torch.rand(N)
    weight, residual = torch.randn(M, requires_grad=True), torch.randn(M, N, requires_grad=True)
    bias = torch.randn(N, requires_grad=True)
    options = {"bias": bias, "out_dtype": torch.float32, "epilogue": dequantised(weight=weight, residual=residual)}
    d = cleave.torch.scaled_gemm(q, w.t(), scale_a, scale_b, **options)
    d.backward(torch.ones_like(d))
    acc = q.float() @ w.float().t() * scale_a * scale_b + bias.detach()
    torch.testing.assert_close(weight.grad, acc.sum(1))
    torch.testing.assert_close(residual.grad, torch.ones(M, N))
    torch.testing.assert_close(bias.grad, weight.detach().sum().expand(N))
    scale_a.requires_grad_()
    with pytest.raises(RuntimeError, match=r"scale_a requires grad, but has no gradient here; pass scale_a.detach\(\)"):
        cleave.torch.scaled_gemm(q, w.t(), scale_a, scale_b, **options)


@pytest.mark.parametrize(
    ("tensors", "numbers", "places", "message"),
    [
        (1, [], [], "inputs has 1 tensors and numbers 0 values; the epilogue function has 2 inputs"),
        (1, [1.0], [], "numbers has 1 values, but number_places 0"),
        (1, [1.0], [0], "weight is a number, but a column of the epilogue function; pass a tensor"),
        (1, [1.0], [7], "number_places has 7; it must be places of inputs, in ascending order"),
    ],
)
def test_operators_name_what_is_no_input(tensors: int, numbers: list[float], places: list[int], message: str) -> None:
    a, b = torch.ones(M, K), torch.ones(K, N)
    with pytest.raises(RuntimeError, match=re.escape(message)):
        torch.ops.cleave.gemm.epilogue(a, b, dequantised.text, [torch.ones(M)] * tensors, numbers, places)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda acc: acc, "epilogue must be a function made by @cleave.epilogue, called with its inputs, got function"),
        (gelu_only(bias=[1.0], scale=torch.ones(M)), r"bias is \[1.0\]; it must be a tensor, or a number"),
        (gelu_only(bias=torch.ones(N), scale=None), "scale is None; it must be a tensor, or a number"),
    ],
)
def test_what_is_no_function_or_no_input_is_refused(function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        cleave.torch.gemm(torch.ones(M, K), torch.ones(K, N), epilogue=function)


@pytest.mark.parametrize(
    "options",
    [
        {"out_scale": "row", "out_dtype": torch.int8},
        {"out_scale": "row", "out_dtype": torch.float8_e4m3fn, "use_ue8m0": True},
        {"out_scale": "tensor", "out_dtype": torch.float8_e4m3fn},
        {"out_scale": "block_128x128", "out_dtype": torch.int8, "use_ue8m0": True},
    ],
    ids=lambda options: options["out_scale"],
)
@pytest.mark.parametrize("product", ["gemm", "scaled_gemm", "grouped_gemm"])
def test_what_another_launch_quantises(product: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(M, K), torch.randn(2, K, N)
    (q, scale), (weight, weight_scale) = cleave.quantize(a, "int8"), cleave.quantize(b[0].T.contiguous(), "int8")
    x, *rest = {
        "gemm": (a, b[0]),
        "scaled_gemm": (q, weight.T, scale, weight_scale.T),
        "grouped_gemm": (a, b, torch.tensor([3, M - 2], dtype=torch.int32)),
    }[product]
    options = options | {"scale_major": "mn"}
    for epilogue in (None, gelu_only(bias=torch.randn(N), scale=torch.randn(M))):

        def call(x: Any, epilogue: Any = epilogue) -> Any:
            return getattr(cleave.torch, product)(x, *rest, epilogue=epilogue, **options)

        expected = getattr(cleave, product)(x, *rest, epilogue=epilogue, **options)
        torch.compiler.reset()
        for made in (call(x), torch.compile(call, fullgraph=True, backend="aot_eager")(x)):
            assert torch.equal(made[1], expected[1]) and torch.equal(made[0].float(), expected[0].float())
            assert made[1].stride() == expected[1].stride()


@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("shape", [(4, 8), (1, 4, 8), (0, 4, 8), (3, 0, 8)])
def test_scales_of_d_lie_as_fakes_say(shape: tuple[int, ...], major: str) -> None:
    options = {"out_dtype": torch.int8, "out_scale": "block_1x128", "scale_major": major}
    for columns in (200, 0):
        a, b = torch.randn(shape), torch.randn(8, columns)
        _, scale = cleave.torch.gemm(a, b, **options)
        _, meta = cleave.torch.gemm(a.to("meta"), b.to("meta"), **options)
        assert (scale.shape, scale.stride()) == (meta.shape, meta.stride())


def test_options_are_checked() -> None:
    a, b = torch.randn(M, K), torch.randn(K, N)
    assert cleave.torch.gemm(a, b, out_dtype="float16", out_scale=None).dtype == torch.float16
    for options, exception, words in (
        ({"out_dtype": "floot16"}, TypeError, "out_dtype is 'floot16'; it must be a dtype"),
        ({"out": torch.empty(M, N)}, TypeError, r"gemm\(\) got an unexpected keyword argument 'out'"),
        ({"activaton": "relu"}, TypeError, "'activaton'. Did you mean 'activation'?"),
        ({"scale_major": "mn"}, ValueError, "scale_major is given, but no scales are found"),
        ({"use_ue8m0": True}, ValueError, "use_ue8m0 is given, but no scales are found"),
    ):
        with pytest.raises(exception, match=words):
            cleave.torch.gemm(a, b, **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'check_offsets'"):
        cleave.torch.grouped_gemm(a, b[None], torch.tensor([M]), check_offsets=True)


def test_rows_are_quantised_beside_other_outputs() -> None:
    a, b, bias, _, _ = (x.detach() for x in operands())
    with pytest.raises(TypeError, match="out_dtype is None"):
        cleave.torch.gemm(a, b, out_scale="row")
    function = gelu_rows(bias=bias, weight=torch.ones(M))
    options = {"epilogue": function, "out_dtype": torch.int8, "out_scale": "row"}
    made, (d, *others) = cleave.torch.gemm(a, b, **options), cleave.torch.gemm(a, b, epilogue=function)
    expected = (*cleave.quantize(d, "int8"), *others)
    for same in (made, cleave.gemm(a, b, **options)):
        assert len(same) == len(expected) == 3
        assert all(map(torch.equal, (same[0], same[-1], *same[1:-1]), expected))
    with pytest.raises(ValueError, match=r"D is \(1, .*for products whose D is a matrix"):
        cleave.torch.gemm(a[None], b, out_dtype=torch.int8, out_scale="tensor")


def test_copies_and_other_processes_have_the_function() -> None:
    @cleave.epilogue
    def clipped(acc, limit: cleave.scalar, shift: cleave.row):
        return cleave.clamp(acc + shift, -limit, limit)

    @clipped.backward
    def _(acc, grad_d):
        return {"acc": grad_d}

    a, b, shift, _, _ = operands()
    bound = clipped(limit=1.0, shift=shift.detach())
    expected = cleave.torch.gemm(a, b, epilogue=bound)
    for copied in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        assert repr(copied(clipped)) == repr(clipped)
        for other in (copied(bound), copied(clipped)(limit=1.0, shift=shift.detach())):
            d = cleave.torch.gemm(a, b, epilogue=other)
            assert torch.equal(d, expected)
            (gradient,) = torch.autograd.grad(d.sum(), a)
            torch.testing.assert_close(gradient, b.detach().sum(1).expand(M, K))


def test_an_activation_beside_a_function_is_refused() -> None:
    a, b, bias, scale, residual = operands()
    with pytest.raises(ValueError, match="activation is given beside an epilogue function"):
        cleave.torch.gemm(a, b, activation="relu", epilogue=gelu_residual(bias=bias, scale=scale, residual=residual))


@cleave.epilogue
def gelu_rows(acc, bias: cleave.row, weight: cleave.column):
    pre = acc + bias
    return cleave.outputs(d=cleave.gelu(pre) * weight, pre=pre)


def test_groups_compile() -> None:
    torch.manual_seed(0)
    rows, experts = torch.randn(30, K), torch.randn(3, K, N)
    ends = torch.tensor([10, 10, 30], dtype=torch.int32)
    bias, weight = torch.randn(3, N), torch.randn(30)

    def layer(rows: Any) -> Any:
        return cleave.torch.grouped_gemm(rows, experts, ends, epilogue=gelu_rows(bias=bias, weight=weight))

    for d, pre in (layer(rows), torch.compile(layer, fullgraph=True, backend="aot_eager")(rows)):
        expected = torch.cat([rows[:10] @ experts[0] + bias[0], rows[10:] @ experts[2] + bias[2]])
        torch.testing.assert_close(pre, expected)
        torch.testing.assert_close(d, torch.nn.functional.gelu(expected) * weight.unsqueeze(1))
