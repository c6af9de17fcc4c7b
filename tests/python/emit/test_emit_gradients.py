"""The gradients of emitted operators, code that needs no build, against those of autograd."""

from __future__ import annotations

import importlib
import itertools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from doc_snippets import ROOT

torch = pytest.importorskip("torch")

import cleave  # noqa: E402
from cleave._epilogue.activations import GATED  # noqa: E402
from cleave.testing.activations import ELEMENTWISE, activate  # noqa: E402
from cleave.testing.arrays import TorchArrays  # noqa: E402

ALPHA, BETA = 0.5, 2.0


def operator(monkeypatch: pytest.MonkeyPatch, kind: str, **fixed: Any) -> tuple[types.ModuleType, Any]:
    """The module of a package whose operation is `fixed`, and that."""
    package = types.ModuleType("emitted_package")
    project = ROOT / "src/emit/project"
    sources: dict[str, Path] = {
        "_formula": project / f"pytorch_{kind}/package/_formula.py",
        "_activations": project / "pytorch_activation/package/_activations.py",
        "_sum_to": ROOT / "python/cleave/torch/_operators/sum_to.py",
        "_epilogue": project / "pytorch_activation/package/_epilogue.py",
        "_operator": project / "pytorch/package/_operator.py",
    }
    if fixed.get("FUNCTION"):
        del sources["_activations"]
        sources["_epilogue"] = project / "pytorch_function/package/_epilogue.py"
        for name in ("graph", "derivative", "values"):  # which emitted projects have in a folder of that name
            monkeypatch.setitem(
                sys.modules, f"emitted_package.function.{name}", importlib.import_module(f"cleave._epilogue.{name}")
            )
        monkeypatch.setitem(sys.modules, "emitted_package.function", types.ModuleType("emitted_package.function"))
    package._operation = types.SimpleNamespace(**{"BACKWARD": ""} | fixed)
    monkeypatch.setitem(sys.modules, "emitted_package", package)
    for name, path in sources.items():
        module = types.ModuleType(f"emitted_package.{name}")
        module.__package__ = "emitted_package"
        exec(compile(path.read_text(), path, "exec"), module.__dict__)
        setattr(package, name, module)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return package._operator, package._operation


class Context:
    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = [x.detach() for x in tensors]

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.without_gradient = tensors

    def set_materialize_grads(self, value: bool) -> None:
        assert not value


def check(module: Any, inputs: dict[str, Any], *results: Any) -> None:
    """`results` follow from the tensors among `inputs`."""
    tensors = [x for x in inputs.values() if isinstance(x, torch.Tensor)]
    grads = [torch.randn_like(result) for result in results]
    expected = iter(torch.autograd.grad(results, tensors, grads, allow_unused=True))
    context = Context()
    output = results if len(results) > 1 else results[0]
    module.fixed.ARGUMENTS = tuple(inputs)
    module._save(context, tuple(inputs.values()), {"alpha": ALPHA, "beta": BETA}, output)
    context.needs_input_grad = [isinstance(x, torch.Tensor) for x in inputs.values()]
    for x, gradient in zip(inputs.values(), module._backward(context, *grads), strict=True):
        known = next(expected) if isinstance(x, torch.Tensor) else None
        if known is None:
            assert gradient is None
        else:
            torch.testing.assert_close(gradient, known, rtol=1e-4, atol=1e-4)


def random(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.double, requires_grad=True)


def add_up(x: Any, inputs: dict[str, Any], bias: Any, has_c: bool) -> Any:
    """The sums, whose tensors join the inputs."""
    x = ALPHA * x
    if bias is not None:
        inputs["bias"] = bias
        x = x + bias.view(-1, *[1] * (x.dim() - 2)) if x.dim() > 3 else x + bias
    if has_c:
        inputs["c"] = random(*x.shape)
        x = x + BETA * inputs["c"]
    return x


