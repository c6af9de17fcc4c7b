"""The libraries that Cleave is measured against, each where it can be imported.

A peer is a module of this package with a NAME and `bind(case, operands)`, which returns a function
that enqueues the product on torch's current stream, or None if the library has no such product.
Importing the module imports the library.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def available() -> tuple[list[ModuleType], dict[str, str]]:
    """The peers that can be imported, the yardstick first, and why the others cannot."""
    found, missing = [], {}
    for info in pkgutil.iter_modules(__path__):
        try:
            found.append(importlib.import_module(f"{__name__}.{info.name}"))
        except ImportError as error:
            missing[info.name] = str(error)
    return sorted(found, key=lambda peer: peer.NAME != "cublas"), missing
