"""Functions of acc.gate and acc.up in torch: the operators, torch.compile, and gradients against torch's in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from epilogue_gradients import Case, K, M, N, Products  # noqa: E402
from gradient_checks import check_gradients  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import cleave.torch  # noqa: E402

FUNCTIONS = {
    "geglu": "(acc, x: cleave.row):\n    return cleave.gelu(acc.gate + x) * acc.up",
    "gpt-oss": "(acc, limit: cleave.scalar, alpha: cleave.scalar):\n"
    "    gate = cleave.minimum(acc.gate, limit)\n"
    "    return gate * cleave.sigmoid(alpha * gate) * (cleave.clamp(acc.up, -1.5, 1.5) + 1.0)",
    "relu2": "(acc, x: cleave.column, y: cleave.matrix):\n    return cleave.relu2(acc.gate) * acc.up * x + y",
    "the gate alone": "(acc, x: cleave.matrix):\n    return cleave.tanh(acc.gate) * x",
    "no sum in the derivative": "(acc, x: cleave.row):\n    return acc.gate * 2.0 - acc.up + x",
    "two outputs": "(acc, x: cleave.row):\n"
    "    up = acc.up * x\n    return cleave.outputs(d=cleave.silu(acc.gate) * up, up=up)",
    "more gradients than outputs": "(acc, v: cleave.row, w: cleave.column, x: cleave.scalar, y: cleave.matrix):\n"
    "    return cleave.tanh(acc.gate * v + x) * cleave.sigmoid(acc.up * w) * y",
}


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["matrix", "batch"])
@pytest.mark.parametrize("body", FUNCTIONS.values(), ids=FUNCTIONS)
def test_gradients(body: str, batch: tuple[int, ...], interleaved: bool) -> None:
    if interleaved:
        body = body.replace("acc.gate", "acc.even").replace("acc.up", "acc.odd")
    case = Case(f"def drawn{body}\n", batch=batch)
    case.check(case.ours())


@pytest.mark.parametrize("batch", [(), (2,)], ids=["matrix", "batch"])
def test_gradients_of_swiglu_interleaved(batch: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(shape, dtype=torch.float64) for shape in ((*batch, M, K), (*batch, K, 2 * N)))
    leaves = [x.float().requires_grad_() for x in (a, b)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    d = torch.ops.cleave.gemm(*leaves, activation="swiglu_interleaved")
    sums = exact[0] @ exact[1]
    wanted = torch.nn.functional.silu(sums[..., 0::2]) * sums[..., 1::2]
    weight = torch.randn_like(d)
    made = torch.autograd.grad(d, leaves, weight), torch.autograd.grad(wanted, exact, weight.double())
    for got, want in zip((d, *made[0]), (wanted, *made[1]), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


def test_second_derivatives() -> None:
    case = Case("def drawn(acc, x: cleave.row):\n    return cleave.tanh(acc.gate * x) * acc.up\n")

    def penalty(d: Any, leaves: list[Any]) -> list[Any]:
        grads = torch.autograd.grad(d.sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum((g * g).sum() for g in grads), leaves)

    a, b, x = exact = [leaf.detach().double().requires_grad_() for leaf in case.leaves]
    gate, up = (a @ b).chunk(2, -1)
    for got, want in zip(penalty(case.ours()[0], case.leaves), penalty(torch.tanh(gate * x) * up, exact), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))


@cleave.epilogue
def gpt_oss(acc, limit: cleave.scalar = 7.0, alpha: cleave.scalar = 1.702):
    gate = cleave.minimum(acc.gate, limit)
    return gate * cleave.sigmoid(alpha * gate) * (cleave.clamp(acc.up, -limit, limit) + 1.0)


@cleave.epilogue
def kept(acc):
    return cleave.outputs(d=cleave.silu(acc.gate) * acc.up, gate=acc.gate, up=acc.up)


def products_of(function: Any) -> list[tuple[str, list[str]]]:
    """Which products backward makes: the operators' overloads, and the outputs of their functions."""
    a, b = torch.randn(M, K, requires_grad=True), torch.randn(K, 2 * N, requires_grad=True)
    made = cleave.torch.gemm(a, b, epilogue=function)
    with Products() as products:
        (made[0] if isinstance(made, tuple) else made).sum().backward()
    return products.calls


def test_both_gradients_are_the_epilogue_of_one_product() -> None:
    first, *others = products_of(gpt_oss)
    assert first == ("epilogue", ["d0:float32", "d1:float32"])
    assert [name for name, _ in others] == ["default", "default"]  # of a and b


