"""torch.ops.cleave under torch.func (grad, vjp, jvp, jacobians, vmap) and in forward mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from torch.autograd import forward_ad  # noqa: E402
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap  # noqa: E402
from transform_checks import check_transforms, differentiable_calls  # noqa: E402

import cleave.torch  # noqa: E402

gemm = torch.ops.cleave.gemm
close = torch.testing.assert_close
Function = Callable[..., Any]


CALLS = [pytest.param(op, given, id=name) for name, op, given in differentiable_calls("cpu")]


@pytest.mark.parametrize(("op", "given"), CALLS)
def test_every_operator(op: Any, given: dict[str, Any]) -> None:
    check_transforms(op, given)


def plain(a: Any, b: Any, bias: Any, c: Any) -> Any:
    return torch.nn.functional.silu(0.5 * a @ b + bias + 2 * c)


def ours(a: Any, b: Any, bias: Any, c: Any) -> Any:
    return gemm(a, b, bias, c, alpha=0.5, beta=2.0, activation="silu")


def given() -> tuple[Any, ...]:
    torch.manual_seed(0)
    return torch.randn(4, 8), torch.randn(8, 3), torch.randn(3), torch.randn(4, 3)


def dual(function: Function) -> Function:
    def run(a: Any, *rest: Any) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(function(forward_ad.make_dual(a, 2 * a), *rest)).tangent

    return run


def of_sum(function: Function) -> Function:
    return lambda *xs: function(*xs).sum()


def backward_through_a_gradient(function: Function) -> Function:
    def run(a: Any, b: Any, *rest: Any) -> Any:
        a = a.requires_grad_()
        return torch.autograd.grad(grad(lambda b: function(a, b, *rest).square().sum())(b).sum(), a)

    return run


NESTED: dict[str, Callable[[Function], Function]] = {
    "dual numbers": dual,
    "hessian": lambda f: hessian(of_sum(f), argnums=(0, 1)),
    "reverse over reverse": lambda f: jacrev(jacrev(of_sum(f))),
    "reverse over forward": lambda f: jacrev(jacfwd(of_sum(f))),
    "forward over forward": lambda f: jacfwd(jacfwd(of_sum(f))),
    "gradients of a batch": lambda f: vmap(grad(of_sum(f), argnums=(0, 1, 2, 3))),
    "compiled gradient": lambda f: torch.compile(grad(of_sum(f), argnums=1), fullgraph=True, backend="aot_eager"),
    "backward through a gradient": backward_through_a_gradient,
}


def by_a_function(a: Any, b: Any, bias: Any, c: Any) -> Any:
    """The same, but c is an input: its gradient, and those of gradients, are of the function's own."""
    return cleave.torch.gemm(a, b, epilogue=silu_of_sum(c=c), bias=bias, alpha=0.5)


@cleave.epilogue
def silu_of_sum(acc, c: cleave.matrix):
    return cleave.silu(acc + 2.0 * c)


def by_one_without_inputs(a: Any, b: Any, bias: Any, c: Any) -> Any:
    return cleave.torch.gemm(a, b, epilogue=silu_alone, bias=bias, c=c, alpha=0.5, beta=2.0)


@cleave.epilogue
def silu_alone(acc):
    return cleave.silu(acc)


@pytest.mark.parametrize("product", [ours, by_a_function, by_one_without_inputs])
@pytest.mark.parametrize("name", NESTED)
def test_transforms_of_transforms(name: str, product: Function) -> None:
    xs = given()
    if name == "gradients of a batch":
        xs = tuple(torch.stack([x, x.flip(0), 2 * x]) for x in xs)
    close(*(NESTED[name](f)(*(x.clone() for x in xs)) for f in (product, plain)), rtol=1e-4, atol=1e-5)


CURVES = ["exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid"]


@pytest.mark.parametrize("name", [*CURVES, "silu", "gelu", "relu"])
@pytest.mark.parametrize("transform", [dual, lambda f: hessian(of_sum(f))], ids=["tangents", "hessian"])
def test_forward_mode_of_every_curve(transform: Callable[[Function], Function], name: str) -> None:
    """Tangents are made of the transpose of the backward pass at a gradient of 0, where no rule may choose by it."""

    @cleave.epilogue
    def curve(acc):
        return getattr(cleave, name)(acc)

    a, b = torch.rand(4, 8) + 0.5, torch.rand(8, 3)
    same = getattr(torch if name in CURVES else torch.nn.functional, name)
    expected = transform(lambda a: same(a @ b))(a)
    close(transform(lambda a: cleave.torch.gemm(a, b, epilogue=curve))(a), expected, rtol=1e-4, atol=1e-5)
    if name not in CURVES:
        close(transform(lambda a: gemm(a, b, activation=name))(a), expected, rtol=1e-4, atol=1e-5)


