"""Whether the arguments that an error message advises to pass are arguments of the call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any


def check(message: str, call: Callable[..., Any]) -> None:
    """Every `name=` of a refusal is an argument's, but for those of other calls that it spells out,
    as x.contiguous(memory_format=...). nanobind's own refusals quote signatures.
    """
    if "incompatible function arguments" in message:
        return
    advice = re.sub(r"\.\w+\([^)]*\)", "", message)
    named = set(re.findall(r"\b([a-z_]+)=(?=[\w\"'(])", advice))
    assert named <= arguments_of(call), message


def arguments_of(call: Callable[..., Any]) -> set[str]:
    """Those of a function of Python or of nanobind, or of all overloads of an operator of torch."""
    if hasattr(call, "overloads"):
        forms = (getattr(call, name) for name in call.overloads())
        return {argument.name for form in forms for argument in form._schema.arguments}
    signatures = getattr(call, "__nb_signature__", None)
    if signatures is None:
        return set(inspect.signature(call).parameters)
    return {name for form in signatures for name in re.findall(r"(\w+): ", form[0])}
