"""Parameters that are dealt to ranks."""

from __future__ import annotations

from torch import Tensor


def own(parameter: Tensor | None) -> Tensor | None:
    """A rank's part of a DTensor; another tensor as it is. torch.distributed.tensor takes long to import, so that
    nothing asks for its class."""
    return parameter.to_local() if is_dealt(parameter) else parameter


def is_dealt(parameter: Tensor | None) -> bool:
    return hasattr(type(parameter), "to_local")
