"""The operator against PyTorch in float64, for sizes that it was planned for and others."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("needs PyTorch with CUDA, and a GPU", allow_module_level=True)

import operation
from operation import _operation as fixed

conv = getattr(operation, operation.__all__[0])
LARGER = [size + 2 * stride for size, stride in zip(fixed.PLANNED[1:], fixed.STRIDE, strict=True)]
SIZES = [fixed.PLANNED, (3, *LARGER)]
every_size = pytest.mark.parametrize("size", SIZES, ids=str)
# What the rounding of operands and of the result may cause, relative to the largest value.
TOLERANCE = {
    torch.float32: 2e-5 if fixed.IEEE else 2e-3,
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
    torch.int32: 0.0,
}
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.nn.functional.relu,
    "relu2": lambda x: torch.nn.functional.relu(x).square(),
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}


def values(*shape: int, dtype: torch.dtype = fixed.DTYPE) -> Tensor:
    if dtype.itemsize == 1 or dtype == torch.int32:
        x = torch.randint(-7, 8, shape, device="cuda")
    else:
        x = torch.randn(shape, device="cuda")
    return x.to(dtype).contiguous(memory_format=fixed.ORDER)


def convolve(x: Tensor, w: Tensor) -> Tensor:
    """As PyTorch has it."""
    ends = [end for padding in reversed(fixed.PADDING) for end in padding]
    function = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[len(fixed.TAPS)]
    options = {"stride": fixed.STRIDE, "dilation": fixed.DILATION, "groups": fixed.GROUPS}
    return function(torch.nn.functional.pad(x, ends), w, **options)


@dataclass
class Case:
    """Arguments of a call, the tensors among them, and the result in float64."""

    arguments: list
    result: Tensor

    @property
    def tensors(self) -> list[Tensor]:
        return [x for x in self.arguments if isinstance(x, Tensor)]

    def check(self, result: Tensor) -> None:
        assert result.shape == self.result.shape
        error = (result.double() - self.result).abs().max()
        assert error <= TOLERANCE[result.dtype] * self.result.abs().max()


def make(images: int, *size: int, requires_grad: bool = False) -> Case:
    x = values(images, fixed.CHANNELS, *size)
    w = values(fixed.FILTERS, fixed.CHANNELS // fixed.GROUPS, *fixed.TAPS)
    real_x, real_w = x.double().requires_grad_(), w.double().requires_grad_()
    made = convolve(real_x, real_w)
    y = values(*made.shape)
    if fixed.KIND == "fprop":
        arguments, result = [x, w], made.detach()
    elif fixed.KIND == "dgrad":
        arguments = [tuple(x.shape), w, y]
        result = torch.autograd.grad(made, real_x, y.double())[0]
    else:
        arguments = [x, y]
        result = torch.autograd.grad(made, real_w, y.double())[0]
    if fixed.HAS_BIAS:
        bias = torch.randn(result.shape[1], device="cuda").to(fixed.BIAS_DTYPE)
        arguments.append(bias)
        result = result + bias.double().view(-1, *[1] * len(size))
    if fixed.HAS_C:
        c = values(*result.shape, dtype=fixed.C_DTYPE)
        arguments.append(c)
        result = result + c.double()
    case = Case(arguments, ACTIVATIONS[fixed.ACTIVATION](result))
    for tensor in case.tensors if requires_grad else ():
        tensor.requires_grad_()
    return case


@every_size
def test_result_on_a_side_stream(size: tuple[int, ...]) -> None:
    case = make(*size)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        result = conv(*case.arguments)
        out = conv(*case.arguments, out=torch.zeros_like(result))
    torch.cuda.synchronize()
    case.check(result)
    case.check(out)


@every_size
def test_graph(size: tuple[int, ...]) -> None:
    case = make(*size)
    conv(*case.arguments)  # loads the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = conv(*case.arguments)
    for _ in range(3):
        result.zero_()
        graph.replay()
        case.check(result)


def test_compiled_as_one_graph() -> None:
    case = make(*fixed.PLANNED)
    compiled = torch.compile(conv, fullgraph=True)
    case.check(compiled(*case.arguments))


if fixed.DIFFERENTIABLE and fixed.ACTIVATION == "none":

    @every_size
    def test_gradients(size: tuple[int, ...]) -> None:
        case = make(*size, requires_grad=True)
        result = conv(*case.arguments)
        grad = torch.randn_like(result)
        got = torch.autograd.grad(result, case.tensors, grad)
        # It is linear in each of its tensors: <gradient, x> is what x adds to <result, grad>.
        for x, gradient in zip(case.tensors, got, strict=True):
            changed = torch.randn_like(x)
            with torch.no_grad():
                arguments = [changed if a is x else a for a in case.arguments]
                nothing = [torch.zeros_like(x) if a is x else a for a in case.arguments]
                difference = conv(*arguments).double() - conv(*nothing).double()
            expected = (difference * grad.double()).sum()
            size_of_terms = (difference * grad.double()).norm() + 1
            assert (gradient.double() * changed.double()).sum().item() == pytest.approx(
                expected.item(), abs=0.1 * size_of_terms.item()
            )


def test_autograd_hears_of_what_is_written() -> None:
    case = make(*fixed.PLANNED)
    out = torch.zeros_like(conv(*case.arguments))
    version = out._version
    conv(*case.arguments, out=out)
    assert out._version > version
    if out.is_floating_point():
        with pytest.raises(ValueError, match="out requires grad"):
            conv(*case.arguments, out=out.requires_grad_())


def test_refusals() -> None:
    case = make(*fixed.PLANNED)
    first = case.tensors[0]
    with pytest.raises(ValueError, match="must be"):
        conv(*[first.double() if x is first else x for x in case.arguments])
    with pytest.raises(ValueError, match="must"):
        conv(*[first[:, :-1] if x is first else x for x in case.arguments])
