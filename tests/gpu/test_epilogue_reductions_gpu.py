"""Reductions of D by epilogue functions on the GPU, in every mode and kernel: against float64, and the same bits."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from drawn_on_gpu import MODES, drawn_operation  # noqa: E402
from epilogue_operations import OPERATIONS  # noqa: E402
from epilogue_reductions import OVER, REDUCTIONS, drawn_reductions, reduced  # noqa: E402
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402
from cleave import _core  # noqa: E402


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", ["auto", "portable"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_drawn_reductions(operation: Any, kernel: str, mode: str) -> None:
    skip_unless_served(kernel, mode)
    for seed in range(6):
        random = Random(seed)
        op = drawn_operation(operation, random, seed, widest=520)
        if mode in op.refused_on_gpu:
            continue
        name = operation.__name__
        chosen = tuple((random.choice(REDUCTIONS), random.choice(OVER)) for _ in range(2))
        call = drawn_reductions(chosen)(scale=0.5)
        options: dict[str, Any] = {"split_k_mode": mode, "split_k_slices": None if mode == "none" else 3}
        d, *made = op.run(epilogue=call, kernel=kernel, out_dtype="float32", **options)
        for got, (reduction, over) in zip(made, chosen, strict=True):
            expected = reduced(d.double().cpu().numpy(), reduction, over, name, op.ranges)
            magnitude = reduced(d.double().abs().cpu().numpy(), reduction, over, name, op.ranges)
            assert got.dtype == torch.float32 and tuple(got.shape) == expected.shape
            error = np.abs(got.double().cpu().numpy() - expected)
            assert (error <= 3e-6 * magnitude + 1e-30).all(), (seed, reduction, over, d.shape)
        again = op.run(epilogue=call, kernel=kernel, out_dtype="float32", **options)
        assert all(torch.equal(x, y) for x, y in zip(again, (d, *made), strict=True)), "other bits in another run"


@cleave.epilogue
def with_norm(acc, bias: cleave.row):
    x = acc + bias
    return cleave.outputs(d=x, norm=cleave.sum_of_squares(x, over="columns"), largest=cleave.absmax(x))


@pytest.mark.parametrize("mode", ["none", "parallel", "stream_k"])
def test_tiles(mode: str) -> None:
    """D in bfloat16, which leaves by TMA, of a dozen of the tiles that the planner considers."""
    generator = torch.Generator("cuda").manual_seed(0)
    a, b = (torch.randn(shape, generator=generator, device="cuda").bfloat16() for shape in ((391, 1040), (1040, 456)))
    bias = torch.randn(456, generator=generator, device="cuda")
    x = a.double() @ b.double() + bias
    plan = cleave.plan_gemm(a, b, epilogue=with_norm(bias=bias), split_k_mode=mode)
    of_tiles = {tuple(c["kernel"].split()[:2]): c["kernel"] for c in plan.candidates}
    kernels = sorted(of_tiles.values())
    for kernel in kernels[:: max(len(kernels) // 12, 1)]:
        _, norm, largest = _core.plan_as(plan, kernel).run(a, b, epilogue=with_norm(bias=bias))
        torch.testing.assert_close(norm.double(), (x * x).sum(1), rtol=1e-4, atol=1e-2)
        torch.testing.assert_close(largest.double(), x.abs().max(), rtol=1e-4, atol=1e-3)


@cleave.epilogue
def with_sums(acc):
    return cleave.outputs(d=acc, rows=cleave.sum(acc, over="rows"), columns=cleave.sum(acc, over="columns"))


@pytest.mark.parametrize("sizes", [(16, 4096), (5, 1000), (3000, 64), (257, 30), (4100, 4104), (9, 8)])
@pytest.mark.parametrize("batch", [None, 3])
def test_lines_of_one_tile_and_of_many(sizes: tuple[int, int], batch: int | None) -> None:
    """Sums of integers, which are exact. Lines that a tile has alone it writes itself: nothing beside them."""
    m, n = sizes
    lead = () if batch is None else (batch,)
    a, b = (torch.randint(-2, 3, (*lead, *shape), device="cuda").bfloat16() for shape in ((m, 64), (64, n)))
    shapes = ((m, 1), (1, n)) if batch else ((m,), (n,))
    framed = [torch.full((3, *lead, *shape), 77.0, device="cuda") for shape in shapes]
    columns, rows = (x[1] for x in framed)
    d, *_ = cleave.gemm(a, b, epilogue=with_sums(), out=(None, rows, columns), out_dtype="float32")
    exact = a.double() @ b.double()
    assert torch.equal(d.double(), exact)
    assert torch.equal(columns.double(), exact.sum(-1, keepdim=batch is not None))
    assert torch.equal(rows.double(), exact.sum(-2, keepdim=batch is not None))
    for buffer in framed:
        buffer[1] = 77.0
        assert bool((buffer == 77.0).all())


@cleave.epilogue
def of_groups(acc, scale: cleave.scalar):
    x = acc * scale
    return cleave.outputs(d=x, rows=cleave.sum(x, over="rows"), largest=cleave.absmax(x))


def of_each_group(d: torch.Tensor, starts: list[int], counts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    parts = [d[start : start + count].double() for start, count in zip(starts, counts, strict=True)]
    reach = [part.abs().max() if part.numel() else part.new_zeros(()) for part in parts]
    return torch.stack([part.sum(0) for part in parts]), torch.stack(reach)


@pytest.mark.parametrize("mode", ["none", "parallel", "stream_k"])
def test_tiles_of_groups(mode: str) -> None:
    """Sums of small integers, which are exact, by a dozen of the tiles that the planner considers: groups in any order,
    empty ones among them, rows of none between them. Results lie between canaries."""
    counts = [129, 0, 1, 300, 7, 64, 128, 33]
    starts = [400, 390, 5, 530, 6, 840, 250, 910]
    bounds = {name: torch.tensor(x, device="cuda") for name, x in (("starts", starts), ("sizes", counts))}
    a = torch.randint(-2, 3, (1000, 256), device="cuda").bfloat16()
    b = torch.randint(-2, 3, (8, 264, 256), device="cuda").bfloat16().mT
    call = of_groups(scale=1.0)
    plan = cleave.plan_grouped_gemm(a, b, **bounds, epilogue=call, split_k_mode=mode)
    kernels = sorted({tuple(c["kernel"].split()[:2]): c["kernel"] for c in plan.candidates}.values())
    for kernel in kernels[:: max(len(kernels) // 12, 1)]:
        framed = [torch.full((3, *shape), 77.0, device="cuda") for shape in ((8, 264), (8,))]
        d = torch.full((1000, 264), 77.0, device="cuda", dtype=torch.bfloat16)
        out = (d, *(x[1] for x in framed))
        _core.plan_as(plan, kernel).run(a, b, **bounds, epilogue=call, out=out)
        exact = torch.zeros(1000, 264, dtype=torch.float64, device="cuda")
        for g, (start, count) in enumerate(zip(starts, counts, strict=True)):
            exact[start : start + count] = a[start : start + count].double() @ b[g].double()
        for made, expected in zip(framed, of_each_group(exact, starts, counts), strict=True):
            assert torch.equal(made[1].double(), expected), kernel
            assert bool((made[[0, 2]] == 77.0).all()), kernel


def test_groups_in_a_graph() -> None:
    """Where groups end changes between replays."""
    a = torch.randn(512, 128, device="cuda").bfloat16()
    b = torch.randn(4, 128, 256, device="cuda").bfloat16()
    offs = torch.tensor([100, 200, 300, 512], device="cuda", dtype=torch.int32)
    call = of_groups(scale=0.5)
    cleave.grouped_gemm(a, b, offs, epilogue=call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = cleave.grouped_gemm(a, b, offs, epilogue=call)
    for ends in ([100, 200, 300, 512], [0, 0, 512, 512], [1, 130, 131, 400]):
        offs.copy_(torch.tensor(ends))
        graph.replay()
        eager = cleave.grouped_gemm(a, b, offs, epilogue=call)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(captured, eager, strict=True))
        starts = [0, *ends[:-1]]
        sizes = [end - start for start, end in zip(starts, ends, strict=True)]
        expected = of_each_group(eager[0], starts, sizes)
        torch.testing.assert_close(eager[1].double(), expected[0], rtol=2e-2, atol=0.5)
        torch.testing.assert_close(eager[2].double(), expected[1], rtol=1e-2, atol=1e-2)


def test_quantised_in_the_same_launch() -> None:
    generator = torch.Generator("cuda").manual_seed(1)
    a, b = (torch.randn(shape, generator=generator, device="cuda").half() for shape in ((200, 512), (512, 384)))
    bias = torch.zeros(384, device="cuda")
    _, norm, largest = cleave.gemm(a, b, epilogue=with_norm(bias=bias), out_dtype="float32")
    for mode in ("none", "parallel", "cluster"):
        skip_unless_served("auto", mode)
        options: dict[str, Any] = {"out_scale": "block_1x128", "out_dtype": "float8_e4m3fn", "split_k_mode": mode}
        _, same, most, _ = cleave.gemm(a, b, epilogue=with_norm(bias=bias), **options)
        torch.testing.assert_close(same, norm, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(most, largest, rtol=1e-3, atol=1e-3)


def test_in_a_graph_and_with_gradients() -> None:
    import cleave.torch

    x = torch.randn(96, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(256, 192, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    bias = torch.zeros(192, device="cuda")

    def loss(d: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        return d.float().sum() + (norm * 0.125).sum()

    d, norm, largest = cleave.torch.gemm(x, weight, epilogue=with_norm(bias=bias))
    assert not largest.requires_grad
    got = torch.autograd.grad(loss(d, norm), (x, weight))
    exact = x.double() @ weight.double()
    expected = torch.autograd.grad(loss(exact, (exact * exact).sum(1)), (x, weight))
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine.float(), theirs.float(), rtol=5e-2, atol=5e-2 * theirs.abs().max().item())

    with torch.no_grad():
        cleave.gemm(x.detach(), weight.detach(), epilogue=with_norm(bias=bias))
        graph = torch.cuda.CUDAGraph()
        static = x.detach().clone()
        with torch.cuda.graph(graph):
            captured = cleave.gemm(static, weight.detach(), epilogue=with_norm(bias=bias))
        static.copy_(torch.randn_like(static))
        graph.replay()
        eager = cleave.gemm(static, weight.detach(), epilogue=with_norm(bias=bias))
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(captured, eager, strict=True))


@cleave.epilogue
def of_lines(acc, bias: cleave.row):
    x = acc + bias
    return cleave.outputs(d=x, norm=cleave.sum_of_squares(x, over="columns"), rows=cleave.sum(x, over="rows"))


def check_lines(d: torch.Tensor, norm: torch.Tensor, rows: torch.Tensor) -> None:
    x = d.double()
    torch.testing.assert_close(norm.double().view(-1), (x * x).sum(-1).view(-1), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(rows.double().view(-1), x.sum(-2).view(-1), rtol=1e-4, atol=1e-2)


def check_norm(d: torch.Tensor, norm: torch.Tensor, largest: torch.Tensor) -> None:
    torch.testing.assert_close(norm.double().view(-1), (d.double() ** 2).sum(-1).view(-1), rtol=1e-5, atol=1e-3)
    assert torch.equal(largest.view(-1), d.abs().amax((-1, -2)).view(-1))


@pytest.mark.parametrize("promise", [{"deterministic": "batch_invariant"}, {"sum_order": "k"}], ids=str)
@pytest.mark.parametrize(("n", "k"), [(512, 1024), (1000, 4096), (128, 16384)])
@pytest.mark.parametrize(("function", "check"), [(of_lines, check_lines), (with_norm, check_norm)])
def test_rows_that_depend_on_themselves_alone(
    function: Any, check: Any, n: int, k: int, promise: dict[str, str]
) -> None:
    generator = torch.Generator("cuda").manual_seed(2)
    a, b = (torch.randn(shape, generator=generator, device="cuda").bfloat16() for shape in ((600, k), (n, k)))
    bias = torch.randn(n, generator=generator, device="cuda")
    options = {"epilogue": function(bias=bias), "out_dtype": "float32", **promise}
    whole = cleave.gemm(a, b.T, **options)
    torch.testing.assert_close(whole[0].double(), a.double() @ b.double().T + bias, rtol=1e-4, atol=5e-2)
    check(*whole)
    for rows in (1, 2, 17, 64, 300):
        some = cleave.gemm(a[:rows], b.T, **options)
        check(*some)
        assert torch.equal(some[0], whole[0][:rows]) and torch.equal(some[1], whole[1][:rows]), rows
    batch = cleave.gemm(torch.stack([a[:64], a[64:128]]), b.T, **options)
    check(*batch)
    assert torch.equal(batch[1].view(-1), whole[1][:128])


@cleave.epilogue
def norm_and_sums(acc):
    return cleave.outputs(d=acc, norm=cleave.sum_of_squares(acc, over="columns"), sums=cleave.sum(acc, over="rows"))


@cleave.epilogue
def norm_and_largest(acc):
    return cleave.outputs(d=acc, norm=cleave.sum_of_squares(acc, over="columns"), largest=cleave.absmax(acc))


@pytest.mark.parametrize("function", [norm_and_sums, norm_and_largest])
def test_groups_that_depend_on_themselves_alone(function: Any) -> None:
    """What a group's rows come to depends on them alone, rows of no group are nobody's, and results lie between
    canaries; captured, too."""
    generator = torch.Generator("cuda").manual_seed(3)
    a = torch.randn(700, 256, generator=generator, device="cuda").bfloat16()
    b = torch.randn(4, 264, 256, generator=generator, device="cuda").bfloat16().mT
    options = {"out_dtype": "float32", "deterministic": "batch_invariant", "epilogue": function()}
    summed = function is norm_and_sums
    found = {}
    for ends in ([129, 129, 400, 690], [129, 140, 401, 691], [129, 129, 129, 129]):
        offs = torch.tensor(ends, dtype=torch.int32, device="cuda")
        framed = [torch.full((3, *shape), 77.0, device="cuda") for shape in ((700,), (4, 264) if summed else (4,))]
        norm, of_group = (x[1] for x in framed)
        d = torch.full((700, 264), 77.0, device="cuda")
        graph = torch.cuda.CUDAGraph()
        call = {"out": (d, norm, of_group), "zero_rest": False, **options}
        cleave.grouped_gemm(a, b, offs, **call)
        with torch.cuda.graph(graph):
            cleave.grouped_gemm(a, b, offs, **call)
        for x in (norm, of_group, d):
            x.fill_(77.0)
        graph.replay()
        for g, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            x = d[begin:end].double()
            torch.testing.assert_close(x, a[begin:end].double() @ b[g].double(), rtol=1e-4, atol=1e-2)
            torch.testing.assert_close(norm[begin:end].double(), (x * x).sum(1), rtol=1e-5, atol=1e-3)
            if summed:
                torch.testing.assert_close(of_group[g].double(), x.sum(0), rtol=1e-4, atol=1e-2)
            else:
                assert of_group[g] == (x.abs().max() if end > begin else 0)
            first = found.setdefault((g, begin, end), [norm[begin:end].clone(), of_group[g].clone()])
            assert torch.equal(first[0], norm[begin:end]) and torch.equal(first[1], of_group[g])
        assert bool((norm[ends[-1] :] == 77.0).all() and (d[ends[-1] :] == 77.0).all())
        assert all(bool((x[[0, 2]] == 77.0).all()) for x in framed)
    # The first group's rows and expert as the second's.
    order = torch.cat([torch.arange(129, 258), torch.arange(129), torch.arange(258, 700)]).cuda()
    offs = torch.tensor([129, 258, 400, 690], dtype=torch.int32, device="cuda")
    _, norm, of_group = cleave.grouped_gemm(a[order], b.mT[[1, 0, 2, 3]].mT, offs, **options)
    first = found[0, 0, 129]
    assert torch.equal(norm[129:258], first[0]) and torch.equal(of_group[1], first[1])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [9, (3, 30)])
@pytest.mark.parametrize("function", [norm_and_sums, norm_and_largest])
def test_more_classes_of_pixels_than_one_launch(function: Any, stride: Any, groups: int) -> None:
    generator = torch.Generator("cuda").manual_seed(4)
    size = (2, 32, 60, 64)
    w = torch.randn(64, 3, 3, 32 // groups, generator=generator, device="cuda").bfloat16().movedim(-1, 1)
    steps = (stride, stride) if isinstance(stride, int) else stride
    outputs = [(pixels + 2 - 3) // step + 1 for pixels, step in zip(size[2:], steps, strict=True)]
    dy = torch.randn(2, *outputs, 64, generator=generator, device="cuda").bfloat16().movedim(-1, 1)
    options = {"stride": stride, "padding": 1, "groups": groups, "out_dtype": "float32"}
    plain = cleave.conv2d_dgrad(size, w, dy, **options)
    d, norm, other = cleave.conv2d_dgrad(size, w, dy, epilogue=function(), **options)
    assert torch.equal(d, plain)
    torch.testing.assert_close(norm.double().view(-1), (d.double() ** 2).sum(1).view(-1), rtol=1e-5, atol=1e-3)
    if function is norm_and_sums:
        torch.testing.assert_close(other.double(), d.double().sum((0, 2, 3)), rtol=1e-4, atol=1e-2)
    else:
        assert torch.equal(other.view(()), d.abs().max())
