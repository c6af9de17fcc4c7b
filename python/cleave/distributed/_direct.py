"""Calls that nobody watches: what an operator does without the way to it, which takes the host some 30 us in Python,
longer than all else that it does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode
from torch.utils._python_dispatch import _get_current_dispatch_mode

from . import _operators

_PLAIN = (Tensor, nn.Parameter)


def call(name: str, *arguments: Any, only: dict[str, Any] | None = None, **options: Any) -> Any:
    """torch.ops.cleave's operator of that name, or, where it makes no difference, its implementation at once.

    It makes one to gradients, to torch.compile, export and fakes, to modes, subclasses and transforms, and to the
    profiler. Options go by the operator, whose schema says what they may be. only: what the implementation alone is
    told.
    """
    if options or torch.compiler.is_compiling() or _is_watched(arguments):
        return getattr(torch.ops.cleave, name)(*arguments, **options)
    return _operators.IMPLEMENTATIONS[name](*arguments, **(only or {}))


def _is_watched(arguments: tuple[Any, ...]) -> bool:
    records = torch.is_grad_enabled()
    for x in arguments:
        if x is None or type(x) is str:
            continue
        if type(x) not in _PLAIN or (records and x.requires_grad) or not (x.is_cuda or x.is_cpu):
            return True
    return (
        _get_current_dispatch_mode() is not None
        or _get_current_function_mode() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd._profiler_enabled()
    )
