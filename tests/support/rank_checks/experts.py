"""What expert parallelism promises, as functions that every rank of a group runs: by gloo, on GPUs by NCCL."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import parallelize_module

import cleave
import cleave.distributed as cd
from cleave.distributed import _expert_rows, _moe_operators
from cleave.torch import MoE, W8A8Experts, parallel

from .ranks import Ranks, forget_forms, same_bits

ops = torch.ops.cleave
FEATURES, HIDDEN, TOP_K = 32, 48, 2
EXACT_AND_NOT = ({"exact": False}, {"exact": True})


def experts_of(ranks: Ranks) -> int:
    return 4 * ranks.size


def draw(ranks: Ranks, tokens: int, **dtype: Any) -> tuple[Tensor, Tensor, Tensor]:
    """All ranks' tokens, what each chose, some of it no expert, and the weights."""
    x = ranks.draw(tokens * ranks.size, FEATURES, **dtype)
    logits = ranks.draw(tokens * ranks.size, experts_of(ranks)) + torch.arange(experts_of(ranks)).to(x.device) * 0.1
    weights, ids = ops.moe_route(logits, TOP_K)
    ids[::7, 0], ids[::5, 1] = -1, experts_of(ranks)
    return x, ids, weights


def of_rank(ranks: Ranks, rows: Tensor, offs: Tensor) -> Tensor:
    """Its experts' rows, of all experts'."""
    ends = [0, *offs.view(ranks.size, -1)[:, -1].tolist()]
    return rows[ends[ranks.rank] : ends[ranks.rank + 1]]


def places_and_sums_are_those_of_one_process(ranks: Ranks) -> None:
    """Rows of experts, what comes back, and all gradients: bit by bit, whatever was moved and how much."""
    for dtype in (torch.bfloat16, torch.float32):
        for tokens in (24, 1, 0):
            x, ids, weights = draw(ranks, tokens, dtype=dtype)
            g, scale = ranks.draw(*x.shape, dtype=dtype), ranks.draw(experts_of(ranks), dtype=dtype)
            whole = [t.detach().clone().requires_grad_() for t in (x, weights)]
            rows, offs, indices = ops.moe_permute(whole[0], ids, experts_of(ranks))
            made = rows * scale[_experts(offs, len(rows))][:, None]
            expected = ops.moe_unpermute(made, indices, whole[1])
            of_whole = torch.autograd.grad(expected, whole, g)
            for options in EXACT_AND_NOT:
                own = [ranks.rows(t).requires_grad_() for t in (x, weights)]
                sent = cd.moe_dispatch(own[0], ranks.rows(ids), experts_of(ranks), **options)
                filled = int(sent.offs[-1])
                assert same_bits(sent.rows[:filled], of_rank(ranks, rows, offs)) and not sent.rows[filled:].any()
                assert len(sent.rows) == (filled if options["exact"] else ranks.size * tokens * TOP_K)
                assert sent.dropped.tolist() == [0]
                mine = scale.chunk(ranks.size)[ranks.rank][_experts(sent.offs, len(sent.rows))]
                y = cd.moe_combine(sent.rows * mine[:, None], sent.route, own[1])
                assert same_bits(y, ranks.rows(expected))
                for grad, of_all in zip(torch.autograd.grad(y, own, ranks.rows(g)), of_whole, strict=True):
                    assert same_bits(grad, ranks.rows(of_all))
                plain = cd.moe_combine(sent.rows, sent.route, top_k=TOP_K)
                assert same_bits(plain, ranks.rows(ops.moe_unpermute(rows, indices, None, TOP_K)))


def _experts(offs: Tensor, rows: int) -> Tensor:
    """Each row's expert; the last one for rows past all."""
    row = torch.arange(rows, device=offs.device)
    return torch.searchsorted(offs, row.int(), right=True).clamp(max=len(offs) - 1)


