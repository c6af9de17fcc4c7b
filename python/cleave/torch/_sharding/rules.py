"""Placements of operands and results, over one dimension of a mesh, in which ranks need nothing of each other.

M, N, K and batches as of torch's mm: K that is dealt gives partial sums, unless something is done to the sum. A scale
goes with its operand, dimension by dimension; whole blocks of 128 stay on one rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from ..._epilogue.activations import GATED
from .._scales import BLOCK

Choice = tuple[dict[str, Placement], tuple[Placement, ...]]


def gemm(call: SimpleNamespace) -> Iterator[Choice]:
    a, b = call.a, call.b
    m, n, dims = a.shape[-2], b.shape[-1], max(a.ndim, b.ndim)
    rows = {name: _broadcast(getattr(call, name), -2, m) for name in ("bias", "c")}
    columns = {name: _broadcast(getattr(call, name), -1, n) for name in ("bias", "c")}
    yield {"a": Shard(a.ndim - 2), **rows}, (Shard(dims - 2),)
    if call.activation not in GATED:  # whose gates and ups are halves of the columns
        yield {"b": Shard(b.ndim - 1), **columns}, (Shard(dims - 1),)
    if _is_linear(call):
        yield {"a": Shard(a.ndim - 1), "b": Shard(b.ndim - 2)}, (Partial(),)
    if dims == 3:
        batch = max(x.shape[0] for x in (a, b) if x.ndim == 3)
        operands = {name: getattr(call, name) for name in ("a", "b", "bias", "c")}
        yield {name: _broadcast(x, -3, batch) for name, x in operands.items()}, (Shard(0),)


def scaled_gemm(call: SimpleNamespace) -> Iterator[Choice]:
    a, b = call.a, call.b
    if a.ndim != 2 or b.ndim != 2 or getattr(call, "azp", None) is not None:
        return
    (m, k), n, c = a.shape, b.shape[1], getattr(call, "c", None)
    by_rows = _scale(call.scale_a, 0, m, call.parts)
    if by_rows is not None:
        more = {"bias": _broadcast(call.bias, -2, m), "c": _broadcast(c, -2, m)}
        yield {"a": Shard(0), "scale_a": by_rows, **more}, (Shard(0),)
    by_columns = _scale(call.scale_b, -1, n, call.parts)
    if by_columns is not None and getattr(call, "activation", "none") not in GATED:
        more = {"bias": _broadcast(call.bias, -1, n), "c": _broadcast(c, -1, n)}
        yield {"b": Shard(1), "scale_b": by_columns, **more}, (Shard(1),)
    of_a = _scale(call.scale_a, 1, k, call.parts) if _dims(call.scale_a) == 2 else Replicate()
    of_b = _scale(call.scale_b, 0, k, call.parts) if _dims(call.scale_b) == 2 else Replicate()
    if _is_linear(call) and of_a is not None and of_b is not None:
        yield {"a": Shard(1), "b": Shard(0), "scale_a": of_a, "scale_b": of_b}, (Partial(),)


def grouped_gemm(call: SimpleNamespace) -> Iterator[Choice]:
    """Without scales, and of the layouts that layers have: groups of rows, and of K by offs, or by counts."""
    a, b = call.a, call.b
    bounds = [getattr(call, name, None) for name in ("indptr", "starts", "sizes")]
    if call.scale_a is not None or call.scale_b is not None or any(x is not None for x in bounds):
        return
    counts, c = getattr(call, "counts", None), getattr(call, "c", None)
    plain = getattr(call, "activation", "none") not in GATED and c is None
    if a.ndim == 2 and b.ndim == 3:
        if plain:
            yield {"b": Shard(2), "bias": _broadcast(call.bias, -1, b.shape[2])}, (Shard(1),)
        if _is_linear(call):
            yield {"a": Shard(1), "b": Shard(1)}, (Partial(),)
    elif a.ndim == b.ndim == 2 and plain and call.bias is None:
        yield {"a": Shard(0)}, (Shard(1),)
        yield {"b": Shard(1)}, (Shard(2),)
    elif a.ndim == b.ndim == 3 and counts is not None and plain:
        if _dims(call.bias) in (0, 2):
            by_group = _broadcast(call.bias, -2, a.shape[0])
            yield {"a": Shard(0), "b": Shard(0), "counts": Shard(0), "bias": by_group}, (Shard(0),)
        yield {"b": Shard(2), "bias": _broadcast(call.bias, -1, b.shape[2])}, (Shard(2),)
        if _is_linear(call):
            yield {"a": Shard(2), "b": Shard(1)}, (Partial(),)


def conv(call: SimpleNamespace) -> Iterator[Choice]:
    """Serves scaled_conv, too, whose scale_a is one value, and scale_b one, or one for each filter."""
    x, w = call.input, call.weight
    c = getattr(call, "c", None)
    if x.ndim != w.ndim or _dims(c) not in (0, x.ndim):
        return
    yield {"input": Shard(0), "c": _broadcast(c, 0, x.shape[0])}, (Shard(0),)
    if call.groups != 1:
        return
    filters = w.shape[0]
    with_filters = {"bias": _broadcast(call.bias, -1, filters), "c": Shard(1)}
    if (by_filter := _scale(getattr(call, "scale_b", None), -1, filters, 0)) is not None:
        yield {"weight": Shard(0), "scale_b": by_filter, **with_filters}, (Shard(1),)
    if _is_linear(call):
        yield {"input": Shard(1), "weight": Shard(1)}, (Partial(),)


def conv_dgrad(call: SimpleNamespace) -> Iterator[Choice]:
    y, c = call.grad_output, getattr(call, "c", None)
    yield {"grad_output": Shard(0), "c": Shard(0)}, (Shard(0),)
    if call.groups != 1:
        return
    channels = call.weight.shape[1]
    yield {"weight": Shard(1), "bias": _broadcast(call.bias, -1, channels), "c": Shard(1)}, (Shard(1),)
    if _is_linear(call) and y.ndim == call.weight.ndim and c is None:
        yield {"weight": Shard(0), "grad_output": Shard(1)}, (Partial(),)


def conv_wgrad(call: SimpleNamespace) -> Iterator[Choice]:
    if _is_linear(call):
        yield {"input": Shard(0), "grad_output": Shard(0)}, (Partial(),)
    if call.groups == 1:
        yield {"input": Shard(1), "c": Shard(1)}, (Shard(1),)
        yield {"grad_output": Shard(1), "c": Shard(0)}, (Shard(0),)


def quantize(call: SimpleNamespace) -> Iterator[Choice]:
    """Rows are dealt as they are, blocks whole; a tensor with one scale is not."""
    rows, columns = call.x.shape
    of_blocks = call.granularity.startswith("block")
    if call.granularity in ("row", "block_1x128") or (of_blocks and rows % (BLOCK * call.parts) == 0):
        yield {"x": Shard(0)}, (Shard(0), Shard(0))
    if of_blocks and columns % (BLOCK * call.parts) == 0:
        yield {"x": Shard(1), "smooth": Shard(0)}, (Shard(1), Shard(1))


def quantize_static(call: SimpleNamespace) -> Iterator[Choice]:
    if call.granularity == "tensor":
        yield {"x": Shard(0)}, (Shard(0),)
        yield {"x": Shard(1), "smooth": Shard(0)}, (Shard(1),)


def _is_linear(call: SimpleNamespace) -> bool:
    """Whether the sum over K is the result, and may be added up later."""
    added = [getattr(call, name, None) for name in ("bias", "c", "scale_d")]
    return getattr(call, "activation", "none") == "none" and all(x is None for x in added)


def _dims(x: Any) -> int:
    return 0 if x is None else x.ndim


def _broadcast(x: Any, dim: int, size: int) -> Placement:
    """Where x is that is broadcast to a result whose dimension `dim` is dealt."""
    if x is None or x.ndim < (-dim if dim < 0 else dim + 1):
        return Replicate()
    dim %= x.ndim
    return Shard(dim) if x.shape[dim] == size else Replicate()


def _scale(scale: Any, dim: int, size: int, parts: int) -> Placement | None:
    """Where a scale is whose operand's dimension of `size` is dealt; None if a block would be of two ranks."""
    count = 1
    if scale is not None and scale.ndim > 0:
        dim %= scale.ndim
        count = scale.shape[dim]
    if count == 1:
        return Replicate()
    if count == size or (count * BLOCK == size and count % parts == 0):
        return Shard(dim)
    return None
