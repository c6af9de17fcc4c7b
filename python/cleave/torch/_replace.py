"""Putting layers in the places of others, in whole models."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from ._hooks import is_altered, take_hooks

Skip = Iterable[str] | Callable[[str, Any], bool]


def replace_layers(
    model: nn.Module,
    types: Collection[type[nn.Module]],
    make: Callable[[str, Any], nn.Module],
    skip: Skip,
    spare: Callable[[Any], bool] = lambda _: False,
) -> list[str]:
    """Replaces each layer of one of `types` (not of classes derived from them, nor altered ones) by
    make(first name, layer), in all its places; returns their names. Its hooks and its mode are the new one's.

    skip: patterns of names, or a function of name and layer; one of a layer's names is enough. A
    pattern that no layer's name matches is a ValueError. spare: layers to leave alone besides. What `make` raises
    leaves the model as it was: all are made before the first is replaced.
    """
    check_model(model)
    names: dict[nn.Module, list[str]] = {}
    for name, layer in model.named_modules(remove_duplicate=False):
        if type(layer) in types:
            names.setdefault(layer, []).append(name)
    skipped = matcher(skip, [place for places in names.values() for place in places])
    made: dict[str, nn.Module] = {}
    for layer, places in names.items():
        if not spare(layer) and not is_altered(layer) and not any(skipped(place, layer) for place in places):
            new = make(places[0], layer).train(layer.training)
            take_hooks(new, layer)
            made |= dict.fromkeys(places, new)
    for place, new in made.items():
        model.set_submodule(place, new)
    return list(made)


def check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; it must be a torch module")


def check_names(argument: str, given: Iterable[str], model: nn.Module) -> None:
    """Refuses what is no module's first name, by which settings are looked up."""
    names = [name for name, _ in model.named_modules() if name]
    for name in given:
        if name not in names:
            raise ValueError(
                f"{argument} has {name!r}, which is no module's first name{_near(name, names)}; "
                "mend it, or leave it out"
            )


def matcher(skip: Skip, names: Sequence[str]) -> Callable[[str, Any], bool]:
    """`skip` as a function of name and layer."""
    if callable(skip):
        return skip
    if not isinstance(skip, Iterable):
        raise TypeError(f"skip is {skip!r}; it must be patterns of names, or a function of name and layer")
    patterns = (skip,) if isinstance(skip, str) else tuple(skip)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(
                f"skip has {pattern!r}, which no layer that would be replaced is called"
                f"{_near(pattern, names)}; mend it, or leave it out"
            )
    return lambda name, _: any(fnmatchcase(name, pattern) for pattern in patterns)


def _near(pattern: str, names: Sequence[str]) -> str:
    """Names that may have been meant: of what lies inside, of the same end, or spelled alike."""
    inside = [name for name in names if name.startswith(f"{pattern}.")]
    if inside:
        return f" (but {pattern}.* would be {', '.join(inside[:3])})"
    same_end = [name for name in names if name.endswith(f".{pattern}")]
    near = same_end or difflib.get_close_matches(pattern, names, 3, 0.4) or names
    return f" (they are {', '.join(near[:3])}{' ...' if len(names) > 3 else ''})" if near else ""
