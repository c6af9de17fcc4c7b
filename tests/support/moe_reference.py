"""cleave.moe in NumPy, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np


def positions(ids: np.ndarray, num_experts: int) -> tuple[np.ndarray, np.ndarray]:
    """offs, and the slots in the order of their rows: ~slot where dropped."""
    flat = ids.reshape(-1).astype(np.int64)
    dropped = (flat < 0) | (flat >= num_experts)
    bins = np.where(dropped, num_experts, flat)
    slots = np.argsort(bins, kind="stable")
    offs = np.cumsum(np.bincount(bins, minlength=num_experts + 1))[:num_experts]
    return offs.astype(np.int32), np.where(dropped[slots], ~slots, slots).astype(np.int32)


def gather(x: np.ndarray, indices: np.ndarray, top_k: int) -> np.ndarray:
    rows = x[np.where(indices < 0, ~indices, indices) // top_k].copy()
    rows[indices < 0] = 0
    return rows


def unpermute(y: np.ndarray, indices: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """In float64."""
    tokens, top_k = weights.shape
    sums = np.zeros((tokens, y.shape[1]))
    for row, slot in enumerate(indices):
        if slot >= 0:
            sums[slot // top_k] += y[row].astype(float) * weights[slot // top_k, slot % top_k]
    return sums


def grouped_transpose(x: np.ndarray, offs: np.ndarray, quantize: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q_t, scale_t and ends: each group's transpose quantised alone, then placed."""
    rows, cols = x.shape
    columns = (rows + 127 * min(len(offs), rows)) // 128 * 128
    q_t, scale_t = np.zeros((cols, columns), np.int8), np.zeros((cols, columns // 128), np.float32)
    ends, at, begin = [], 0, 0
    for end in offs:
        q, scale = quantize(np.ascontiguousarray(x[begin:end].T))
        q_t[:, at : at + q.shape[1]] = q
        scale_t[:, at // 128 : at // 128 + scale.shape[1]] = scale
        ends.append(at + end - begin)
        at += -(-(end - begin) // 128) * 128
        begin = end
    return q_t, scale_t, np.array(ends, np.int32)
