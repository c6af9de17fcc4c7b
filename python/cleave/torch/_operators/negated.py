"""`out` forms and lazily negated tensors (`z.conj().imag`), whose sign is a bit beside the data.

torch resolves such arguments of an operator, and writes what it returns back to those that it
changes; `out` forms return nothing, so that torch would fail in words that name no argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("cleave", "IMPL")  # registrations live as long as it does


def refuse(op: Any) -> None:
    """Refuses negated operands of the operator `op`, an `out` form."""
    _LIBRARY.impl(f"{op._schema.name}.out", _refusal(op), "Negative")


def _refusal(op: Any) -> Callable[..., None]:
    names = [argument.name for argument in op._schema.arguments]

    def refuse(*arguments: Any, **options: Any) -> None:
        for name, x in (*zip(names, arguments, strict=False), *options.items()):
            if isinstance(x, torch.Tensor) and x.is_neg():
                raise RuntimeError(
                    f"{name} is a lazily negated view, whose data have the other sign; pass {name}.resolve_neg()"
                )

    return refuse