def test_sums_that_are_outputs_are_not_made_again() -> None:
    assert [name for name, _ in products_of(kept)] == ["default", "default"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(dtype: Any) -> None:
    torch.manual_seed(0)
    shapes = (M, K), (K, 2 * N), (2 * N,)
    leaves = [(torch.randn(shape) / 4).to(dtype).requires_grad_() for shape in shapes]
    a, b, bias = leaves
    d = cleave.torch.gemm(a, b, bias=bias, epilogue=gpt_oss(limit=0.5))
    exact = [x.detach().double().requires_grad_() for x in leaves]
    gate, up = (exact[0] @ exact[1] + exact[2]).chunk(2, -1)
    gate = gate.clamp(max=0.5)
    wanted = gate * torch.sigmoid(1.702 * gate) * (up.clamp(-0.5, 0.5) + 1)
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(d.double(), wanted, rtol=unit, atol=unit)
    gradients = torch.autograd.grad(d.sum(), leaves), torch.autograd.grad(wanted.sum(), exact)
    for got, want in zip(*gradients, strict=True):
        assert got.dtype == dtype
        # The sums' gradients are rounded once, and what they are summed to once more.
        torch.testing.assert_close(got.double(), want, rtol=2 * unit, atol=2 * unit * float(want.abs().max()))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(backend: str) -> None:
    torch.manual_seed(0)
    a, b, w = (torch.randn(shape, requires_grad=True) for shape in ((M, K), (K, 2 * N), (N, K)))

    def layer(a: Any, b: Any, w: Any) -> Any:
        return cleave.torch.gemm(cleave.torch.gemm(a, b, epilogue=gpt_oss(limit=2.0)), w)

    torch.compiler.reset()
    expected, got = layer(a, b, w), torch.compile(layer, fullgraph=True, backend=backend)(a, b, w)
    torch.testing.assert_close(got, expected)
    for x, y in zip(*(torch.autograd.grad(y.sum(), (a, b, w)) for y in (got, expected)), strict=True):
        torch.testing.assert_close(x, y)


def test_fakes() -> None:
    with FakeTensorMode():
        a, b = torch.empty(3, M, K), torch.empty(K, 2 * N)
        assert [tuple(x.shape) for x in cleave.torch.gemm(a, b, epilogue=kept)] == [(3, M, N)] * 3
        q, w, scale = a.to(torch.int8), b.to(torch.int8).mT.contiguous().mT, torch.empty(())
        assert cleave.torch.scaled_gemm(q, w, scale, scale, epilogue=gpt_oss).shape == (3, M, N)
        assert cleave.torch.grouped_gemm(a, b.expand(3, K, 2 * N), epilogue=gpt_oss).shape == (3, M, N)
        rows, offs = torch.empty(M, K), torch.empty(3, dtype=torch.int32)
        assert torch.ops.cleave.gemm(rows, b, activation="swiglu_interleaved").shape == (M, N)
        assert cleave.torch.grouped_gemm(rows, b.expand(3, K, 2 * N), offs, epilogue=gpt_oss).shape == (M, N)


@cleave.epilogue
def weighted(acc, weight: cleave.column, shift: cleave.row):
    return cleave.silu(acc.gate) * acc.up * weight + shift


def test_scaled_products() -> None:
    torch.manual_seed(0)
    q, w = (torch.randint(-7, 8, (rows, 32)).to(torch.int8) for rows in (M, 2 * N))
    scale_a, scale_b = torch.rand(M, 1) / 8, torch.rand(2 * N) / 8
    leaves = [torch.randn(size, requires_grad=True) for size in (2 * N, M, N)]
    bias, weight, shift = leaves
    function = weighted(weight=weight, shift=shift)
    d = cleave.torch.scaled_gemm(q, w.t(), scale_a, scale_b, bias=bias, out_dtype=torch.float32, epilogue=function)
    exact = [x.detach().double().requires_grad_() for x in leaves]
    gate, up = (q.double() @ w.double().t() * scale_a * scale_b + exact[0]).chunk(2, -1)
    wanted = torch.nn.functional.silu(gate) * up * exact[1].unsqueeze(1) + exact[2]
    torch.testing.assert_close(d.double(), wanted, rtol=1e-5, atol=1e-5)
    factor = torch.randn(M, N)
    gradients = torch.autograd.grad((d * factor).sum(), leaves), torch.autograd.grad((wanted * factor).sum(), exact)
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


RANGES = [(0, 3), (3, 3), (3, 10)]  # the second group is empty; the last three rows belong to none
ROWS = 13


@cleave.epilogue
def curved(acc, row: cleave.row, column: cleave.column, matrix: cleave.matrix, scale: cleave.scalar):
    """More gradients than a function has outputs."""
    gate = cleave.minimum(acc.gate * scale + row, 1.0)
    return gate * cleave.sigmoid(1.702 * gate) * (acc.up + 1.0) * column + matrix


@cleave.epilogue
def linear(acc, row: cleave.row, column: cleave.column, matrix: cleave.matrix, scale: cleave.scalar):
    """Its derivative reads neither sum."""
    return acc.gate * 2.0 - acc.up + row * column - matrix * scale


def exact_groups(function: Any, *tensors: Any) -> tuple[Any]:
    a, b, bias, row, column, matrix, scale = tensors
    d = torch.zeros(ROWS, N, dtype=torch.float64)
    for g, (begin, end) in enumerate(RANGES):
        part = slice(begin, end)
        gate, up = (a[part] @ b[g] + bias[g]).chunk(2, -1)
        if function is linear:
            d[part] = gate * 2 - up + row[g] * column[part, None] - matrix[part] * scale[g]
        else:
            gate = torch.clamp(gate * scale[g] + row[g], max=1.0)
            d[part] = gate * torch.sigmoid(1.702 * gate) * (up + 1) * column[part, None] + matrix[part]
    return (d,)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("function", [curved, linear], ids=lambda function: function.__name__)
def test_gradients_of_groups(function: Any, compiled: bool) -> None:
    torch.manual_seed(0)
    shapes = {"a": (ROWS, K), "b": (3, K, 2 * N), "bias": (3, 2 * N), "row": (3, N), "column": (ROWS,)}
    shapes |= {"matrix": (ROWS, N), "scale": (3,)}
    tensors = [torch.randn(shape) / (K**0.5 if name == "a" else 1) for name, shape in shapes.items()]
    offs = torch.tensor([end for _, end in RANGES], dtype=torch.int32)

    def run(a: Any, b: Any, bias: Any, *inputs: Any) -> tuple[Any]:
        call = function(**dict(zip(list(shapes)[3:], inputs, strict=True)))
        return (cleave.torch.grouped_gemm(a, b, offs, bias=bias, epilogue=call),)

    tensors = [x.requires_grad_() for x in tensors]
    check_gradients(run, partial(exact_groups, function), tensors, list(shapes), compiled)


def test_gradients_of_masked_groups() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 5, K) / K**0.5, torch.randn(2, K, 2 * N)
    counts = torch.tensor([5, 2], dtype=torch.int32)

    def run(a: Any, b: Any) -> tuple[Any]:
        return (cleave.torch.grouped_gemm(a, b, counts=counts, epilogue=gpt_oss(limit=1.0)),)

    def exact(a: Any, b: Any) -> tuple[Any]:
        gate, up = (a @ b).chunk(2, -1)
        gate = gate.clamp(max=1.0)
        d = gate * torch.sigmoid(1.702 * gate) * (up.clamp(-1, 1) + 1)
        return (d * (torch.arange(5) < counts[:, None]).unsqueeze(-1),)

    check_gradients(run, exact, [a.requires_grad_(), b.requires_grad_()], "ab", False)


