"""What a library has and a module of ours has not: its names, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn


def refusing(module: str, reasons: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The module's __getattr__: an AttributeError that says why, so that hasattr is False."""

    def refuse(name: str) -> NoReturn:
        if name in reasons:
            raise AttributeError(f"{module}.{name} is not served: {reasons[name]}", name=name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)

    return refuse
