"""Buffers of layers, some of which a layer may not have."""

from __future__ import annotations

from torch import Tensor, nn


def register_buffers(layer: nn.Module, **buffers: Tensor | None) -> None:
    """Those that are None come last: torch.export counts them among a layer's inputs, of which they are none."""
    for name in sorted(buffers, key=lambda name: buffers[name] is None):
        layer.register_buffer(name, buffers[name])