def ranks_may_have_different_numbers_of_tokens(ranks: Ranks) -> None:
    """With exact sizes, or a capacity for the most; a rank may have none."""
    tokens = 9 * (ranks.size - 1)
    x, weights = ranks.draw(tokens, FEATURES), ranks.draw(tokens, TOP_K)
    ids = torch.randint(experts_of(ranks), (tokens, TOP_K)).to(x.device)
    rows, offs, indices = ops.moe_permute(x, ids, experts_of(ranks))
    parts = [9] * (ranks.size - 1) + [0]

    def own(t: Tensor) -> Tensor:
        return t.split(parts)[ranks.rank]

    for options in ({"exact": True}, {"capacity": 9 * TOP_K}):
        sent = cd.moe_dispatch(own(x), own(ids), experts_of(ranks), **options)
        assert same_bits(sent.rows[: sent.offs[-1]], of_rank(ranks, rows, offs))
        y = cd.moe_combine(sent.rows, sent.route, own(weights))
        assert same_bits(y, own(ops.moe_unpermute(rows, indices, weights)))


def what_exceeds_the_capacity_is_dropped_and_counted(ranks: Ranks) -> None:
    x, ids, weights = draw(ranks, 40)
    own, capacity, experts = ranks.rows(ids), 17, experts_of(ranks) // ranks.size
    kept, dropped = own.clone(), 0
    for rank in range(ranks.size):
        expert = own.view(-1).cpu()
        slots = ((expert >= rank * experts) & (expert < (rank + 1) * experts)).nonzero().view(-1)
        lost = slots[torch.argsort(expert[slots], stable=True)][capacity:]
        kept.view(-1)[lost.to(own.device)] = -1
        dropped += len(lost)
    assert dropped > 0
    sent = cd.moe_dispatch(ranks.rows(x), own, experts_of(ranks), capacity=capacity)
    assert sent.dropped.tolist() == [dropped] and len(sent.rows) == ranks.size * capacity
    expected = cd.moe_dispatch(ranks.rows(x), kept, experts_of(ranks), exact=True)
    assert same_bits(sent.offs, expected.offs) and same_bits(sent.rows[: sent.offs[-1]], expected.rows)
    of_both = [cd.moe_combine(made.rows, made.route, ranks.rows(weights)) for made in (sent, expected)]
    assert same_bits(*of_both)


def scales_go_with_their_tokens(ranks: Ranks) -> None:
    x, ids, _ = draw(ranks, 16)
    for dtype, granularity in ((torch.int8, "row"), (torch.float8_e4m3fn, "block_1x128")):
        q, scale = ops.quantize(x, dtype, granularity)
        of_q, offs, _ = ops.moe_permute(q, ids, experts_of(ranks))
        of_scale, _, _ = ops.moe_permute(scale, ids, experts_of(ranks))
        for options in EXACT_AND_NOT:
            own = ranks.rows(q.view(torch.uint8)).view(dtype)
            sent = cd.moe_dispatch(own, ranks.rows(ids), experts_of(ranks), scale=ranks.rows(scale), **options)
            filled = int(sent.offs[-1])
            assert same_bits(sent.rows[:filled], of_rank(ranks, of_q, offs))
            assert same_bits(sent.scale[:filled], of_rank(ranks, of_scale, offs))


