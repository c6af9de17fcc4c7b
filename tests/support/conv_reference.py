"""Convolutions as plain products in float64, unfolded pixel by pixel, for gemm_reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cleave.testing.conv_axis import Axis

KINDS = ("fprop", "dgrad", "wgrad")


def pixels_met(axis: Axis) -> np.ndarray:
    """[outputs, taps]: the pixel where they meet, or -1."""
    met = np.full((axis.outputs, axis.filter_size), -1)
    for tap, outputs, pixels in axis.meetings():
        met[outputs, tap] = pixels
    return met


def outputs_met(axis: Axis) -> np.ndarray:
    """[pixels, taps]: the output whose tap lands on the pixel, or -1."""
    met = np.full((axis.size, axis.filter_size), -1)
    for tap, outputs, pixels in axis.meetings():
        met[pixels, tap] = outputs
    return met


@dataclass(frozen=True)
class Convolution:
    """Channels and filters are those of all groups."""

    images: int
    channels: int
    filters: int
    axes: tuple[Axis, ...]
    groups: int = 1

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """torch's."""
        return {
            "input": (self.images, self.channels, *(axis.size for axis in self.axes)),
            "weight": (
                self.filters,
                self.channels // self.groups,
                *(axis.filter_size for axis in self.axes),
            ),
            "output": (self.images, self.filters, *(axis.outputs for axis in self.axes)),
        }

    @property
    def geometry(self) -> dict[str, Any]:
        """As arguments of cleave's functions."""
        return {
            "stride": tuple(axis.stride for axis in self.axes),
            "padding": tuple((axis.before, axis.after) for axis in self.axes),
            "dilation": tuple(axis.dilation for axis in self.axes),
            "groups": self.groups,
        }

    def operands(self, kind: str, **tensors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[groups, m, k] and [groups, k, n], of the two of input, weight and output it takes."""
        tensors = {name: np.asarray(x, np.float64) for name, x in tensors.items()}
        if kind == "fprop":
            met = [pixels_met(axis) for axis in self.axes]
            return self._rows(_unfold(tensors["input"], met)), self._weight(tensors["weight"]).mT
        if kind == "dgrad":
            met = [outputs_met(axis) for axis in self.axes]
            by_filter = self._weight(tensors["weight"])  # [groups, filters, taps x channels]
            _, filters, _ = by_filter.shape
            channels = self.channels // self.groups
            b = by_filter.reshape(self.groups, filters, self._taps, channels).swapaxes(1, 2)
            return (
                self._rows(_unfold(tensors["output"], met)),
                b.reshape(self.groups, self._taps * filters, channels),
            )
        met = [pixels_met(axis) for axis in self.axes]
        return (
            self.matrix("fprop", tensors["output"]).mT,
            self._rows(_unfold(tensors["input"], met)),
        )

    def matrix(self, kind: str, result: np.ndarray) -> np.ndarray:
        """[groups, m, n], of what the kind makes."""
        result = np.asarray(result, np.float64)
        if kind == "wgrad":
            return self._weight(result)
        pixels = math.prod(result.shape[2:])
        images, channels = result.shape[:2]
        return self._rows(np.moveaxis(result, 1, -1).reshape(images, pixels, 1, channels))

    def row(self, bias: np.ndarray) -> np.ndarray:
        """[groups, 1, n]."""
        return np.asarray(bias, np.float64).reshape(self.groups, 1, len(bias) // self.groups)

    @property
    def _taps(self) -> int:
        return math.prod(axis.filter_size for axis in self.axes)

    def _weight(self, weight: np.ndarray) -> np.ndarray:
        """[groups, filters, taps x channels]."""
        last = np.moveaxis(weight, 1, -1)
        return last.reshape(self.groups, self.filters // self.groups, self._taps * weight.shape[1])

    def _rows(self, unfolded: np.ndarray) -> np.ndarray:
        """[groups, rows, taps x channels] of [images, pixels, taps, channels of all groups]."""
        images, pixels, taps, channels = unfolded.shape
        own = channels // self.groups
        parts = unfolded.reshape(images * pixels, taps, self.groups, own)
        return np.moveaxis(parts, 2, 0).reshape(self.groups, images * pixels, taps * own)


def _unfold(x: np.ndarray, met: Sequence[np.ndarray]) -> np.ndarray:
    """[images, pixels, taps, channels]: what lies where they meet, or 0."""
    for i in reversed(range(len(met))):
        zero = np.zeros_like(x.take([0], 2 + i) if x.shape[2 + i] else x.sum(2 + i, keepdims=True))
        x = np.concatenate([x, zero], 2 + i).take(met[i], 2 + i)  # -1 is the zero
    rank = len(met)
    order = (0, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2), 1)
    x = x.transpose(order)
    pixels, taps = math.prod(x.shape[1 : 1 + rank]), math.prod(x.shape[1 + rank : -1])
    return x.reshape(x.shape[0], pixels, taps, x.shape[-1])
