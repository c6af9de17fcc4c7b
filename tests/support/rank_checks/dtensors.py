"""What DTensors are to torch.ops.cleave, as functions that every rank of a group runs."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import cleave.torch.parallel  # which registers the rules

from .ranks import Ranks

ops = torch.ops.cleave
ALL = Replicate()


def deal(x: Any, mesh: DeviceMesh, placement: Placement) -> Any:
    """A DTensor of a tensor; gloo does not move 8-bit floats, which are bytes on their way."""
    if not isinstance(x, Tensor):
        return x
    local = distribute_tensor(x.view(torch.uint8) if x.itemsize == 1 else x, mesh, [placement]).to_local()
    if x.dim() == 4:  # distribute_tensor has its own order of memory
        local = local.contiguous(memory_format=torch.channels_last)
    return DTensor.from_local(local.view(x.dtype), mesh, [placement], run_check=False)


@cleave.torch.float32_precision("ieee")  # torch lets convolutions on a GPU round to TF32
def products_of_dtensors_need_nothing_of_other_ranks(ranks: Ranks) -> None:
    """By each rule: placements stay, nothing is moved, and the whole result is that of whole operands."""
    mesh, w = init_device_mesh(ranks.device, (ranks.size,)), ranks.size
    a, b, bias, c = (ranks.draw(*shape) for shape in ((8 * w, 16 * w), (16 * w, 4 * w), (4 * w,), (8 * w, 4 * w)))
    x, weight = ranks.draw(w, 2 * w, 6, 6), ranks.draw(4 * w, 2 * w, 3, 3)
    x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (x, weight))
    y = ops.conv(x, weight, None, 2, 1)
    offs = torch.tensor([5, 5, 8 * w], dtype=torch.int32, device=a.device)
    counts = torch.arange(w, dtype=torch.int32, device=a.device)
    experts, batch = ranks.draw(3, 16 * w, 4 * w), ranks.draw(w, 8, 16 * w)
    wide = ranks.draw(16, 128 * w), ranks.draw(128 * w, 128 * w)
    q, scale = ops.quantize(wide[0], torch.int8, "block_1x128")
    v, v_scale = ops.quantize(wide[1], torch.int8, "block_128x128")
    by_row = ops.quantize(a, torch.int8), ops.quantize(b.t().contiguous(), torch.int8)
    (i, i_scale), (j, j_scale) = by_row
    blocks, rows = (q, v.t(), scale, v_scale.t()), (i, j.t(), i_scale, j_scale.t())
    geometry, in_float32 = ([2], [1], [1], 1), {"out_dtype": torch.float32}
    cases: list[tuple[Any, tuple[Any, ...], tuple[Placement, ...], Placement, dict[str, Any]]] = [
        (ops.gemm, (a, b), (Shard(0), ALL), Shard(0), {"activation": "relu"}),
        (ops.gemm, (a, b, bias, c), (ALL, Shard(1), Shard(0), Shard(1)), Shard(1), {"activation": "gelu"}),
        (ops.gemm, (a, b), (Shard(1), Shard(0)), Partial(), {"alpha": 0.5}),
        (ops.gemm, (batch, b), (Shard(0), ALL), Shard(0), {}),
        (ops.scaled_gemm, rows, (Shard(0), ALL, Shard(0), ALL), Shard(0), in_float32),
        (ops.scaled_gemm, rows, (ALL, Shard(1), ALL, Shard(1)), Shard(1), in_float32),
        (ops.scaled_gemm, rows, (Shard(1), Shard(0), ALL, ALL), Partial(), in_float32),
        (ops.scaled_gemm.full, blocks, (Shard(1), Shard(0), Shard(1), Shard(0)), Partial(), in_float32),
        (ops.scaled_gemm.full, blocks, (ALL, Shard(1), ALL, Shard(1)), Shard(1), {"activation": "relu"}),
        (ops.grouped_gemm, (a, experts, offs), (ALL, Shard(2), ALL), Shard(1), {}),
        (ops.grouped_gemm, (a, experts, offs), (Shard(1), Shard(1), ALL), Partial(), {}),
        (ops.grouped_gemm, (a.mT.contiguous(), c, offs), (Shard(0), ALL, ALL), Shard(1), {}),
        (ops.grouped_gemm, (a.mT.contiguous(), c, offs), (ALL, Shard(1), ALL), Shard(2), {}),
        (ops.conv, (x, weight, bias, *geometry), (Shard(0), ALL, ALL), Shard(0), {}),
        (ops.conv, (x, weight, bias, *geometry), (ALL, Shard(0), Shard(0)), Shard(1), {}),
        (ops.conv, (x, weight, None, *geometry), (Shard(1), Shard(1)), Partial(), {}),
        (ops.conv_dgrad, (list(x.shape), weight, y, *geometry), (ALL, Shard(0)), Shard(0), {}),
        (ops.conv_dgrad, (list(x.shape), weight, y, *geometry), (Shard(1), ALL), Shard(1), {}),
        (ops.conv_dgrad, (list(x.shape), weight, y, *geometry), (Shard(0), Shard(1)), Partial(), {}),
        (ops.conv_wgrad, (x, list(weight.shape), y, *geometry), (Shard(0), Shard(0)), Partial(), {}),
        (ops.conv_wgrad, (x, list(weight.shape), y, *geometry), (Shard(1), ALL), Shard(1), {}),
        (ops.conv_wgrad, (x, list(weight.shape), y, *geometry), (ALL, Shard(1)), Shard(0), {}),
        (ops.quantize, (wide[0].t().contiguous(), torch.int8), (Shard(0),), Shard(0), {}),
        (ops.quantize, (wide[0], torch.int8, "block_1x128"), (Shard(1),), Shard(1), {}),
        (ops.quantize, (wide[1], torch.int8, "block_128x128"), (Shard(0),), Shard(0), {}),
        (ops.quantize_static, (wide[0], bias[:1].abs(), torch.int8), (Shard(1), ALL), Shard(1), {}),
    ]  # fmt: skip
    batched = batch, ranks.draw(w, 16 * w, 8)
    cases.append((ops.gemm, batched, (Shard(0), Shard(0)), Shard(0), {}))
    masked = (*batched, None, None, None, None, None, False, None, None, None, None, counts)
    cases.append((ops.grouped_gemm.full, masked, (Shard(0), Shard(0), Shard(0)), Shard(0), {}))
    for op, arguments, placements, result, options in cases:
        each = iter(placements)
        dealt = [deal(t, mesh, next(each)) if isinstance(t, Tensor) else t for t in arguments]
        with CommDebugMode() as moved:
            made = op(*dealt, **options)
        assert moved.get_total_counts() == 0, (op, placements)
        whole = op(*arguments, **options)
        results = zip(*((t if isinstance(t, tuple) else (t,)) for t in (made, whole)), strict=True)
        for part, expected in results:
            assert part.placements == (result,) and part.shape == expected.shape, (op, placements, part.placements)
            torch.testing.assert_close(part.full_tensor(), expected, rtol=1e-4, atol=1e-4)


def what_is_done_to_sums_is_done_to_whole_ones(ranks: Ranks) -> None:
    """Whatever the same operands were multiplied with before: all arguments tell calls apart."""
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    a, b, c = (ranks.draw(*shape) for shape in ((8, 4 * ranks.size), (4 * ranks.size, 6), (8, 6)))
    own = distribute_tensor(a, mesh, [Shard(1)]), distribute_tensor(b, mesh, [Shard(0)])
    for activation, added in itertools.product(("none", "relu", "none", "gelu"), (None, c)):
        given = None if added is None else distribute_tensor(added, mesh, [ALL])
        d = ops.gemm(*own, None, given, activation=activation)
        assert (d.placements == (Partial(),)) == (activation == "none" and added is None)
        expected = ops.gemm(a, b, None, added, activation=activation)
        torch.testing.assert_close(d.full_tensor(), expected, rtol=1e-4, atol=1e-4)
    q, v = (ops.quantize(t, torch.int8)[0] for t in (a, b))
    dealt = deal(q, mesh, Shard(1)), deal(v, mesh, Shard(0))
    exact = ops.scaled_gemm(q, v, None, None)
    assert ops.scaled_gemm(*dealt, None, None).placements == (Partial(),)
    relu = ops.scaled_gemm.full(*dealt, None, None, None, torch.float32, activation="relu")
    assert relu.placements == (ALL,) and torch.equal(relu.full_tensor(), exact.float().relu())


@cleave.torch.float32_precision("ieee")  # torch lets convolutions on a GPU round to TF32
def gradients_of_dtensors_are_dtensors(ranks: Ranks) -> None:
    """A row-parallel product whose sum is scattered has one reduce-scatter forward, one gather backward."""
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    a, b, g = (ranks.draw(*s) for s in ((8 * ranks.size, 4 * ranks.size), (4 * ranks.size, 6), (8 * ranks.size, 6)))
    whole = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    ops.gemm(*whole).backward(g)
    own = [distribute_tensor(t, mesh, [p]).requires_grad_() for t, p in ((a, Shard(1)), (b, Shard(0)))]
    with CommDebugMode() as moved:
        d = ops.gemm(*own).redistribute(mesh, [Shard(0)])
        d.backward(distribute_tensor(g, mesh, [Shard(0)], src_data_rank=None))
    assert moved.get_total_counts() == 2 or ranks.size == 1
    for grad, expected, placement in ((own[0], whole[0], Shard(1)), (own[1], whole[1], Shard(0))):
        assert grad.grad.placements == (placement,)
        torch.testing.assert_close(grad.grad.full_tensor(), expected.grad, rtol=1e-4, atol=1e-4)
    w = ranks.size
    x, weight = ranks.draw(w, 3, 6, 6), ranks.draw(4, 3, 3, 3)
    given = [deal(t, mesh, p).requires_grad_() for t, p in ((x, Shard(0)), (weight, ALL))]
    plain = [t.contiguous(memory_format=torch.channels_last).requires_grad_() for t in (x, weight)]
    for operands in (given, plain):
        ops.conv(*operands, None, 1, 1).square().sum().backward()
    assert given[0].grad.placements == (Shard(0),) or w == 1  # a single rank's part is the whole, which torch 2.11 says
    for part, expected in zip(given, plain, strict=True):
        torch.testing.assert_close(part.grad.full_tensor(), expected.grad, rtol=1e-4, atol=1e-3)


CHECKS = (
    products_of_dtensors_need_nothing_of_other_ranks,
    what_is_done_to_sums_is_done_to_whole_ones,
    gradients_of_dtensors_are_dtensors,
)
