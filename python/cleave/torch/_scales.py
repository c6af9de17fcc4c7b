"""What shares a scale: of a weight in 8 bits, and of the activations that it multiplies."""

from __future__ import annotations

from torch import Tensor

BLOCK = 128

# By the granularity of the weight, in `quantize`'s words: that of the activations.
ACTIVATIONS = {"row": "row", "block_1x128": "block_1x128", "block_128x128": "block_1x128"}


def check_granularity(granularity: str) -> None:
    if granularity not in ACTIVATIONS:
        names = ", ".join(f'"{name}"' for name in ACTIVATIONS)
        raise ValueError(f"granularity is {granularity!r}; it must be one of {names}")


def scale_shape(granularity: str, out_features: int, in_features: int) -> tuple[int, ...]:
    """The shape of a weight's scales: the weight is [out_features, in_features]."""
    if granularity == "row":
        return (out_features,)
    rows = out_features if granularity == "block_1x128" else -(-out_features // BLOCK)
    return rows, -(-in_features // BLOCK)


def shaped_scale(scale: Tensor, granularity: str, out_features: int, in_features: int) -> Tensor:
    """A weight's scales as float32 of `scale_shape`; one value serves all rows."""
    shape = scale_shape(granularity, out_features, in_features)
    if granularity == "row" and scale.numel() == 1:
        return scale.float().reshape(1).expand(shape).contiguous()
    if tuple(scale.shape) not in (shape, (*shape, 1)):
        raise ValueError(
            f"the scales of a weight [{out_features}, {in_features}] are {list(scale.shape)}; "
            f"granularity {granularity!r} needs {list(shape)}"
        )
    return scale.float().reshape(shape).contiguous()
