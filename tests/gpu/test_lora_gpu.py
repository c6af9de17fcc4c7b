"""cleave.torch.lora on the GPU: every rank, adapters without tokens, whatever offsets a graph finds."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import cleave.torch  # noqa: E402
from cleave.testing.group_sizes import ranges_of, spread_over  # noqa: E402

ROWS, FEATURES, OUTPUTS = 300, 2048, 1536
SIZES = {
    "one adapter": (ROWS,),
    "one row": (1, 0, 1, 1, 0),
    "skewed": (200, *[1] * 40, 0),
    "256 adapters": spread_over(256, ROWS, "zipf"),
    "no rows": (0, 0, 0),
}

ranks = pytest.mark.parametrize("rank", [8, 16, 32, 64])


def adapters(count: int, rank: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """x, a, b, and a residual."""
    torch.manual_seed(rank)
    x, y = (torch.randn(ROWS, width, device="cuda").to(dtype) for width in (FEATURES, OUTPUTS))
    a = (torch.randn(count, rank, FEATURES, device="cuda") / FEATURES**0.5).to(dtype)
    b = (torch.randn(count, OUTPUTS, rank, device="cuda") / rank**0.5).to(dtype)
    return x, a, b, y


def ends(sizes: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([end for _, end in ranges_of(sizes)], dtype=torch.int32, device="cuda")


def check(made: torch.Tensor, operands: tuple[torch.Tensor, ...], sizes: tuple[int, ...]) -> None:
    x, a, b, y = operands
    expected = y.double()
    for (begin, end), down, up in zip(ranges_of(sizes), a, b, strict=True):
        hidden = (x[begin:end].double() @ down.double().mT).to(x.dtype).double()
        expected[begin:end] += 0.5 * hidden @ up.double().mT
    tolerance = 2 * torch.finfo(x.dtype).eps
    torch.testing.assert_close(made.double(), expected, rtol=tolerance, atol=2 * tolerance)
    assert torch.equal(made[sum(sizes) :], y[sum(sizes) :])


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@ranks
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_row_gets_its_adapter(sizes: tuple[int, ...], rank: int, dtype: torch.dtype) -> None:
    x, a, b, y = adapters(len(sizes), rank, dtype)
    made = cleave.torch.lora(x, a, b, ends(sizes), 0.5, y)
    check(made, (x, a, b, y), sizes)
    for _ in range(3):
        assert torch.equal(cleave.torch.lora(x, a, b, ends(sizes), 0.5, y), made)


@ranks
def test_a_graph_reads_the_offsets_that_it_finds(rank: int) -> None:
    x, a, b, y = adapters(8, rank, torch.bfloat16)
    offs, out = torch.zeros(8, dtype=torch.int32, device="cuda"), torch.empty_like(y)
    cleave.torch.lora(x, a, b, offs, 0.5, y, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cleave.torch.lora(x, a, b, offs, 0.5, y, out=out)
    for sizes in ((37,) * 8, (0, 0, 299, 0, 1, 0, 0, 0), (0,) * 8, (1,) * 8):
        offs.copy_(ends(sizes))
        graph.replay()
        check(out, (x, a, b, y), sizes)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("rank", "features", "outputs"), [(11, 77, 53), (3, 64, 64), (40, 1000, 72), (64, 8, 8)])
def test_sizes_that_fill_no_strip(rank: int, features: int, outputs: int, dtype: torch.dtype) -> None:
    """Beside each matrix, and in it past its sizes, there are NaNs; where out's are, nothing is written."""
    sizes = (33, 0, 1, 90, 16)
    made = []
    for shape, scale in (((ROWS, features), 1.0), ((5, rank, features), features), ((5, outputs, rank), rank)):
        whole = torch.full((*shape[:-1], shape[-1] + 3), float("nan"), device="cuda", dtype=dtype)
        whole[..., : shape[-1]] = torch.randn(shape, device="cuda") / scale**0.5
        made.append(whole[..., : shape[-1]])
    wide = torch.full((ROWS, outputs + 3), float("nan"), device="cuda", dtype=dtype)
    y = wide[:, :outputs].copy_(torch.randn(ROWS, outputs, device="cuda"))
    kept = y.clone()
    cleave.torch.lora(*made, ends(sizes).long(), 0.5, y, out=y)
    check(y, (*made, kept), sizes)
    assert wide[:, outputs:].isnan().all()


@pytest.mark.parametrize("rank", [16, 64])
def test_offsets_of_no_meaning_write_nowhere_else(rank: int) -> None:
    x, a, b, y = adapters(4, rank, torch.bfloat16)
    wide = torch.cat([torch.zeros_like(y), y, torch.zeros_like(y)])
    out = wide[ROWS : 2 * ROWS]
    for offs in ((-5, 10**9, 7, -(2**31)), (300, 0, 300, 0), (2**31 - 1,) * 4, (-1,) * 4):
        cleave.torch.lora(x, a, b, torch.tensor(offs, dtype=torch.int32, device="cuda"), 0.5, out, out=out)
    assert not wide[:ROWS].any() and not wide[2 * ROWS :].any()


@ranks
def test_gradients(rank: int) -> None:
    sizes = (100, 0, 1, 150)
    x, a, b, y = adapters(len(sizes), rank, torch.bfloat16)
    leaves = [each.requires_grad_() for each in (x, a, b, y)]
    grads = torch.autograd.grad(cleave.torch.lora(x, a, b, ends(sizes), 0.5, y).square().sum(), leaves)
    wide = [each.detach().double().requires_grad_() for each in leaves]
    parts = [
        0.5 * wide[0][begin:end] @ wide[1][g].mT @ wide[2][g].mT for g, (begin, end) in enumerate(ranges_of(sizes))
    ]
    parts.append(torch.zeros(ROWS - sum(sizes), OUTPUTS, device="cuda", dtype=torch.float64))
    expected = torch.autograd.grad((wide[3] + torch.cat(parts)).square().sum(), wide)
    for ours, theirs in zip(grads, expected, strict=True):
        assert (ours.double() - theirs).norm() <= 0.02 * theirs.norm()


@pytest.mark.parametrize("residual", [False, True])
def test_out_may_be_a_view_of_x(residual: bool) -> None:
    x, a, b, y = adapters(2, 16, torch.bfloat16)
    offs, y = ends((3, len(x) - 3)), y if residual else None
    expected = cleave.torch.lora(x, a, b, offs, 0.5, y)
    both = torch.cat((x, x, x), 1)
    out = both[:, 8 : 8 + b.shape[1]]
    cleave.torch.lora(both[:, : x.shape[1]], a, b, offs, 0.5, y, out=out)
    assert torch.equal(out, expected)


def test_out_may_be_a_residual_that_is_a_view_of_x() -> None:
    x, a, b, _ = adapters(2, 16, torch.bfloat16)
    offs = ends((3, len(x) - 3))
    kept = x.clone()
    view = kept[:, 8 : 8 + OUTPUTS]
    expected = cleave.torch.lora(x, a, b, offs, 0.5, view.clone())
    cleave.torch.lora(kept, a, b, offs, 0.5, view, out=view)
    assert torch.equal(view, expected)