@cleave.batch_invariant()
def layers_over_ranks_are_the_layer_of_one_process(ranks: Ranks) -> None:
    """Outputs and x's gradient bit by bit, whatever the number of experts. The router's gradient nearly, whose sum over
    ranks has an order of its own, and the experts', whose K, the rows that there is room for, is cut into other
    blocks."""
    mesh, group = init_device_mesh(ranks.device, (ranks.size,)), dist.group.WORLD
    whole = MoE(experts_of(ranks), TOP_K, FEATURES, HIDDEN, device=ranks.device)
    x, g = (ranks.draw(ranks.size * 2, 10, FEATURES) for _ in range(2))
    x.requires_grad_()
    expected = whole(x)
    expected.backward(g)
    by_style = parallelize_module(copy.deepcopy(whole), mesh, parallel.ExpertParallel())
    by_hand = MoE(experts_of(ranks), TOP_K, FEATURES, HIDDEN, ep_group=group, device=ranks.device)
    exact = MoE(
        experts_of(ranks), TOP_K, FEATURES, HIDDEN, dispatcher=cd.AllToAll(group, exact=True), device=ranks.device
    )
    for layer in (by_hand, exact):
        for own, all_of_them in zip(layer.parameters(), whole.parameters(), strict=True):
            own.data.copy_(ranks.rows(all_of_them) if own.dim() == 3 else all_of_them)
    for layer in (by_style, by_hand, exact):
        assert layer.state_dict().keys() == whole.state_dict().keys()
        layer.zero_grad()
        own = ranks.rows(x).requires_grad_()
        y = layer(own)
        y.backward(ranks.rows(g))
        assert same_bits(y, ranks.rows(expected)) and same_bits(own.grad, ranks.rows(x.grad))
        for name in ("gate_up", "down"):
            grad = getattr(layer, name).weight.grad
            if layer is by_style:
                assert grad.placements == (Shard(0),)
                grad = grad.to_local()
            torch.testing.assert_close(grad, ranks.rows(getattr(whole, name).weight.grad), rtol=1e-5, atol=1e-6)
        total = layer.router.weight.grad.clone()
        dist.all_reduce(total)
        torch.testing.assert_close(total, whole.router.weight.grad, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            assert same_bits(layer(own), ranks.rows(whole(x)))
    compiled = torch.compile(by_style, fullgraph=True, backend="aot_eager")
    own = ranks.rows(x).requires_grad_()
    y = compiled(own)
    y.backward(ranks.rows(g))
    assert same_bits(y, ranks.rows(expected)) and same_bits(own.grad, ranks.rows(x.grad))


def gathered_tokens_are_those_of_one_process(ranks: Ranks) -> None:
    """Rows of experts bit by bit; sums in the order of the ranks, of each rank's in the order of choices; gradients."""
    each = cd.AllGather(dist.group.WORLD)
    for dtype in (torch.bfloat16, torch.float32):
        x, ids, weights = draw(ranks, 24, dtype=dtype)
        g, scale = ranks.draw(*x.shape, dtype=dtype), ranks.draw(experts_of(ranks), dtype=dtype)
        whole = [t.detach().clone().requires_grad_() for t in (x, weights)]
        rows, offs, indices = ops.moe_permute(whole[0], ids, experts_of(ranks))
        made = rows * scale[_experts(offs, len(rows))][:, None]
        of_whole = torch.autograd.grad(ops.moe_unpermute(made, indices, whole[1]), whole, g)
        expert = _experts(offs, len(rows)) * ranks.size // experts_of(ranks)
        sums = 0.0
        for rank in range(ranks.size):
            sums = sums + ops.moe_unpermute(torch.where((expert == rank)[:, None], made, 0), indices, weights).float()

        own = [ranks.rows(t).requires_grad_() for t in (x, weights)]
        arrived = each.dispatch(own[0], ranks.rows(ids), own[1], experts_of(ranks))
        filled = int(arrived.offs[-1])
        assert same_bits(arrived.rows[:filled], of_rank(ranks, rows, offs)) and not arrived.rows[filled:].any()
        mine = scale.chunk(ranks.size)[ranks.rank][_experts(arrived.offs, len(arrived.rows))]
        y = each.combine(arrived.rows * mine[:, None], arrived)
        assert same_bits(y, ranks.rows(sums.to(dtype)))
        tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
        for grad, of_all in zip(torch.autograd.grad(y, own, ranks.rows(g)), of_whole, strict=True):
            torch.testing.assert_close(grad, ranks.rows(of_all), **tolerance)


def rows_that_move_in_parts_are_those_that_move_at_once(ranks: Ranks) -> None:
    """Tokens, and sums by columns, in halves that differ; some times, so that places are taken again."""
    if ranks.size == 1:
        return
    least, name = _expert_rows._LEAST_BYTES, dist.group.WORLD.group_name
    each = cd.AllGather(transport="peer")
    _expert_rows._LEAST_BYTES = 1
    forget_forms()
    try:
        for dtype, features in ((torch.bfloat16, 448), (torch.float32, 136)):
            for _ in range(3):
                _, ids, weights = draw(ranks, 24, dtype=dtype)
                x = ranks.draw(24 * ranks.size, features, dtype=dtype)
                arrived = each.dispatch(*map(ranks.rows, (x, ids, weights)), experts_of(ranks))
                own = ids - ranks.rank * experts_of(ranks) // ranks.size
                by_hand = ops.moe_permute(x, own, experts_of(ranks) // ranks.size)
                assert all(map(same_bits, by_hand, (arrived.rows, arrived.offs, arrived.context[0])))
                rows = torch.randn_like(arrived.rows)
                expected = ops.reduce_scatter_rows(ops.moe_unpermute(rows, *arrived.context), name)
                assert same_bits(_expert_rows.scattered(rows, *arrived.context, name, "peer"), expected)
                assert same_bits(each.combine(rows, arrived), expected)
    finally:
        _expert_rows._LEAST_BYTES = least
        forget_forms()


def experts_in_8_bits_are_those_of_one_process(ranks: Ranks) -> None:
    """Tokens travel in 8 bits, with their scales, by either dispatcher; nothing else is rounded on the way."""
    features, hidden, experts = 128, 128, experts_of(ranks)
    x, ids, weights = ranks.draw(24 * ranks.size, features).bfloat16(), *draw(ranks, 24)[1:]
    for dtype, granularity in ((torch.int8, "row"), (torch.float8_e4m3fn, "block_128x128")):
        shapes = (experts, 2 * hidden, features), (experts, features, hidden)
        gate_up, down = (_quantised(ranks.draw(*shape), dtype, granularity) for shape in shapes)
        whole = W8A8Experts.from_quantized(*gate_up, *down, granularity=granularity)
        own = [ranks.rows(t.view(torch.uint8)).view(t.dtype) for t in (*gate_up, *down)]
        expected = whole(x, ids, weights)
        for dispatcher in (cd.AllToAll(), cd.AllToAll(exact=True), cd.AllGather()):
            layer = W8A8Experts.from_quantized(*own, granularity=granularity, dispatcher=dispatcher)
            assert layer.num_experts == experts
            made = layer(*(ranks.rows(t) for t in (x, ids, weights)))
            if isinstance(dispatcher, cd.AllToAll):
                assert same_bits(made, ranks.rows(expected))
            else:  # rounded once more, on each rank, to bfloat16
                most = (ranks.size + 1) * 2.0**-8 * expected.float().abs().max()
                assert ((made - ranks.rows(expected)).abs() <= most).all()


def _quantised(weight: Tensor, dtype: torch.dtype, granularity: str) -> tuple[Tensor, Tensor]:
    parts = [ops.quantize(expert, dtype, granularity) for expert in weight]
    q = torch.stack([part[0].view(torch.uint8) for part in parts]).view(dtype)
    scale = torch.stack([part[1] for part in parts])
    return q, scale.flatten(1) if granularity == "row" else scale


def gradients_of_dealt_experts_may_be_float32(ranks: Ranks) -> None:
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    layer = MoE(experts_of(ranks), TOP_K, FEATURES, HIDDEN, device=ranks.device, dtype=torch.bfloat16)
    weight = parallelize_module(layer, mesh, parallel.ExpertParallel()).down.weight
    if not hasattr(weight, "grad_dtype"):  # which torch has from 2.13 on
        return
    x = ranks.rows(ranks.draw(ranks.size * 12, FEATURES, dtype=torch.bfloat16))
    layer(x).sum().backward()
    rounded, weight.grad = weight.grad.to_local(), None
    weight.grad_dtype = torch.float32
    layer(x).sum().backward()
    made = weight.grad.to_local()
    assert made.dtype == torch.float32 and weight.grad.placements == (Shard(0),)
    assert same_bits(made.bfloat16(), rounded) and not same_bits(made, rounded.float())


def experts_are_refused_by_name(ranks: Ranks) -> None:
    if ranks.size == 1:
        return
    x, ids, _ = draw(ranks, 4)
    own, chosen, count = ranks.rows(x), ranks.rows(ids), experts_of(ranks)
    sent = cd.moe_dispatch(own, chosen, count)
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: cd.moe_dispatch(own[1:], chosen, count), ValueError, r"x is \[3, 32\] and expert_ids is \[4"),
        (lambda: cd.moe_dispatch(own, chosen, count + 1), ValueError, "all must have as many experts"),
        (lambda: cd.moe_dispatch(own, chosen, count, capacity=0), ValueError, "capacity is 0; it must be 1 or more"),
        (lambda: cd.moe_dispatch(own, chosen, count, capacity=4, exact=True), ValueError, "all rows; leave one"),
        (lambda: cd.moe_combine(sent.rows[1:], sent.route, top_k=2), ValueError, "those that the experts made must be"),
        (lambda: MoE(count + 1, 1, 8, 8, ep_group=dist.group.WORLD), ValueError, "it must be a multiple: add experts"),
        (lambda: MoE(count, 1, 8, 8, ep_group=dist.group.WORLD, dispatcher=cd.AllToAll()), ValueError, "leave ep_"),
        (
            lambda: parallelize_module(torch.nn.Linear(4, 4), mesh, parallel.ExpertParallel()),
            NotImplementedError,
            "serves cleave.torch.MoE, but the module is Linear",
        ),
        (
            lambda: parallelize_module(MoE(count + 1, 1, 8, 8), mesh, parallel.ExpertParallel()),
            ValueError,
            "experts for . ranks; they must be a multiple",
        ),
    ]  # fmt: skip
    for call, error, match in cases:
        with pytest.raises(error, match=match):
            call()
    dealt = parallelize_module(MoE(count, 1, 8, 8, accumulate_main_grad=True), mesh, parallel.ExpertParallel())
    with pytest.raises(RuntimeError, match=r"weight is a DTensor.*set weight.grad_dtype = torch.float32"):
        dealt.gate_up(torch.ones(4, 8), torch.tensor([1, 2, 3, 4]))
    dist.barrier()


