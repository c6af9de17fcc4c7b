"""The operator against PyTorch in float64, for sizes that it was planned for and others."""

from __future__ import annotations

import pytest
import torch
from expected_operation import TOLERANCE, fixed, operator, within
from operands_operation import GRADIENT_ROUNDING, INNER, SIZES, make
from torch import Tensor

every_size = pytest.mark.parametrize("size", SIZES, ids=str)


def result_of(made: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    return made[0] if isinstance(made, tuple) else made


@every_size
def test_result_on_a_side_stream(size: tuple[int, ...]) -> None:
    case = make(*size)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        made = operator(*case.arguments)
        out = result_of(operator(*case.arguments, out=torch.zeros_like(result_of(made))))
    torch.cuda.synchronize()
    case.check(result_of(made))
    case.check(out)
    if case.amax is not None:
        assert made[1].item() == pytest.approx(case.amax.item(), rel=1e-2)


@every_size
def test_graph(size: tuple[int, ...]) -> None:
    case = make(*size)
    operator(*case.arguments)  # loads the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = result_of(operator(*case.arguments))
    for _ in range(3):
        result.zero_()
        graph.replay()
        case.check(result)


def test_compiled_as_one_graph() -> None:
    case = make(*SIZES[0])
    compiled = torch.compile(operator, fullgraph=True)
    case.check(result_of(compiled(*case.arguments)))


if fixed.DIFFERENTIABLE:

    @every_size
    def test_gradients(size: tuple[int, ...]) -> None:
        case = make(*size, requires_grad=True)
        result = operator(*case.arguments)
        grad = torch.randn_like(result)
        if fixed.ACTIVATION == "relu":
            # Where sums are nearly 0, rounding decides whether relu lets the gradient pass.
            grad = grad * (case.result > TOLERANCE[result.dtype])
        expected = torch.autograd.grad(case.result, case.tensors, grad.double())
        for x, y in zip(torch.autograd.grad(result, case.tensors, grad), expected, strict=True):
            assert within(x, y, max(2 * TOLERANCE[x.dtype], GRADIENT_ROUNDING))


def test_autograd_hears_of_what_is_written() -> None:
    case = make(*SIZES[0])
    out = torch.zeros_like(result_of(operator(*case.arguments)))
    version = out._version
    operator(*case.arguments, out=out)
    assert out._version > version
    if out.is_floating_point():
        with pytest.raises(ValueError, match="out requires grad"):
            operator(*case.arguments, out=out.requires_grad_())


def test_refusals() -> None:
    case = make(*SIZES[0])
    first, *_ = case.tensors
    for other in (first.double(), first.narrow(INNER, 0, first.shape[INNER] - 1)):
        with pytest.raises(ValueError, match="must"):
            operator(*[other if x is first else x for x in case.arguments])
