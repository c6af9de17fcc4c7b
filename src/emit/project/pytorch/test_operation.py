"""The operator against PyTorch in float64, for sizes that it was planned for and others."""

from __future__ import annotations

import pytest
import torch
from expected_operation import TOLERANCE, fixed, operator, within
from operands_operation import GRADIENT_ROUNDING, INNER, INNER_STEP, SIZES, make
from torch import Tensor

every_size = pytest.mark.parametrize("size", SIZES, ids=str)


def results_of(made: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    """Without the largest magnitude."""
    results = list(made) if isinstance(made, tuple) else [made]
    return results[:-1] if fixed.HAS_AMAX else results


def as_out(results: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
    return tuple(results) if len(results) > 1 else results[0]


@every_size
def test_result_on_a_side_stream(size: tuple[int, ...]) -> None:
    case = make(*size)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        made = operator(*case.arguments)
        new = as_out([torch.zeros_like(x) for x in results_of(made)])
        out = results_of(operator(*case.arguments, out=new))
    torch.cuda.synchronize()
    case.check(results_of(made))
    case.check(out)
    if case.amax is not None:
        assert made[-1].item() == pytest.approx(case.amax.item(), rel=1e-2)


@every_size
def test_graph(size: tuple[int, ...]) -> None:
    case = make(*size)
    operator(*case.arguments)  # loads the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = results_of(operator(*case.arguments))
    for _ in range(3):
        for result in results:
            result.zero_()
        graph.replay()
        case.check(results)


def test_compiled_as_one_graph() -> None:
    case = make(*SIZES[0])
    compiled = torch.compile(operator, fullgraph=True)
    case.check(results_of(compiled(*case.arguments)))


if fixed.DIFFERENTIABLE:

    @every_size
    def test_gradients(size: tuple[int, ...]) -> None:
        case = make(*size, requires_grad=True)
        results = results_of(operator(*case.arguments))
        tracked = [i for i, x in enumerate(results) if x.requires_grad and case.finished.results[i].requires_grad]
        made, expected = ([x[i] for i in tracked] for x in (results, case.finished.results))
        smooth = [case.finished.smooth if case.finished.shapes[i] == "matrix" else 1 for i in tracked]
        grads = [torch.randn_like(x) * part for x, part in zip(made, smooth, strict=True)]
        tensors = [x for x in case.tensors if x.requires_grad]
        options = {"allow_unused": True, "materialize_grads": True}
        known = torch.autograd.grad(expected, tensors, [x.double() for x in grads], **options)
        for x, y in zip(torch.autograd.grad(made, tensors, grads, **options), known, strict=True):
            assert within(x, y, max(2 * TOLERANCE[x.dtype], GRADIENT_ROUNDING))


def test_autograd_hears_of_what_is_written() -> None:
    case = make(*SIZES[0])
    new = [torch.zeros_like(x) for x in results_of(operator(*case.arguments))]
    versions = [x._version for x in new]
    operator(*case.arguments, out=as_out(new))
    assert all(x._version > version for x, version in zip(new, versions, strict=True))
    if new[0].is_floating_point():
        new[0].requires_grad_()
        with pytest.raises(ValueError, match="out requires grad"):
            operator(*case.arguments, out=as_out(new))


def test_refusals() -> None:
    case = make(*SIZES[0])
    first, *_ = case.tensors
    narrower = first.narrow(INNER, 0, max(first.shape[INNER] - INNER_STEP, 0))
    for other in (first.double(), narrower):
        with pytest.raises(ValueError, match="must"):
            operator(*[other if x is first else x for x in case.arguments])
