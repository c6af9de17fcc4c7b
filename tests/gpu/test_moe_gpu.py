"""cleave.moe and the quantisation of ragged groups on the GPU: bitwise what the CPU backend gives,
streams, CUDA graphs that are replayed with other ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from products import framed  # noqa: E402

import cleave  # noqa: E402

moe = cleave.moe

# Tokens, top_k, experts: one block and several, where their numbers change, as many experts as there may be, no tokens.
ROUTINGS = (
    (1, 1, 1), (37, 3, 5), (64, 8, 256), (256, 8, 64), (2049, 1, 512), (2560, 1, 31), (2561, 1, 32), (1000, 8, 64),
    (1025, 8, 1024), (4096, 8, 256), (4097, 8, 512), (5000, 2, 1), (40000, 2, 7), (65536, 8, 512), (0, 2, 4),
)  # fmt: skip
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def draw_ids(tokens: int, top_k: int, experts: int, kind: str = "any") -> torch.Tensor:
    if kind == "one":
        return torch.full((tokens, top_k), experts // 2, device="cuda")
    low, high = (-2, experts + 3) if kind == "dropped" else (0, experts)
    return torch.randint(low, high, (tokens, top_k), device="cuda")


def assert_same(made: Any, expected: Any) -> None:
    """Bit by bit."""
    pairs = zip(made, expected, strict=True) if isinstance(made, tuple) else [(made, expected)]
    for one, other in pairs:
        one, other = one.cpu(), other.cpu()
        assert one.shape == other.shape and one.dtype == other.dtype
        one, other = (x.flatten().clone().view(torch.uint8) for x in (one, other))
        assert torch.equal(one, other)


def check(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    def on_host(x: Any) -> Any:
        return x.cpu() if torch.is_tensor(x) else x

    made = function(*arguments, **options)
    assert_same(made, function(*map(on_host, arguments), **options))
    return made


@pytest.mark.parametrize("kind", ["any", "dropped", "one"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("routing", ROUTINGS, ids=str)
def test_sorting(routing: tuple[int, int, int], dtype: torch.dtype, kind: str) -> None:
    ids = draw_ids(*routing, kind).to(dtype)
    check(moe.expert_offsets, ids, routing[2])
    check(moe.sort_tokens, ids, routing[2])


@pytest.mark.parametrize("kind", ["any", "dropped"])
@pytest.mark.parametrize("columns", [1, 7, 8, 300, 2048, 7168])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8, torch.float8_e4m3fn], ids=str)
def test_permute_and_gather(dtype: torch.dtype, columns: int, kind: str) -> None:
    ids = draw_ids(300, 3, 20, kind)
    x = torch.randn(300, columns, device="cuda").to(dtype)
    rows, _, indices = check(moe.permute, x, ids, 20)
    assert_same(check(moe.gather, x, indices), rows)


@pytest.mark.parametrize("columns", [1, 7, 300, 2048, 7168])
@pytest.mark.parametrize("weights_dtype", [None, *FLOATS], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unpermute(dtype: torch.dtype, weights_dtype: torch.dtype | None, columns: int) -> None:
    for top_k in (1, 2, 5, 8):
        indices = moe.sort_tokens(draw_ids(200, top_k, 20, "dropped"), 20)[1]
        y = torch.randn(200 * top_k, columns, device="cuda").to(dtype)
        weights = weights_dtype and torch.rand(200, top_k, device="cuda").to(weights_dtype)
        check(moe.unpermute, y, indices, weights, top_k=top_k)


def test_rows_with_gaps() -> None:
    for columns, padding in ((256, 8), (100, 3), (1024, 24)):
        x, _ = framed((64, columns), torch.bfloat16, float("nan"), False, padding, "cuda")
        x.copy_(torch.randn(64, columns, device="cuda"))
        rows, _, indices = check(moe.permute, x, draw_ids(64, 2, 5, "dropped"), 5)
        y, _ = framed((128, columns), torch.bfloat16, float("nan"), False, padding, "cuda")
        check(moe.unpermute, y.copy_(rows), indices, top_k=2)


def test_indices_that_are_no_permutation_touch_nothing_else() -> None:
    indices = torch.tensor([7, -100, 0, 2**31 - 1], dtype=torch.int32, device="cuda")
    x = torch.ones(2, 64, device="cuda")
    assert moe.gather(x, indices).shape == (4, 64)
    assert moe.unpermute(torch.ones(4, 64, device="cuda"), indices, top_k=2).shape == (2, 64)
    torch.cuda.synchronize()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients(dtype: torch.dtype) -> None:
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    ops = torch.ops.cleave
    indices = moe.sort_tokens(draw_ids(100, 4, 9, "dropped"), 9)[1]
    for columns in (16, 1024, 333):
        grad, weights = torch.randn(100, columns), torch.rand(100, 4)
        y = torch.randn(400, columns).to(dtype)
        host = ops.moe_unpermute_backward(grad.to(dtype), y, indices.cpu(), weights)
        made = ops.moe_unpermute_backward(grad.to(dtype).cuda(), y.cuda(), indices, weights.cuda())
        assert_same(made[0], host[0])
        torch.testing.assert_close(made[1].cpu(), host[1], rtol=1e-4, atol=1e-3)


def test_a_graph_follows_its_ids() -> None:
    ids = draw_ids(4096, 4, 64)
    x, weights = torch.randn(4096, 512, device="cuda"), torch.rand(4096, 4, device="cuda")
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()

    def step() -> tuple[torch.Tensor, ...]:
        rows, offs, indices = moe.permute(x, ids, 64)
        only_offs = moe.expert_offsets(ids, 64)
        return rows, offs, indices, only_offs, moe.unpermute(rows, indices, weights)

    with torch.cuda.stream(stream):
        step()
        with torch.cuda.graph(graph, stream=stream):
            made = step()
        for kind in ("any", "dropped", "one"):
            ids.copy_(draw_ids(4096, 4, 64, kind))
            x.normal_()
            graph.replay()
            stream.synchronize()
            assert_same(made, step())
            assert_same(made[1:3], moe.sort_tokens(ids.cpu(), 64))
            assert_same(made[1], made[3])


def test_a_graph_sorts_whatever_it_finds() -> None:
    """Replays that follow each other: counters are as the one before leaves them."""
    ids, drawn = draw_ids(4096, 8, 256), [draw_ids(4096, 8, 256, kind) for kind in ("any", "dropped", "one", "any")]
    expected = [moe.sort_tokens(each.cpu(), 256) for each in drawn]
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        moe.sort_tokens(ids, 256)
        with torch.cuda.graph(graph, stream=stream):
            made = moe.sort_tokens(ids, 256)
        for i in range(200):
            ids.copy_(drawn[i % 4])
            for each in made:
                each.fill_(-7)
            graph.replay()
            stream.synchronize()
            assert_same(made, expected[i % 4])


def test_streams_do_not_share_counters() -> None:
    ids = [draw_ids(20000, 2, 100) for _ in range(4)]
    expected = [moe.sort_tokens(each.cpu(), 100) for each in ids]
    streams = [torch.cuda.Stream() for _ in ids]
    torch.cuda.synchronize()
    made: list[Any] = [None] * len(ids)
    for _ in range(50):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                made[i] = moe.sort_tokens(ids[i], 100)
    torch.cuda.synchronize()
    for one, other in zip(made, expected, strict=True):
        assert_same(one, other)


def test_nothing_waits_for_the_gpu() -> None:
    ids, x = draw_ids(512, 2, 8), torch.randn(512, 64, device="cuda")
    moe.unpermute(moe.permute(x, ids, 8)[0], moe.sort_tokens(ids, 8)[1], top_k=2)
    torch.cuda.set_sync_debug_mode("error")
    try:
        rows, _, indices = moe.permute(x, ids, 8)
        moe.unpermute(rows, indices, top_k=2)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# --- quantisation of ragged groups ---


def quantize(x: torch.Tensor, offs: torch.Tensor, dtype: torch.dtype) -> tuple[Any, ...]:
    return cleave.quantize(x, dtype, "block_1x128", transpose=True, offs=offs)


def draw_offs(groups: int, rows: int, rest: int) -> torch.Tensor:
    """Cuts of `rows`, of which the last `rest` belong to no group; some groups are empty."""
    cuts = torch.randint(0, rows - rest + 1, (groups - 1,)).sort().values
    cuts[: groups // 4] = 0
    ends = torch.cat([cuts, torch.tensor([rows - rest])])
    return ends.int().cuda()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8], ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_groups_equal_the_cpu(source: torch.dtype, dtype: torch.dtype) -> None:
    for groups, rows, rest, cols in (
        (1, 5, 0, 8), (3, 300, 0, 256), (7, 1000, 90, 136), (64, 4096, 0, 1024),
        (200, 700, 300, 72), (1024, 3000, 1, 16), (5, 400, 400, 31),
    ):  # fmt: skip
        x = torch.randn(rows, cols, device="cuda").to(source)
        check(quantize, x, draw_offs(groups, rows, rest), dtype)
        check(quantize, x, draw_offs(groups, rows, rest).long(), dtype)


def test_what_is_in_no_group_reaches_nothing() -> None:
    x = torch.full((400, 128), float("nan"), device="cuda")
    x[:130] = 1
    *_, q_t, scale_t, ends = quantize(x, torch.tensor([130], device="cuda"), torch.float8_e4m3fn)
    assert ends.tolist() == [130]
    assert (q_t[:, :130].float() == 448).all() and (q_t[:, 130:].float() == 0).all()
    assert scale_t.isfinite().all()


def test_wrong_offsets_stay_inside() -> None:
    x = torch.ones(300, 128, device="cuda")
    for offs in ([200, 100, 300], [-5, 2**31 - 1, 7], [300, 0] * 400):
        offsets = torch.tensor(offs, dtype=torch.int32, device="cuda")
        *_, q_t, _, ends = quantize(x, offsets, torch.float8_e4m3fn)
        torch.cuda.synchronize()
        assert (ends >= 0).all() and (ends <= q_t.shape[1]).all()


def test_a_graph_follows_its_offsets() -> None:
    x, offs = torch.randn(3000, 512, device="cuda").bfloat16(), draw_offs(16, 3000, 0)
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        quantize(x, offs, torch.float8_e4m3fn)
        with torch.cuda.graph(graph, stream=stream):
            made = quantize(x, offs, torch.float8_e4m3fn)
        for rest in (0, 500):
            offs.copy_(draw_offs(16, 3000, rest))
            graph.replay()
            stream.synchronize()
            assert_same(made, quantize(x.cpu(), offs.cpu(), torch.float8_e4m3fn))


def test_an_fp8_weight_gradient() -> None:
    offs = draw_offs(9, 2000, 100)
    dy, x = (torch.randn(2000, width, device="cuda").bfloat16() for width in (256, 384))
    *_, dy_t, scale_dy, ends = quantize(dy, offs, torch.float8_e4m3fn)
    *_, x_t, scale_x, _ = quantize(x, offs, torch.float8_e4m3fn)
    dw = cleave.grouped_gemm(dy_t, x_t.T, ends, alignment=128, scale_a=scale_dy, scale_b=scale_x.T, out_dtype="float32")
    begin = 0
    for group, end in enumerate(offs.tolist()):
        exact = dy[begin:end].double().T @ x[begin:end].double()
        assert (dw[group] - exact).norm() <= 0.06 * exact.norm()
        begin = end


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize(("tokens", "features"), [(5, 7), (300, 200), (2048, 2048), (33, 7168)])
def test_rows_of_8_bits_are_those_of_the_cpu(tokens: int, features: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, ids = torch.randn(tokens, features).bfloat16(), torch.randint(-1, 17, (tokens, 8))
    on_cpu = cleave.moe.permute(x, ids, 16, out_dtype=dtype)
    made = cleave.moe.permute(x.cuda(), ids.cuda(), 16, out_dtype=dtype)
    for one, other in zip(made, on_cpu, strict=True):
        assert torch.equal(one.cpu().view(torch.uint8), other.view(torch.uint8))
