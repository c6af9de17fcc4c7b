"""Operands that no product is made of, by the names that a function has for them: a call that failed is looked at
again, so that others pay nothing for it."""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from .. import _mistakes

# Parameters that are tensors, or pairs of them, wherever they stand.
OPERANDS = {
    "a", "b", "c", "d", "x", "sf", "out", "input", "mat2", "mat_a", "mat_b", "bias", "scale", "azp", "azp_adj",
    "scale_a", "scale_b", "scales_a", "scales_b", "a_scale", "b_scale", "offs", "m_indptr", "grouped_layout",
    "masked_m", "output", "out_q", "output_q", "output_s", "result", "weight", "residual", "scores",
    "gating_output", "topk_weights", "topk_ids", "token_expert_indices", "correction_bias",
    "e_score_correction_bias",
}  # fmt: skip


def explain(*modules: ModuleType) -> None:
    """Makes what is public in modules name an argument that is no tensor, TypeError, or has no such shape, ValueError;
    and say which keyword was meant."""
    for module in modules:
        for name in module.__all__:
            setattr(module, name, _explained(getattr(module, name)))


def needed(name: str, operand: Any) -> Any:
    """The operand, where None would be taken for one that is left out."""
    if operand is None:
        raise TypeError(f"{name} is None; it must be a tensor: pass one")
    return operand


def _explained(function: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(function).parameters
    _mistakes.explain_function(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            given = dict(zip(parameters, args, strict=False)) | kwargs
            shapes = []
            for name, operand in _tensors(given, parameters):
                if isinstance(error, TypeError) and str(error).startswith(f"{name} is "):
                    raise  # by needed or pair, which know more
                if not hasattr(operand, "shape"):
                    raise TypeError(
                        f"{name} of {function.__name__} is {reprlib.repr(operand)}, a {type(operand).__name__}; it "
                        "must be a tensor, or an array with a tensor's methods: torch.as_tensor makes one"
                    ) from error
                shapes.append(f"{name} is {tuple(operand.shape)}")
            if type(error) in (IndexError, RuntimeError):  # not CudaError, nor torch's for memory and devices
                raise ValueError(
                    f"{', '.join(shapes)}, which {function.__name__} cannot take: {error}. Pass the shapes that its "
                    "documentation names"
                ) from error
            raise

    # Code of its own: torch.compile counts what it makes of one, and gives up after a few.
    call.__code__ = call.__code__.replace(co_name=function.__qualname__)
    return call


def _tensors(given: dict[str, Any], parameters: Any) -> Iterator[tuple[str, Any]]:
    """What must be tensors of the operands that were given, and of the pairs among them. None may be a default."""
    for name, operand in given.items():
        if name not in OPERANDS or name not in parameters or (operand is None and parameters[name].default is None):
            continue
        if isinstance(operand, tuple | list) and len(operand) == 2:
            yield from ((f"{name}[{i}]", part) for i, part in enumerate(operand))
        else:
            yield name, operand
