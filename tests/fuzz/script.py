"""A call as a script that shows it: it needs cleave and torch alone."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from . import values
from .operand import Operand
from .problem import Problem
from .trial import call_of


def script(problem: Problem, complaint: str, device: str) -> str:
    """What to paste into a Python interpreter."""
    call = call_of(problem, torch.device(device))
    source = inspect.getsource(values).split('"""', 2)[2]
    lines = [
        f'"""cleave.{call.function}', "", complaint, '"""',
        source.strip(), "", "", "import cleave", "", f'device = "{device}"', "",
    ]  # fmt: skip
    for x in call.operands:
        lines.append(_array(x))
    lines += ["", f"result = cleave.{call.function}("]
    lines += [f"    {name}={_value(x)}," for name, x in call.keywords.items()]
    lines += [")", "torch.set_printoptions(linewidth=120)"]
    shown = [x.name for x in call.operands if x.is_output] or ["result"]
    lines += [f"print({name})" for name in shown]
    return "\n".join(lines).replace("from __future__ import annotations\n\n", "")


def _array(x: Operand) -> str:
    if x.literal is not None:
        of = f"torch.tensor({list(x.literal)}, dtype={x.dtype}, device=device)"
        contents = f"{of}.reshape({x.shape})"
    elif x.contents is not None:
        kind, limit, seed = x.contents
        contents = f"values({x.shape}, {x.dtype}, {kind!r}, {limit}, {seed}, device)"
        if x.kept is not None:
            contents = f"only({contents}, {x.kept[0]}, {x.kept[1]})"
    else:
        contents = "None"
    guard = "float('nan')" if x.guard != x.guard else repr(x.guard)
    buffer = f"buffer_of({x.length()}, {x.offset}, {x.shape}, {x.strides}, {x.dtype}, {guard}, {contents}, device)"
    return f"{x.name} = {buffer}.as_strided({x.shape}, {x.strides}, {x.offset})"


def _value(x: Any) -> str:
    return x.name if isinstance(x, Operand) else repr(x)