AXES = [
    (0, None, None, None), (1, None, None, None), (None, 0, None, None), (2, 2, None, None), (0, 0, None, None),
    (0, None, None, 1), (0, 0, None, 0), (0, None, 0, None), (None, None, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize("axes", AXES)
def test_vmap_of_products(axes: tuple[int | None, ...]) -> None:
    xs = [x if at is None else torch.stack([x, x + 1, 2 * x], at) for x, at in zip(given(), axes, strict=True)]
    mapped = [vmap(f, axes) for f in (ours, plain)]
    close(*(f(*xs) for f in mapped), rtol=1e-4, atol=1e-5)
    gradients = [grad(lambda *xs, f=f: f(*xs).square().sum(), argnums=(0, 1, 2, 3)) for f in mapped]
    close(*(f(*xs) for f in gradients), rtol=1e-4, atol=1e-4)


def test_vmap_of_products_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are those of one matrix, or a batch is left as it is."""
    seen: list[Any] = []
    run = gemm.default._op

    def watched(a: Any, b: Any, *rest: Any, **options: Any) -> Any:
        if not torch._C._functorch.is_batchedtensor(a):
            seen.append((a.shape, b.shape))
        return run(a, b, *rest, **options)

    monkeypatch.setattr(gemm.default, "_op", watched)
    a, b, *_ = given()
    many = torch.stack([a] * 5)
    assert vmap(lambda x: gemm.default(x, b))(many).shape == (5, 4, 3)
    assert vmap(lambda x: gemm.default(x, b))(many.mT.contiguous().mT).shape == (5, 4, 3)
    assert seen == [((20, 8), (8, 3)), ((5, 4, 8), (8, 3))]


def test_autocast_casts_there_too() -> None:
    a, b, *_ = given()

    def loss(a: Any, b: Any) -> Any:
        return gemm(a, b).float().square().sum()

    with torch.autocast("cpu", torch.bfloat16):
        made = grad(loss, argnums=(0, 1))(a, b)
        tracked = [x.clone().requires_grad_() for x in (a, b)]
        close(made, torch.autograd.grad(loss(*tracked), tracked))
        assert vmap(lambda a: gemm(a, b))(torch.stack([a, a])).dtype == torch.bfloat16


def of_layer(layer: Any, *inputs: Any) -> tuple[dict[str, Any], Function]:
    """Its parameters, and a loss as a function of them and of its first input."""

    def loss(weights: dict[str, Any], x: Any) -> Any:
        made = functional_call(layer, weights, (x, *inputs))
        return (made[0] if isinstance(made, tuple) else made).float().square().sum()

    return {name: x.detach() for name, x in layer.named_parameters()}, loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_of_experts(dtype: Any) -> None:
    """The mixture's two products are one with SwiGLU otherwise."""
    torch.manual_seed(0)
    x = torch.randn(16, 64, dtype=dtype)
    offs = torch.tensor([4, 9, 16], dtype=torch.int32)
    for layer, inputs in ((cleave.torch.GroupedLinear(3, 64, 32), (offs,)), (cleave.torch.MoE(4, 2, 64, 128), ())):
        weights, loss = of_layer(layer.to(dtype), *inputs)
        gradients = grad(loss)(weights, x)
        assert gradients.keys() == weights.keys()
        expected = torch.autograd.grad(loss(dict(layer.named_parameters()), x), list(layer.parameters()))
        for made, same in zip(gradients.values(), expected, strict=True):
            assert (made - same).float().norm() <= 1e-2 * same.float().norm()
        _, tangent = jvp(lambda x: loss(weights, x), (x,), (x,))  # noqa: B023
        close(tangent, (grad(loss, argnums=1)(weights, x) * x).float().sum(), rtol=1e-2, atol=1e-2)


def test_gradients_of_each_sample() -> None:
    """As differentially private training needs them."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(cleave.torch.Conv2d(3, 8, 3, stride=2, convert=True), torch.nn.Flatten())
    weights, loss = of_layer(model.to(memory_format=torch.channels_last))
    images = torch.randn(4, 1, 3, 6, 6)
    each = vmap(grad(loss), (None, 0))(weights, images)
    for i, image in enumerate(images):
        for name, x in grad(loss)(weights, image).items():
            close(each[name][i], x)
