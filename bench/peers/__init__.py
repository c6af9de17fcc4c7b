"""The libraries that Cleave is measured against, each where it can be imported.

A peer is a module of this package; importing it imports the library. It has two functions:

serves(case)           the case itself if the library computes it, another that is the nearest it
                       has (the report names it), or None
calls(case, operands)  of a case that it serves, functions that enqueue it on torch's current
                       stream, by what a user would call; the first leaves the result in operands
"""

from __future__ import annotations

import importlib
import pkgutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Peer:
    name: str
    serves: Callable[[Any], Any]
    calls: Callable[[Any, Any], dict[str, Callable[[], object]]]


def reason(error: BaseException) -> str:
    """What a library says when it refuses, on one line."""
    return textwrap.shorten(str(error), 200) or type(error).__name__


def names() -> list[str]:
    return sorted(info.name for info in pkgutil.iter_modules(__path__))


def load(wanted: Sequence[str]) -> tuple[list[Peer], dict[str, str]]:
    """Those of the peers that can be imported, and why the others cannot."""
    found, missing = [], {}
    for name in wanted:
        try:
            module = importlib.import_module(f"{__name__}.{name}")
        except (ImportError, OSError) as error:  # OSError: built for another torch
            missing[name] = reason(error)
        else:
            found.append(Peer(name, module.serves, module.calls))
    return found, missing