def test_a_backward_of_its_own() -> None:
    @cleave.epilogue
    def rounded(acc, step: cleave.scalar):
        return (acc.gate / step).to("int8") * step * acc.up

    @rounded.backward
    def _(acc, grad_d):
        return {"acc.gate": 3.0 * grad_d * acc.up, "acc.up": grad_d}

    torch.manual_seed(0)
    a, b = torch.randn(M, K), torch.randn(K, 2 * N, requires_grad=True)
    cleave.torch.gemm(a, b, epilogue=rounded(step=0.1)).sum().backward()
    expected = torch.cat([3 * (a @ b.detach()[:, N:]), torch.ones(M, N)], 1)
    torch.testing.assert_close(b.grad, a.T @ expected, rtol=1e-4, atol=1e-4)


def test_what_a_backward_may_not_take() -> None:
    @cleave.epilogue
    def gated(acc, acc_up: cleave.row):
        return acc.gate * acc.up + acc_up

    with pytest.raises(TypeError, match=r"input acc_up has the name that back\(\) gives acc.up's gradient; rename it"):

        @gated.backward
        def back(acc, grad_d):
            return {}

    with pytest.raises(TypeError, match=r"back\(\) takes acc, but the function whose backward it is acc.gate and acc"):

        @kept.backward
        def back(acc, grad_d):
            return {"acc.gate": acc * grad_d}

    with pytest.raises(cleave.EpilogueError, match=r"a dict of the gradients of acc.gate, acc.up, limit, alpha, by"):

        @gpt_oss.backward
        def back(acc, grad_d):
            return {"acc": grad_d}


def test_what_is_refused() -> None:
    a, b = torch.ones(M, K), torch.ones(K, 2 * N + 1)
    with pytest.raises(RuntimeError, match=r"b is \(24, 27\), but the epilogue function takes acc.gate and acc.up, wh"):
        cleave.torch.gemm(a, b, epilogue=gpt_oss)
    with pytest.raises(RuntimeError, match=r"c is given, but the epilogue function takes acc\.gate and acc\.up"):
        cleave.torch.gemm(a, b[:, 1:].contiguous(), c=torch.ones(M, N), epilogue=gpt_oss)
    like_images = {"memory_format": torch.channels_last}
    x, w = torch.ones(1, 4, 5, 5).to(**like_images), torch.ones(2, 4, 3, 3).to(**like_images)
    with pytest.raises(RuntimeError, match=r"a convolution has no acc\.gate and acc\.up"):
        cleave.torch.conv2d(x, w, epilogue=gpt_oss)
