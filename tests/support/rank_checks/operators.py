"""What torch sees of products over ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import cleave.distributed as cd
from cleave.distributed import _operators

from .ranks import Ranks, same_bits

ops = torch.ops.cleave


def operands_are_cast_under_autocast(ranks: Ranks) -> None:
    """As those of one rank's products are; calls past torch's dispatcher, too."""
    a, b, bias = ranks.draw(8, 16), ranks.draw(16, 24).bfloat16(), ranks.draw(24)
    for multiply in (cd.gemm_all_reduce, cd.gemm_reduce_scatter, cd.all_gather_gemm):
        for grads in (False, True):
            with torch.set_grad_enabled(grads), torch.autocast(ranks.device, torch.bfloat16):
                made = multiply(a.detach().requires_grad_(grads), b, bias=bias)
            assert same_bits(made, multiply(a.bfloat16(), b, bias=bias)) and made.requires_grad == grads


def compiled_calls_are_eager_ones(ranks: Ranks) -> None:
    """In one graph, with their backward."""
    x, w1, w2 = ranks.draw(8, 48), ranks.draw(48, 60), ranks.draw(60, 48)

    def block(a: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return cd.gemm_reduce_scatter(cd.all_gather_gemm(a, up, activation="silu"), down)

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    made = []
    for function in (block, compiled):
        given = [t.detach().clone().requires_grad_() for t in (x, w1, w2)]
        y = function(*given)
        made.append([y, *torch.autograd.grad(y, given, torch.ones_like(y))])
    assert all(same_bits(y, z) for y, z in zip(*made, strict=True))


def who_watches_sees_operators(ranks: Ranks) -> None:
    """Others get the same bits without them."""

    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
            seen.append(function.name())
            return function(*arguments, **(options or {}))

    a, b = ranks.draw(8, 16), ranks.draw(16, 24)
    bias, q = ranks.draw(24), ops.quantize(ranks.draw(8, 16), torch.int8)[0]
    one = torch.ones(1, device=ranks.device)
    calls: list[Callable[[], Any]] = [
        lambda: cd.gemm_all_reduce(a, b, bias=bias),
        lambda: cd.gemm_reduce_scatter(a, b),
        lambda: cd.all_gather_gemm(a, b, bias=bias),
        lambda: cd.scaled_gemm_all_reduce(q, q.t(), one, one),
        lambda: cd.scaled_gemm_reduce_scatter(q, q.t(), one, one),
        lambda: cd.all_gather_scaled_gemm(q, q.t(), one, one),
    ]
    for call in calls:
        made = call()
        with Watch():
            assert same_bits(call(), made)
        assert sum("reduce" in name or "gather" in name for name in seen) == 1, seen
        seen.clear()
    with torch.profiler.profile() as profile:
        calls[0]()
    assert any(event.key == "cleave::gemm_all_reduce" for event in profile.key_averages())
    a.requires_grad_()
    assert cd.gemm_all_reduce(a, b).requires_grad
    with torch.no_grad():
        assert not cd.gemm_all_reduce(a, b).requires_grad


def operators_are_as_they_say(ranks: Ranks) -> None:
    """torch's own look at schemas and shapes."""
    group, (m, k) = dist.group.WORLD.group_name, (7, 16)
    a, b = ranks.draw(m, k), ranks.draw(k, 24)
    q, v = ops.quantize(a, torch.int8)[0], ops.quantize(b, torch.int8)[0]
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (ops.gemm_all_reduce, (a, b, group), {"out_dtype": torch.bfloat16}),
        (ops.gemm_reduce_scatter, (a, b, group), {"activation": "swiglu"}),
        (ops.all_gather_gemm, (a, b, group), {}),
        (ops.all_gather_rows, (a, group), {}),
        (ops.all_reduce_rows, (a, group, a[0]), {}),
        (ops.reduce_scatter_rows, (a, group), {}),
        (ops.scaled_gemm_all_reduce, (q, v, None, None, group), {}),
        (ops.scaled_gemm_reduce_scatter, (q, v, None, None, group), {"out_dtype": torch.float16}),
        (ops.all_gather_scaled_gemm, (q, v, None, None, group), {}),
    ]
    assert {op._qualified_op_name.removeprefix("cleave::") for op, _, _ in calls} == _operators.SCHEMAS.keys()
    for op, arguments, options in calls:
        torch.library.opcheck(op, arguments, options, test_utils=("test_schema", "test_faketensor"))


CHECKS = (
    operands_are_cast_under_autocast,
    compiled_calls_are_eager_ones,
    who_watches_sees_operators,
    operators_are_as_they_say,
)
