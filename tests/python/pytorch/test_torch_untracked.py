"""Operators with gradients, called where none is recorded: nothing of Python's autograd runs, and nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import cleave

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

ops = torch.ops.cleave
IDS = torch.tensor([[0, 1], [1, 0], [0, 1]], dtype=torch.int32)
ROWS = torch.tensor([2, 6], dtype=torch.int32)
CALLS: dict[str, Callable[[Any], Any]] = {
    "gemm": lambda x: ops.gemm(x, x.t()),
    "gemm.default": lambda x: ops.gemm.default(x, x.t()),
    "grouped_gemm": lambda x: ops.grouped_gemm(x, x.new_ones(2, 4, 8), ROWS),
    "grouped_gemm.full": lambda x: ops.grouped_gemm.full(x, x.new_ones(2, 4, 8), ROWS, activation="relu"),
    "conv": lambda x: ops.conv(x.view(1, 2, 2, 6).permute(0, 3, 1, 2), x.new_ones(4, 6, 1, 1)),
    "moe_gather": lambda x: ops.moe_gather(x[:3], ops.moe_sort_tokens(IDS, 2)[1]),
}


def python_functions(call: Callable[[], Any]) -> set[str]:
    """The files of those that run."""
    found: set[str] = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: found.add(frame.f_code.co_filename))
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("name", CALLS)
def test_autograd_is_left_out_and_only_then(name: str) -> None:
    call, x = CALLS[name], torch.arange(24.0).view(6, 4) / 24
    expected = call(x)
    tracked = x.clone().requires_grad_()
    with torch.no_grad():
        quiet = call(tracked)
    assert torch.equal(quiet, expected) and not quiet.requires_grad
    recorded = call(tracked)
    assert torch.equal(recorded, expected) and recorded.requires_grad
    (grad,) = torch.autograd.grad(recorded.sum(), tracked)
    assert grad.shape == x.shape and grad.abs().sum() > 0

    def no_grad() -> None:
        with torch.no_grad():
            call(tracked)

    def of_autograd(files: set[str]) -> bool:
        return any(file.endswith("torch/_library/autograd.py") for file in files)

    assert not of_autograd(python_functions(lambda: call(x))) and not of_autograd(python_functions(no_grad))
    assert of_autograd(python_functions(lambda: call(tracked)))


def test_what_requires_grad_by_name_is_recorded() -> None:
    x, bias = torch.ones(2, 3), torch.zeros(4, requires_grad=True)
    for operator in (ops.gemm, ops.gemm.default):
        (grad,) = torch.autograd.grad(operator(x, torch.ones(3, 4), bias=bias).sum(), bias)
        assert torch.equal(grad, torch.full((4,), 2.0))


def test_tensors_in_a_list_are_recorded() -> None:
    """Inputs of an epilogue function."""

    @cleave.epilogue
    def scaled(acc, s: cleave.row):
        return acc * s

    s = torch.ones(4, requires_grad=True)
    d = cleave.torch.gemm(torch.ones(2, 3), torch.ones(3, 4), epilogue=scaled(s=s))
    (grad,) = torch.autograd.grad(d.sum(), s)
    assert torch.equal(grad, torch.full((4,), 6.0))


def test_packets_and_overloads_are_torchs() -> None:
    """By whose classes torch.compile, export and Inductor know operators."""
    assert isinstance(ops.gemm, torch._ops.OpOverloadPacket) and type(ops.gemm.default) is torch._ops.OpOverload
    assert ops.gemm.default.overloadpacket is ops.gemm and ops.gemm.overloads()[0] == "default"
