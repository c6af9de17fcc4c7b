"""Convolutions with epilogue functions in torch: operators, torch.compile, gradients against torch's in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from gradient_checks import check_gradients  # noqa: E402

import cleave.torch  # noqa: E402

F = torch.nn.functional
OPERATORS = ("conv", "conv_dgrad", "conv_wgrad")
GEOMETRY = {"stride": [2], "padding": [1], "dilation": [1], "groups": 2}


@cleave.epilogue
def scaled_residual(acc, row: cleave.row, column: cleave.column, residual: cleave.matrix, scale: cleave.scalar):
    """The derivative reads the sum."""
    pre = acc * scale + row
    return cleave.outputs(d=cleave.tanh(pre) * column + residual, pre=pre)


@cleave.epilogue
def shifted(acc, row: cleave.row, column: cleave.column, residual: cleave.matrix, scale: cleave.scalar):
    """It does not."""
    return acc * 2.0 + row * column - residual * scale


@cleave.epilogue
def with_norm(acc, row: cleave.row, column: cleave.column, residual: cleave.matrix, scale: cleave.scalar):
    x = cleave.silu(acc + row) * column + residual * scale
    return cleave.outputs(d=x, norm=cleave.sum_of_squares(x, over="columns"), total=cleave.sum(acc, over="rows"))


def exact(function: Any, line: int, acc: Any, row: Any, column: Any, residual: Any, scale: Any) -> tuple[Any, ...]:
    """`line`: the dimension that has a row's, or a column's, values as one line."""
    if function is scaled_residual:
        pre = acc * scale + row
        return torch.tanh(pre) * column + residual, pre
    if function is shifted:
        return (acc * 2 + row * column - residual * scale,)
    x = F.silu(acc + row) * column + residual * scale
    others = [i for i in range(acc.dim()) if i != line]
    if line == 1:
        return x, (x * x).sum(1, keepdim=True), acc.sum(others)
    return x, (x * x).sum(others), acc.sum(0, keepdim=True)


class Case:
    """An operator with operands of one to three axes, and what torch's own makes of them."""

    def __init__(self, name: str, axes: int, sizes: tuple[int, ...] = (7, 6, 5)) -> None:
        torch.manual_seed(axes)
        self.name, self.axes = name, axes
        self.functional = getattr(F, f"conv{axes}d")
        shapes = {"input": (2, 4, *sizes[:axes]), "weight": (6, 2, *(3,) * axes)}
        with torch.no_grad():
            output = self.functional(torch.zeros(shapes["input"]), torch.zeros(shapes["weight"]), **self._own)
        shapes["grad_output"] = tuple(output.shape)
        made = {"conv": "grad_output", "conv_dgrad": "input", "conv_wgrad": "weight"}[name]
        self.made, self.size = made, shapes[made]
        self.line = 0 if name == "conv_wgrad" else 1
        self.operands = {n: self.tensor(shape) for n, shape in shapes.items() if n != made}
        line = (self.size[self.line],)
        plane = tuple(1 if i == self.line else size for i, size in enumerate(self.size))
        row, column = (line, plane) if self.line == 1 else (plane, line)
        self.inputs = {"row": self.tensor(row), "column": self.tensor(column), "residual": self.tensor(self.size)}
        self.inputs["scale"] = torch.tensor(0.7, requires_grad=True)

    @property
    def _own(self) -> dict[str, Any]:
        return {"stride": 2, "padding": 1, "groups": 2}

    @staticmethod
    def tensor(shape: tuple[int, ...]) -> Any:
        x = torch.randn(shape)
        return (x.movedim(1, -1).contiguous().movedim(-1, 1) if x.dim() > 2 else x).requires_grad_()

    @property
    def tensors(self) -> list[Any]:
        return [*self.operands.values(), *self.inputs.values()]

    def run(self, function: Any, *tensors: Any) -> tuple[Any, ...]:
        operands = dict(zip(self.operands, tensors[:2], strict=True))
        bound = function(**dict(zip(self.inputs, tensors[2:], strict=True)))
        named = {"conv_dgrad": {"input_size": self.size}, "conv_wgrad": {"weight_size": self.size}}.get(self.name, {})
        op = getattr(torch.ops.cleave, self.name).epilogue
        return tuple(op(**operands, **named, epilogue=bound.text, inputs=list(bound.inputs), **GEOMETRY))

    def exact(self, function: Any, *tensors: Any) -> tuple[Any, ...]:
        operands = dict(zip(self.operands, tensors[:2], strict=True))
        if self.name == "conv":
            acc = self.functional(operands["input"], operands["weight"], **self._own)
        else:  # the gradient of a convolution by what is made, which torch can differentiate again
            made = torch.zeros(self.size, dtype=torch.float64, requires_grad=True)
            given = {self.made: made, **operands}
            output = self.functional(given["input"], given["weight"], **self._own)
            (acc,) = torch.autograd.grad(output, made, given["grad_output"], create_graph=True)
        inputs = dict(zip(self.inputs, tensors[2:], strict=True))
        line = "row" if self.line == 1 else "column"
        ones = (1,) * (len(self.size) - self.line - 1)
        inputs[line] = inputs[line].view(-1, *ones)
        return exact(function, self.line, acc, **inputs)


