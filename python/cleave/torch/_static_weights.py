"""Layers whose weights nobody writes while they serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Self = TypeVar("Self", bound="StaticWeights")


class StaticWeights(nn.Module):
    """Products begin to load the weights, with their scales, while the launch ahead still runs (`static_b`).

    static_weights: whether they may. It is the caller's promise that no launch which may still be under way when the
    layer is called writes its buffers. The layer keeps it where it is made, copied, moved, cast or loads a state_dict:
    these wait for the GPU once. Who writes buffers in another way calls `wait_for_weights` after that.
    """

    static_weights = True  # of layers that were pickled before they had the attribute

    def wait_for_weights(self) -> None:
        """Waits until what is enqueued on the current stream, whatever writes the buffers, is done.

        RuntimeError while that stream is being captured: a graph would begin to load weights that it is writing.
        """
        device = next((buffer.device for buffer in self.buffers(recurse=False) if buffer.is_cuda), None)
        if device is None or not self.static_weights or not torch.cuda.is_initialized():
            return
        with torch.cuda.device(device):
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    f"buffers of {type(self).__name__} are written while a stream is being captured, but "
                    "static_weights is True; write them before the capture, or make it False"
                )
            torch.cuda.current_stream().synchronize()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.wait_for_weights()

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self.wait_for_weights()
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *arguments: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        self.wait_for_weights()
