"""Experts as transformers keeps them: a module with parameters gate_up_proj and down_proj of three dimensions."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import torch
from torch import nn

from ..gate import SWIGLU, Gate

STACKED = ("gate_up_proj", "down_proj")


def are_experts(module: nn.Module) -> bool:
    return all(_dimensions(module, name) == 3 for name in STACKED)


def _dimensions(module: nn.Module, name: str) -> int:
    parameter = module._parameters.get(name)
    return 0 if parameter is None else parameter.dim()


class Sizes(NamedTuple):
    experts: int
    features: int
    hidden: int


def sizes_of(experts: Any) -> Sizes:
    count, *sizes = experts.down_proj.shape
    hidden, features = sizes if is_transposed(experts) else reversed(sizes)
    return Sizes(count, features, hidden)


def is_transposed(experts: Any) -> bool:
    """Whether its weights are [experts, inputs, outputs]."""
    return getattr(experts, "is_transposed", False)


def has_bias(experts: Any) -> bool:
    return getattr(experts, "has_bias", False)


def is_interleaved(experts: Any) -> bool:
    """Whether each gate is followed by its up; else all gates come before all ups."""
    return not getattr(experts, "is_concatenated", True)


def is_swiglu(experts: Any) -> bool:
    """Whether what comes between the two products is silu(gate) * up, the gates before the ups: by names alone, so
    that torch.compile may trace it."""
    gate = getattr(experts, "_apply_gate", None)
    activation = getattr(experts, "act_fn", None)
    return (
        (gate is None or gate.__name__ == "_default_apply_gate")
        and (activation is nn.functional.silu or type(activation).__name__ in ("SiLU", "SiLUActivation"))
        and not is_interleaved(experts)
    )


# What transformers' modules call a gate's numbers.
_ALPHAS, _LIMITS = ("alpha", "swiglu_alpha"), ("limit", "swiglu_limit")


def gate_of(experts: Any) -> Gate | None:
    """What comes between the two products; None for what no `Gate` is.

    A module's own `_apply_gate` is told by what it makes of gates and ups on either side of the limit.
    """
    if is_swiglu(experts):
        return SWIGLU
    own = getattr(experts, "_apply_gate", None)
    if own is None:
        return None
    alpha, limit = _number(experts, _ALPHAS, 1.0), _number(experts, _LIMITS, inf)
    points = torch.tensor([-2, -0.5, 0, 0.25, 2], dtype=torch.float64, device="cpu") * (4.0 if limit == inf else limit)
    pairs = torch.cartesian_prod(points, points)
    halves = pairs.T.reshape(1, -1)
    made = own(pairs.reshape(1, -1) if is_interleaved(experts) else halves).double()
    gates = [Gate(alpha, beta, None if limit == inf else limit) for beta in (0.0, 1.0)]
    return next((gate for gate in gates if torch.allclose(gate(halves), made, rtol=1e-5, atol=1e-5)), None)


def _number(experts: Any, names: tuple[str, ...], otherwise: float) -> float:
    found = [getattr(experts, name, None) for name in names]
    return next((float(number) for number in found if number is not None), otherwise)
