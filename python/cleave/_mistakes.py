"""What was meant by a keyword that a function has not: a call that failed is looked at again."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from . import _core


def explain(*scopes: ModuleType | type) -> None:
    """Makes what is public in modules, and in classes, say which keyword was meant."""
    for scope in scopes:
        for name, held in [*vars(scope).items()]:
            found = getattr(held, "__func__", held)  # of a classmethod
            if isinstance(scope, ModuleType) and name not in getattr(scope, "__all__", ()):
                continue
            if isinstance(scope, type) and name.startswith("_") and name != "__init__":
                continue
            if isinstance(found, type):
                explain(found)
            elif _is_native(found) or _needs_help(found):
                explain_function(found)
                if _IS_ENTERED_PAST_IT and isinstance(found, FunctionType) and name != "__init__":
                    entered = _entered(found)
                    setattr(scope, name, entered if held is found else type(held)(entered))


def explain_function(function: Callable[..., Any]) -> None:
    _core.explain_mistakes(function, function.__qualname__, parameters_of(function))


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """The names of its parameters, those first that may be passed by position."""
    if isinstance(function, FunctionType):
        return list(inspect.signature(function).parameters)
    declaration = function.__nb_signature__[0][0]
    names = re.findall(r"(\w+): ", declaration)
    return ["self", *names] if "(self" in declaration else names


def takes_any_keyword(function: FunctionType) -> bool:
    return any(each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values())


# 3.11 enters functions of Python past what is set here, unless the call spells its arguments with * and **.
_IS_ENTERED_PAST_IT = sys.version_info[:2] == (3, 11)


def _entered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called so that it is entered by what is set here."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # Code of its own: torch.compile counts what it makes of one, and gives up after a few.
    call.__code__ = call.__code__.replace(co_name=function.__qualname__)
    return call


def _is_native(function: Any) -> bool:
    return type(function).__name__ in ("nb_func", "nb_method")


def _needs_help(function: Any) -> bool:
    """From 3.13 on, Python says by itself what was meant. A function that another module has, too, is helped once."""
    if not isinstance(function, FunctionType) or sys.version_info >= (3, 13):
        return False
    return function.__code__.co_filename != __file__ and not takes_any_keyword(function)