def expert_operators_are_as_they_say(ranks: Ranks) -> None:
    x, ids, _ = draw(ranks, 4)
    own, chosen, group = ranks.rows(x), ranks.rows(ids), dist.group.WORLD.group_name
    sent = cd.moe_dispatch(own, chosen, experts_of(ranks))
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (ops.moe_route_ranks, (chosen, experts_of(ranks), group), {}),
        (ops.moe_send_rows, (own, *sent.route, group), {}),
        (ops.moe_return_rows, (sent.rows, *sent.route, group), {}),
    ]
    assert {op._qualified_op_name.removeprefix("cleave::") for op, _, _ in calls} == _moe_operators.SCHEMAS.keys()
    for op, arguments, options in calls:
        torch.library.opcheck(op, arguments, options, test_utils=("test_schema", "test_faketensor"))


def captured_layers_are_right_for_any_routing(ranks: Ranks) -> None:
    if ranks.device == "cpu":
        return
    for dispatcher in (cd.AllToAll(), cd.AllGather()):
        _captured_layer_is_right(ranks, dispatcher)


def _captured_layer_is_right(ranks: Ranks, dispatcher: Any) -> None:
    layer = MoE(experts_of(ranks), TOP_K, FEATURES, HIDDEN, dispatcher=dispatcher, device=ranks.device)
    inputs = [ranks.rows(ranks.draw(ranks.size * 16, FEATURES)) for _ in range(3)]
    with torch.no_grad():
        expected = [layer(x) for x in inputs]
        torch.cuda.synchronize()
        graph, x = torch.cuda.CUDAGraph(), inputs[0].clone()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog goes on
            y = layer(x)
            with pytest.raises(RuntimeError, match="exact is True, but the host may not"):
                cd.moe_dispatch(x, torch.zeros(len(x), 1, dtype=torch.int32, device=x.device), experts_of(ranks),
                                exact=True)  # fmt: skip
        for _ in range(20):
            for given, result in zip(inputs, expected, strict=True):
                x.copy_(given)
                graph.replay()
                assert same_bits(y, result)


