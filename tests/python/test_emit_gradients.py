"""The gradients of emitted operators, code that needs no build, against those of autograd."""

from __future__ import annotations

import itertools
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from doc_snippets import ROOT

torch = pytest.importorskip("torch")

from cleave.testing.activations import ELEMENTWISE, activate  # noqa: E402
from cleave.testing.arrays import TorchArrays  # noqa: E402

ALPHA, BETA = 0.5, 2.0


def operator(monkeypatch: pytest.MonkeyPatch, kind: str, **fixed: Any) -> tuple[types.ModuleType, Any]:
    """The module of a package whose operation is `fixed`, and that."""
    package = types.ModuleType("emitted_package")
    project = ROOT / "src/emit/project"
    sources: dict[str, Path] = {
        "_activations": ROOT / "python/cleave/torch/_activations.py",
        "_formula": project / f"pytorch_{kind}/package/_formula.py",
        "_operator": project / "pytorch/package/_operator.py",
    }
    modules = {name: types.ModuleType(f"emitted_package.{name}") for name in sources}
    package._operation = types.SimpleNamespace(**fixed)
    monkeypatch.setitem(sys.modules, "emitted_package", package)
    for name, path in sources.items():
        modules[name].__package__ = "emitted_package"
        exec(compile(path.read_text(), path, "exec"), modules[name].__dict__)
        setattr(package, name, modules[name])
    return modules["_operator"], package._operation


class Context:
    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = [x.detach() for x in tensors]


def check(module: Any, inputs: list[Any], result: Any) -> None:
    """`result` follows from the tensors among `inputs`."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    grad = torch.randn_like(result)
    expected = iter(torch.autograd.grad(result, tensors, grad))
    context = Context()
    module._save(context, tuple(inputs), {"alpha": ALPHA, "beta": BETA}, result)
    context.needs_input_grad = [isinstance(x, torch.Tensor) for x in inputs]
    for x, gradient in zip(inputs, module._backward(context, grad), strict=True):
        if isinstance(x, torch.Tensor):
            torch.testing.assert_close(gradient, next(expected), rtol=1e-4, atol=1e-4)
        else:
            assert gradient is None


def random(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.double, requires_grad=True)


def finish(x: Any, inputs: list[Any], bias: Any, has_c: bool, activation: str) -> Any:
    """The epilogue, whose tensors join the inputs."""
    x = ALPHA * x
    if bias is not None:
        inputs.append(bias)
        x = x + bias.view(-1, *[1] * (x.dim() - 2)) if x.dim() > 3 else x + bias
    if has_c:
        inputs.append(random(*x.shape))
        x = x + BETA * inputs[-1]
    return activate(TorchArrays("cpu"), activation, x)


@pytest.mark.parametrize(
    ("activation", "bias", "has_c"),
    itertools.product((*ELEMENTWISE, "swiglu"), ("none", "row", "column"), (False, True)),
)
def test_of_products(activation: str, bias: str, has_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, _ = operator(
        monkeypatch, "product", ACTIVATION=activation, BIAS=bias, HAS_BIAS=bias != "none", HAS_C=has_c, GROUPING="none"
    )
    inputs = [random(3, 8, 6), random(6, 10)]  # b serves the whole batch
    vector = {"none": None, "row": random(10), "column": random(8, 1)}[bias]
    check(module, inputs, finish(inputs[0] @ inputs[1], inputs, vector, has_c, activation))


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
        monkeypatch, "convolution", KIND=kind, ACTIVATION=activation, HAS_BIAS=has_bias,
        HAS_C=has_c, GROUPS=2, TAPS=(3, 3), STRIDE=(2, 1), DILATION=(1, 1),
        PADDING=(padding, padding), ORDER=torch.channels_last,
    )  # fmt: skip
    x, w = random(2, 4, 9, 8), random(6, 2, 3, 3)
    ends = [end for pair in reversed(fixed.PADDING) for end in pair]
    outputs = torch.nn.functional.conv2d(torch.nn.functional.pad(x, ends), w, stride=fixed.STRIDE, groups=2)
    y = random(*outputs.shape)
    inputs = {"fprop": [x, w], "dgrad": [tuple(x.shape), w, y], "wgrad": [x, y]}[kind]
    if kind != "fprop":
        by = x if kind == "dgrad" else w
        outputs = torch.autograd.grad(outputs, by, y, create_graph=True)[0]
    bias = random(outputs.shape[1]) if has_bias else None
    check(module, inputs, finish(outputs, inputs, bias, has_c, activation))
