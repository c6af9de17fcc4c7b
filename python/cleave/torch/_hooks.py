"""What callers hang on layers: hooks of forward and backward passes, and parameters that are computed anew."""

from __future__ import annotations

from torch import nn

_KINDS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_BESIDE = ("_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")
_BESIDE += ("_is_full_backward_hook",)


def has_hooks(layer: nn.Module) -> bool:
    return any(getattr(layer, kind) for kind in _KINDS)


def take_hooks(layer: nn.Module, of: nn.Module) -> None:
    """Has the one run what hangs on the other, whose handles remove it from both."""
    for name in (*_KINDS, *_BESIDE):
        setattr(layer, name, getattr(of, name))


def is_altered(layer: nn.Module) -> bool:
    """Whether it is not what its class says: a forward of its own, or a weight that hooks compute of other parameters,
    as weight_norm, spectral_norm and pruning do."""
    return "forward" in vars(layer) or "weight" in vars(layer)  # which hooks set, beside the parameters
