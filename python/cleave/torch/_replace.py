"""Putting layers in the places of others, in whole models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

Skip = Iterable[str] | Callable[[str, Any], bool]


def replace_layers(
    model: nn.Module,
    types: Collection[type[nn.Module]],
    make: Callable[[str, Any], nn.Module],
    skip: Skip,
) -> list[str]:
    """Replaces each layer of one of `types` (not of classes derived from them) by
    make(first name, layer), in all its places; returns their names.

    skip: patterns of names, or a function of name and layer; one of a layer's names is enough.
    """
    skipped = matcher(skip)
    names: dict[nn.Module, list[str]] = {}
    for name, layer in model.named_modules(remove_duplicate=False):
        if type(layer) in types:
            names.setdefault(layer, []).append(name)
    replaced = []
    for layer, places in names.items():
        if any(skipped(place, layer) for place in places):
            continue
        made = make(places[0], layer)
        for place in places:
            model.set_submodule(place, made)
        replaced += places
    return replaced


def matcher(skip: Skip) -> Callable[[str, Any], bool]:
    """`skip` as a function of name and layer."""
    if callable(skip):
        return skip
    patterns = (skip,) if isinstance(skip, str) else tuple(skip)
    return lambda name, _: any(fnmatchcase(name, pattern) for pattern in patterns)