@pytest.mark.parametrize(
    ("activation", "bias", "has_c"),
    itertools.product((*ELEMENTWISE, *GATED), ("none", "row", "column"), (False, True)),
)
def test_of_products(activation: str, bias: str, has_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, _ = operator(
        monkeypatch, "product", ACTIVATION=activation, BIAS=bias, HAS_BIAS=bias != "none", HAS_C=has_c, GROUPING="none"
    )
    inputs = {"a": random(3, 8, 6), "b": random(6, 10)}  # b serves the whole batch
    vector = {"none": None, "row": random(10), "column": random(8, 1)}[bias]
    sums = add_up(inputs["a"] @ inputs["b"], inputs, vector, has_c)
    check(module, inputs, activate(TorchArrays("cpu"), activation, sums))


@cleave.epilogue
def mixed(acc, bias: cleave.row, mask: cleave.column, step: cleave.scalar, floor: cleave.scalar, x: cleave.matrix):
    pre = acc * step + bias
    return cleave.outputs(d=cleave.gelu(pre) * mask + x, capped=cleave.maximum(cleave.tanh(pre) * x, floor))


@cleave.epilogue
def gates(acc, limit: cleave.scalar):
    return cleave.silu(cleave.minimum(acc.gate, limit)) * acc.up


@cleave.epilogue
def without_sum(acc, x: cleave.matrix):
    return cleave.outputs(d=x * 2.0, root=cleave.sqrt(abs(acc) + 1.0))


def test_of_functions_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    options = {"BIAS": "none", "HAS_BIAS": False, "HAS_C": True, "GROUPING": "none"}
    module, _ = operator(monkeypatch, "product", FUNCTION=mixed.text, **options)
    inputs = {"a": random(3, 8, 6), "b": random(6, 10)}
    sums = add_up(inputs["a"] @ inputs["b"], inputs, None, True)
    inputs |= {"bias": random(3, 1, 10), "mask": random(8), "step": random(), "floor": -0.1, "x": random(8, 10)}
    pre = sums * inputs["step"] + inputs["bias"]
    d = torch.nn.functional.gelu(pre) * inputs["mask"][:, None] + inputs["x"]
    check(module, inputs, d, (torch.tanh(pre) * inputs["x"]).clamp(min=-0.1))


def test_of_functions_of_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    options = {"BIAS": "row", "HAS_BIAS": True, "HAS_C": False, "GROUPING": "none"}
    module, _ = operator(monkeypatch, "product", FUNCTION=gates.text, **options)
    inputs = {"a": random(8, 6), "b": random(6, 20)}
    gate, up = add_up(inputs["a"] @ inputs["b"], inputs, random(20), False).chunk(2, -1)
    inputs["limit"] = 0.5
    check(module, inputs, torch.nn.functional.silu(gate.clamp(max=0.5)) * up)


@cleave.epilogue
def reduced(acc, shift: cleave.row):
    x = cleave.tanh(acc + shift)
    return cleave.outputs(d=x, norm=cleave.sum_of_squares(x, over="columns"), total=cleave.sum(x, over="rows"))


@cleave.epilogue
def quantised(acc, step: cleave.column):
    x = (acc / step).to("int8") * step
    return cleave.outputs(d=x, whole=cleave.sum(x), largest=cleave.absmax(x))


@quantised.backward
def straight_through(acc, step, grad_d, grad_whole):
    return {"acc": cleave.where(acc > 0.0, 3.0 * grad_d + grad_whole, 0.0), "step": grad_d}


DENSE = {"BIAS": "none", "HAS_BIAS": False, "HAS_C": False, "GROUPING": "none"}


@pytest.mark.parametrize("batch", [(), (3,)])
def test_of_what_the_result_is_reduced_to(batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch each entry has lines of its own."""
    torch.manual_seed(0)
    module, _ = operator(monkeypatch, "product", FUNCTION=reduced.text, **DENSE)
    inputs = {"a": random(*batch, 8, 6), "b": random(*batch, 6, 10)}
    sums = add_up(inputs["a"] @ inputs["b"], inputs, None, False)
    inputs["shift"] = random(10)
    d = torch.tanh(sums + inputs["shift"])
    keep = bool(batch)
    check(module, inputs, d, d.square().sum(-1, keepdim=keep), d.sum(-2, keepdim=keep))


@pytest.mark.parametrize("with_whole", [False, True])
def test_of_a_backward_that_was_given(with_whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of the derivative; what no gradient comes from counts as 0, and the largest magnitude has none."""
    torch.manual_seed(0)
    backward = quantised(step=1.0).backward
    module, fixed = operator(monkeypatch, "product", FUNCTION=quantised.text, BACKWARD=backward, **DENSE)
    a, b, step = random(8, 6), random(6, 10), random(8)
    d, whole, largest = random(8, 10), random(), random()
    fixed.ARGUMENTS = ("a", "b", "step")
    context = Context()
    module._save(context, (a, b, step), {"alpha": ALPHA}, (d, whole, largest))
    assert context.without_gradient == (largest,)
    context.needs_input_grad = [True, True, True]
    grad, of_whole = torch.randn(8, 10), torch.randn(()) if with_whole else None
    of_a, of_b, of_step = module._backward(context, grad, of_whole, None)
    of_sums = (3 * grad + (of_whole if with_whole else 0)) * (a @ b > 0) * ALPHA
    torch.testing.assert_close(of_a, of_sums.double() @ b.mT, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(of_b, a.mT @ of_sums.double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(of_step, grad.double().sum(1), rtol=1e-4, atol=1e-4)


def test_of_an_output_that_does_without_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"BIAS": "none", "HAS_BIAS": False, "HAS_C": False, "GROUPING": "none"}
    module, fixed = operator(monkeypatch, "product", FUNCTION=without_sum.text, **options)
    monkeypatch.setattr(sys.modules["emitted_package"]._formula, "product", None)  # which is then not needed
    x = random(8, 10)
    fixed.ARGUMENTS = ("a", "b", "x")
    context = Context()
    module._save(context, (random(8, 6), random(6, 10), x), {"alpha": ALPHA}, (x, x))
    context.needs_input_grad = [True, True, True]
    of_a, of_b, of_x = module._backward(context, torch.ones(8, 10), None)
    assert of_a is None and of_b is None
    assert (of_x == 2).all()


@pytest.mark.parametrize(
    ("kind", "activation", "padding", "has_c"),
    itertools.product(("fprop", "dgrad", "wgrad"), ("none", "relu", "silu"), ((1, 1), (0, 2)), (False, True)),
)
def test_of_convolutions(
    kind: str,
    activation: str,
    padding: tuple[int, int],
    has_c: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    has_bias = kind != "wgrad"
    if kind == "wgrad":
        activation = "none"
    module, fixed = operator(
        monkeypatch, "convolution", KIND=kind, ACTIVATION=activation, HAS_BIAS=has_bias, HAS_C=has_c,
        **geometry(padding),
    )  # fmt: skip
    inputs, outputs = convolved(kind, fixed)
    bias = random(outputs.shape[1]) if has_bias else None
    sums = add_up(outputs, inputs, bias, has_c)
    check(module, inputs, activate(TorchArrays("cpu"), activation, sums))


def geometry(padding: tuple[int, int]) -> dict[str, Any]:
    return {
        "GROUPS": 2, "TAPS": (3, 3), "STRIDE": (2, 1), "DILATION": (1, 1), "PADDING": (padding, padding),
        "ORDER": torch.channels_last, "FILTERS": 6, "CHANNELS": 4,
    }  # fmt: skip


def convolved(kind: str, fixed: Any) -> tuple[dict[str, Any], Any]:
    """Operands, and their convolution."""
    x, w = random(2, 4, 9, 8), random(6, 2, 3, 3)
    ends = [end for pair in reversed(fixed.PADDING) for end in pair]
    outputs = torch.nn.functional.conv2d(torch.nn.functional.pad(x, ends), w, stride=fixed.STRIDE, groups=2)
    y = random(*outputs.shape)
    inputs = {
        "fprop": {"input": x, "weight": w},
        "dgrad": {"input_size": tuple(x.shape), "weight": w, "grad_output": y},
        "wgrad": {"input": x, "grad_output": y},
    }[kind]
    if kind != "fprop":
        by = x if kind == "dgrad" else w
        outputs = torch.autograd.grad(outputs, by, y, create_graph=True)[0]
    return inputs, outputs


@pytest.mark.parametrize("kind", ["fprop", "dgrad", "wgrad"])
def test_of_functions_of_convolutions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, fixed = operator(
        monkeypatch, "convolution", KIND=kind, FUNCTION=mixed.text, HAS_BIAS=False, HAS_C=False, **geometry((0, 2))
    )
    inputs, sums = convolved(kind, fixed)
    sums = ALPHA * sums
    outer, channels, *rest = sums.shape
    row, column = (channels,), (outer, 1, *rest)
    if kind == "wgrad":
        row, column = (1, channels, *rest), (outer,)
    inputs |= {"bias": random(*row), "mask": random(*column), "step": 0.5, "floor": 0.0, "x": random(*sums.shape)}
    line = (-1, 1, 1, 1) if kind == "wgrad" else (-1, 1, 1)
    bias, mask = (x if x.dim() > 1 else x.view(line) for x in (inputs["bias"], inputs["mask"]))
    pre = sums * 0.5 + bias
    d = torch.nn.functional.gelu(pre) * mask + inputs["x"]
    check(module, inputs, d, (torch.tanh(pre) * inputs["x"]).clamp(min=0.0))