@pytest.mark.parametrize(("axes", "compiled"), [(1, False), (2, False), (3, False), (2, True)])
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("function", [scaled_residual, shifted, with_norm], ids=lambda function: function.__name__)
def test_gradients(function: Any, name: str, axes: int, compiled: bool) -> None:
    case = Case(name, axes)
    names = (*case.operands, *case.inputs)
    check_gradients(partial(case.run, function), partial(case.exact, function), case.tensors, names, compiled)


@cleave.epilogue
def normalised(acc, scale: cleave.row, shift: cleave.row):
    return cleave.relu(acc * scale + shift)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_functions_of_the_package(axes: int) -> None:
    torch.manual_seed(0)
    x, w = Case.tensor((2, 4, *(6,) * axes)), Case.tensor((5, 4, *(3,) * axes))
    scale, shift = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
    bias = torch.randn(5, requires_grad=True)
    conv = getattr(cleave.torch, f"conv{axes}d")
    y = conv(x, w, bias, padding=1, epilogue=normalised(scale=scale, shift=shift))
    ones = (1,) * axes
    acc = getattr(F, f"conv{axes}d")(x, w, bias, padding=1)
    want = torch.relu(acc * scale.view(-1, *ones) + shift.view(-1, *ones))
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)
    weight = torch.randn_like(want)
    tensors = (x, w, bias, scale, shift)
    gradients = [torch.autograd.grad((made * weight).sum(), tensors) for made in (y, want)]
    for got, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(conv(x, w, bias, padding=1), acc, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(conv(x, w, bias, padding=1, activation="relu"), acc.relu(), rtol=1e-4, atol=1e-4)


def test_sums_of_gradients_may_exceed_float16() -> None:
    torch.manual_seed(0)
    x, w = (Case.tensor(shape).detach().half().requires_grad_() for shape in ((2, 64, 8, 8), (32, 64, 3, 3)))
    residual, column = Case.tensor((2, 32, 8, 8)).detach().half().fill_(60), torch.ones(2, 1, 8, 8)
    row, bias, scale = (torch.zeros(size, requires_grad=True) for size in ((32,), (32,), ()))
    y = cleave.torch.conv2d(x, w, padding=1, epilogue=shifted(row=row, column=column, residual=residual, scale=scale))
    (40 * y.float()).sum().backward()
    assert scale.grad.item() == -40 * 60 * y.numel()
    assert torch.equal(row.grad, torch.full((32,), 40.0 * 128))
    (1000 * torch.ops.cleave.conv.full(x, w, bias, [1], [1]).float()).sum().backward()
    assert torch.equal(bias.grad, torch.full((32,), 128_000.0))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_scaled_convolutions(axes: int, compiled: bool) -> None:
    """Integers times scales; gradients are those of what is no 8-bit number."""
    torch.compiler.reset()
    torch.manual_seed(axes)
    sizes = (7, 6, 5)[:axes]
    x, w = (
        torch.randint(-9, 9, (n, *rest, 16), dtype=torch.int8).movedim(-1, 1)
        for n, rest in ((2, sizes), (24, (3,) * axes))
    )
    of_x, of_w = torch.rand(1) / 64, torch.rand(24)
    row, bias, scale = (torch.randn(size).requires_grad_() for size in ((24,), (24,), ()))
    residual = torch.randn(2, *sizes, 24).movedim(-1, 1).requires_grad_()
    column = torch.randn(2, 1, *sizes).requires_grad_()

    def run(x: Any, row: Any, column: Any, residual: Any, scale: Any, bias: Any) -> Any:
        function = with_norm(row=row, column=column, residual=residual, scale=scale)
        convolve = getattr(cleave.torch, f"scaled_conv{axes}d")
        return convolve(x, w, of_x, of_w, bias, padding=1, epilogue=function, out_dtype=torch.float32)

    tensors = row, column, residual, scale, bias
    made = (torch.compile(run, fullgraph=True, backend="aot_eager") if compiled else run)(x, *tensors)
    plain = getattr(cleave, f"scaled_conv{axes}d")
    function = with_norm(row=row.detach(), column=column.detach(), residual=residual.detach(), scale=scale.detach())
    expected = plain(x, w, of_x, of_w, bias.detach(), padding=1, epilogue=function, out_dtype="float32")
    for one, other in zip(made, expected, strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()
    *inputs, of_bias = (t.detach().double().requires_grad_() for t in tensors)
    real = x.double() * of_x.double(), w.double() * of_w.double().view(-1, *(1,) * (axes + 1))
    acc = getattr(F, f"conv{axes}d")(*real, of_bias, padding=1)
    inputs[0] = (own := inputs[0]).view(-1, *(1,) * axes)
    wanted = exact(with_norm, 1, acc, *inputs)
    weights = [torch.randn_like(t) for t in wanted]
    mine = sum((t * weight.float()).sum() for t, weight in zip(made, weights, strict=True))
    theirs = sum((t * weight).sum() for t, weight in zip(wanted, weights, strict=True))
    grads = torch.autograd.grad(mine, tensors), torch.autograd.grad(theirs, (own, *inputs[1:], of_bias))
    for got, want in zip(*grads, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-3, atol=1e-3)


def test_autocast_and_backward_of_ones_own() -> None:
    @cleave.epilogue
    def rounded(acc, step: cleave.scalar):
        return (acc / step).to("int8") * step

    @rounded.backward
    def _(acc, step, grad_d):
        return {"acc": grad_d}

    x, w = Case.tensor((1, 3, 5, 5)), Case.tensor((4, 3, 3, 3))
    y = cleave.torch.conv2d(x, w, epilogue=rounded(step=0.25), out_dtype=torch.float32)
    (got,) = torch.autograd.grad(y.sum(), w)
    (want,) = torch.autograd.grad(F.conv2d(x, w).sum(), w)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert cleave.torch.conv2d(x, w, epilogue=rounded(step=0.25)).dtype == torch.bfloat16


def test_what_is_refused() -> None:
    x, w = Case.tensor((1, 3, 5, 5)), Case.tensor((4, 3, 3, 3))
    call = normalised(scale=torch.ones(4), shift=torch.ones(3))
    with pytest.raises(RuntimeError, match=r"shift is \(3,\); it must be \(4,\) or"):
        cleave.torch.conv2d(x, w, epilogue=call)
    with pytest.raises(ValueError, match="activation is given beside an epilogue function"):
        cleave.torch.conv2d(x, w, epilogue=call, activation="relu")
    with pytest.raises(ValueError, match=r"input is \(1, 3, 5, 5\); conv1d takes 3 dimensions"):
        cleave.torch.conv1d(x, w)