def products_that_split_k_alike_have_the_bits_of_one_process(ranks: Ranks) -> None:
    x, ids, weights = draw(ranks, 4)
    x, w = ranks.draw(len(x), 2048), ranks.draw(experts_of(ranks), 64, 2048)
    split = {"split_k_mode": "parallel", "split_k_slices": 4}
    rows, offs, indices = ops.moe_permute(x, ids, experts_of(ranks))
    expected = ops.moe_unpermute(ops.grouped_gemm.full(rows, w.mT, offs, **split), indices, weights)
    sent = cd.moe_dispatch(ranks.rows(x), ranks.rows(ids), experts_of(ranks))
    made = ops.grouped_gemm.full(sent.rows, ranks.rows(w).mT, sent.offs, **split)
    assert same_bits(cd.moe_combine(made, sent.route, ranks.rows(weights)), ranks.rows(expected))


CHECKS = (
    places_and_sums_are_those_of_one_process,
    ranks_may_have_different_numbers_of_tokens,
    what_exceeds_the_capacity_is_dropped_and_counted,
    scales_go_with_their_tokens,
    layers_over_ranks_are_the_layer_of_one_process,
    gathered_tokens_are_those_of_one_process,
    rows_that_move_in_parts_are_those_that_move_at_once,
    experts_in_8_bits_are_those_of_one_process,
    products_that_split_k_alike_have_the_bits_of_one_process,
    gradients_of_dealt_experts_may_be_float32,
    experts_are_refused_by_name,
    expert_operators_are_as_they_say,
    captured_layers_are_right_for_any_routing,
)
