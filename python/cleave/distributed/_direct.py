"""Calls that nobody watches: what an operator does without the way to it, which takes the host some 30 us in Python,
longer than all else that it does."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import Any

import torch
from torch import Tensor, is_grad_enabled, nn
from torch._C import _is_any_autocast_enabled, _len_torch_dispatch_stack, _len_torch_function_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import _profiler_enabled
from torch.compiler import is_compiling

from . import _operators
from ._peers import known_peers

_PLAIN_OPTIONS = (str, torch.dtype, bool, int, type(None))


def call(name: str, *arguments: Any, only: dict[str, Any] | None = None, **options: Any) -> Any:
    """torch.ops.cleave's operator of that name, or, where it makes no difference, its implementation at once.

    It makes one to gradients, to torch.compile, export and fakes, to modes, subclasses and transforms, to autocast and
    the profiler. Options that the schema does not have, and tensors among them, go by the operator, too. only: what the
    implementation alone is told.
    """
    if is_watched(arguments) or (options and not are_plain(name, options)):
        if options and not is_compiling():
            _check_names(name, options)
        return getattr(torch.ops.cleave, name)(*arguments, **options)
    if only:
        options |= only
    return _operators.IMPLEMENTATIONS[name](*arguments, **options)


def known_sum(
    name: str,
    group: Any,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    bias: Tensor | None = None,
    c: Tensor | None = None,
) -> Tensor | None:
    """The shortest way, of a sum over ranks without options that was made before and that nobody watches; else None."""
    if is_watched((a, b, scale_a, scale_b, bias, c)) or (peers := known_peers(group, name)) is None:
        return None
    given = a, b, scale_a, scale_b, bias, c, None
    return peers.forms.sums.run(*given, "none", None, None, "rank", "auto", "auto", None, None, False)


def known_gather(
    name: str,
    group: Any,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor | None] | None:
    """The same of a product of gathered rows, of which nobody wants the rows."""
    if is_watched((a, b, scale_a, scale_b, bias)) or (peers := known_peers(group, name)) is None:
        return None
    return peers.forms.gathers.run(a, b, scale_a, scale_b, bias, None, "none", None, "auto", None, False, False)


def are_plain(name: str, options: dict[str, Any]) -> bool:
    return all(option in _options_of(name) and type(x) in _PLAIN_OPTIONS for option, x in options.items())


def _check_names(name: str, options: dict[str, Any]) -> None:
    arguments = [argument.name for argument in getattr(torch.ops.cleave, name).default._schema.arguments]
    for option in options.keys() - set(arguments):
        names = ["group" if argument == "group_name" else argument for argument in arguments]
        close = get_close_matches(option, names, 1)
        meant = f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(names)}"
        raise TypeError(f"{name}() got an unexpected keyword argument {option!r}. {meant}")


@cache
def _options_of(name: str) -> frozenset[str]:
    schema = getattr(torch.ops.cleave, name).default._schema
    return frozenset(argument.name for argument in schema.arguments if argument.kwarg_only)


def is_watched(arguments: tuple[Any, ...]) -> bool:
    """Whether it makes a difference."""
    if is_compiling():
        return True
    records = is_grad_enabled()
    for x in arguments:
        if x is None:
            continue
        kind = type(x)
        if kind is Tensor or kind is nn.Parameter:
            if (records and x.requires_grad) or not (x.is_cuda or x.is_cpu):
                return True
        elif kind is not str:
            return True
    return (
        _len_torch_dispatch_stack() > 0
        or _len_torch_function_stack() > 0
        or peek_interpreter_stack() is not None
        or _profiler_enabled()
        or _is_any_autocast_enabled()
    )
