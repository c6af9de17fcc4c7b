"""Operators with gradients, called where none is recorded.

What torch.library registers for autograd is a function in Python, through which every call goes, with all of its
arguments there and back: 9 us of a product's 14. Where no gradient is recorded it only leaves autograd out. So that is
done here instead, before torch's dispatcher is asked; all else (autocast, modes, subclasses, fakes) is the
dispatcher's, as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverloadPacket

from .transforms import Rule, is_transformed, transformed

_any_requires_grad = torch._C._any_requires_grad
_below_autograd = torch._C._AutoDispatchBelowAutograd
_is_grad_enabled = torch.is_grad_enabled


def register_autograd(
    name: str, backward: Callable[..., Any], *, setup_context: Callable[..., Any], vmap: Rule | None = None
) -> None:
    """torch.library's, for "cleave::name" or "cleave::name.overload", and torch.func's."""
    torch.library.register_autograd(name, backward, setup_context=setup_context)
    operation, _, overload = name.removeprefix("cleave::").partition(".")
    packet = getattr(torch.ops.cleave, operation)
    packet.__class__, packet._in_transforms = _Packet, partial(_call_overload, packet)
    # Some parts of torch take no other class for an overload.
    operator = getattr(packet, overload or "default")
    function = operator._op
    operator._op = partial(_call, function, transformed(operator, function, backward, setup_context, vmap))


def _call(function: Callable[..., Any], in_transforms: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if is_transformed():
        return in_transforms(*args, **kwargs)
    if _is_grad_enabled() and _any_requires_grad(*args, **kwargs):
        return function(*args, **kwargs)
    with _below_autograd():
        return function(*args, **kwargs)


class _Packet(OpOverloadPacket):
    """An operator without an overload's name. torch.jit finds it by the function that it calls, which stays."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return _call(self._op, self._in_transforms, *args, **kwargs)


def _call_overload(packet: OpOverloadPacket, /, *args: Any, **kwargs: Any) -> Any:
    name = torch._C._jit_resolve_packet(packet._qualified_op_name, *args, **kwargs)
    return getattr(packet, name or "default")(*args, **kwargs)
