"""Sums of groups of K that are added to float32: its rows come through shared memory while the tile is multiplied
(config/staged_c.h), or, of deep groups and of wide tiles, TMA adds to it (epilogue/store_added.h)."""

from __future__ import annotations

from itertools import pairwise

import pytest

import cleave
from cleave import _core

torch = pytest.importorskip("torch", minversion="2.10")

KERNELS = (  # by depth one or the other
    *(("float8", f"sm90 128x128{shared}") for shared in ("", " multicast 2x1", " multicast 1x2")),
    *(("float8", f"sm90 {tile}") for tile in ("128x192", "256x96", "64x128", "64x64")),
    *(("bfloat16", f"sm90 {tile}") for tile in ("128x128", "128x128 multicast 1x2", "128x192", "64x128", "64x64")),
)
DEEP = (("float8", "sm90 128x152"),)
WIDE = (("float8", "sm90 256x128"), ("bfloat16", "sm90 256x128"), ("bfloat16", "sm90 128x256"))
OTHERS = (  # that read C from global memory
    *(("float8", f"sm90 {of}") for of in ("128x128 multicast 2x1 stream_k 1", "64x64 cluster 2", "64x64 parallel 4")),
    *(("bfloat16", f"sm90 128x128 {of}") for of in ("stream_k 1", "parallel 2", "serial 2", "pingpong")),
    *(("bfloat16", of) for of in ("sm90 64x64 cluster 2", "portable 64x64", "portable 128x128 parallel 2")),
)
ROOMS = (1536, 4096)  # of the groups together; from 1792 and 3584 on they are deep on average
ANY = [(*kernel, room) for kernel in (*KERNELS, *WIDE) for room in ROOMS] + [(*kernel, ROOMS[1]) for kernel in DEEP]
ENDS = ([128, 128, 1280, 1536], [0, 0, 0, 1536], [1536, 1536, 1536, 1536], [0, 0, 0, 0], [512, 1024, 1152, 1408])
CANARY = -77.0


class Sums:
    """[m, K] times [K, n], of integers: float8 has scales of 1x128 of both. Those of a k block lie side by side, as a
    lane loads them, or not (`apart`)."""

    def __init__(self, m: int, n: int, dtype: str = "float8", room: int = ROOMS[0], apart: bool = False) -> None:
        torch.manual_seed(m * n)
        self.scaled = dtype == "float8"
        own = torch.float8_e4m3fn if self.scaled else torch.bfloat16
        self.a, self.b = (torch.randint(-4, 5, (x, room), device="cuda").to(own) for x in (m, n))
        least, end = (-2, 3) if self.scaled else (0, 1)
        scales = [2.0 ** torch.randint(least, end, (room // 128, x), device="cuda") for x in (m, n)]
        self.scale_a, self.scale_b = (x.T.contiguous() if apart else x.T for x in scales)
        self.offs = torch.zeros(4, dtype=torch.int32, device="cuda")

    def run(self, kernel: str | None = None, beta: float = 1.0, alpha: float = 1.0, **given) -> None:
        given |= {"scale_a": self.scale_a, "scale_b": self.scale_b.T} if self.scaled else {}
        plan = cleave.plan_grouped_gemm(self.a, self.b.T, self.offs, alignment=128, **given)
        if kernel is not None:
            plan = _core.plan_as(plan, kernel)
        plan.run(self.a, self.b.T, offs=self.offs, alpha=alpha, beta=beta, **given)

    def expected(self) -> torch.Tensor:
        a, b = (
            x.double() * scale.double().repeat_interleave(128, 1)
            for x, scale in ((self.a, self.scale_a), (self.b, self.scale_b))
        )
        return torch.stack([a[:, begin:end] @ b[:, begin:end].T for begin, end in pairwise([0, *self.offs.tolist()])])


def padded(m: int, n: int, pitch: int, first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers [4, m, n] that begin with element `first` of a buffer, and that buffer, which is larger."""
    buffer = torch.full((4 * m * pitch + 8,), CANARY, device="cuda")
    view = buffer[first : first + 4 * m * pitch].view(4, m, pitch)[:, :, :n]
    view.copy_(torch.randint(-8, 9, (4, m, n), device="cuda"))
    return view, buffer


@pytest.mark.parametrize(("dtype", "kernel", "room"), [*ANY, *((*kernel, room) for kernel in OTHERS for room in ROOMS)])
@pytest.mark.parametrize("shape", [(320, 264, 264, 0), (1000, 516, 520, 4), (264, 130, 132, 2)])
@pytest.mark.parametrize("apart", [False, True])
def test_sums_are_added_in_place(dtype: str, kernel: str, room: int, shape: tuple[int, ...], apart: bool) -> None:
    """Also where groups are empty, whose tiles are passed over."""
    m, n, pitch, first = shape
    if apart and dtype != "float8":
        pytest.skip("has no scales")
    if kernel.endswith("x152") and first % 4:
        pytest.skip("TMA adds to rows of whole 16 bytes")
    sums = Sums(m, n, dtype, room, apart)
    for ends in ENDS:
        sums.offs.copy_(torch.tensor(ends))
        d, buffer = padded(m, n, pitch, first)
        want = d.double()
        others = buffer.clone()
        for _ in range(2):
            sums.run(kernel, c=d, out=d)
            want += sums.expected()
        assert torch.equal(d.double(), want)
        others[first : first + 4 * m * pitch].view(4, m, pitch)[:, :, :n] = d
        assert torch.equal(buffer, others)


@pytest.mark.parametrize(("dtype", "kernel", "room"), ANY)
@pytest.mark.parametrize("beta", [-0.5, 0.0])
def test_c_apart(dtype: str, kernel: str, room: int, beta: float) -> None:
    """It is not read where beta is 0, so it may be NaN then."""
    m, n = 520, 392
    sums, out = Sums(m, n, dtype, room), torch.empty(4, m, n, device="cuda")
    for ends in ENDS:
        sums.offs.copy_(torch.tensor(ends))
        c, _ = padded(m, n, 400, 0)
        want = 2.0 * sums.expected() + (beta * c.double() if beta else 0.0)
        if not beta:
            c.fill_(float("nan"))
        out.fill_(CANARY)
        sums.run(kernel, alpha=2.0, beta=beta, c=c, out=out)
        assert torch.equal(out.double(), want)


MANY = [
    (dtype, f"sm90 {tile}", room)
    for dtype in ("float8", "bfloat16")
    for tile in ("128x128", "128x128 multicast 2x1", "64x64", "256x128")
    for room in ROOMS
] + [(*kernel, ROOMS[1]) for kernel in DEEP]


@pytest.mark.parametrize(("dtype", "kernel", "room"), MANY)
@pytest.mark.parametrize("m", [5636, 5637])  # whole lines of scales, or not
def test_many_tiles(dtype: str, kernel: str, room: int, m: int) -> None:
    """An odd number in a column, so that pairs reach beyond D, the last with few rows; several tiles a CTA."""
    n = 2880
    sums, d = Sums(m, n, dtype, room), torch.randint(-8, 9, (4, m, n), device="cuda").float()
    for ends in ([128, 256, 384, 512], [0, 896, 896, 1536]):
        sums.offs.copy_(torch.tensor(ends))
        want = d + sums.expected().float()  # integers, or 16ths, below 2^20
        for _ in range(3):
            out = d.clone()
            sums.run(kernel, c=out, out=out)
            assert torch.equal(out, want)


@pytest.mark.parametrize("kernel", ["sm90 128x128", "sm90 128x152"])
def test_many_tiles_of_a_c_apart(kernel: str) -> None:
    """Empty groups' stages have scales of zero, between other tiles of the same CTA."""
    m, n, room = 2564, 2052, ROOMS[1]
    sums, out = Sums(m, n, room=room), torch.empty(4, m, n, device="cuda")
    c = torch.randint(-8, 9, (4, m, n), device="cuda").float()
    for ends in ([0, 0, 4096, 4096], [1280, 1280, 2560, 2560]):
        sums.offs.copy_(torch.tensor(ends))
        out.fill_(CANARY)
        sums.run(kernel, beta=0.5, c=c, out=out)
        assert torch.equal(out, 0.5 * c + sums.expected().float())


@pytest.mark.parametrize("room", ROOMS)
def test_what_replays_add(room: int) -> None:
    """By the kernel that the library chooses, with groups of other sizes each time."""
    sums, d = Sums(640, 512, room=room), torch.zeros(4, 640, 512, device="cuda")
    sums.run(c=d, out=d)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            sums.run(c=d, out=d)
    d.zero_()
    want = torch.zeros_like(d, dtype=torch.float64)
    for ends in ENDS:
        sums.offs.copy_(torch.tensor(ends))
        graph.replay()
        want += 3 * sums.expected()
    assert torch.equal(d.double(), want)


@pytest.mark.parametrize("room", ROOMS)
def test_what_is_subnormal_stays_or_is_zero(room: int) -> None:
    sums = Sums(128, 128, "bfloat16", room)
    sums.a.zero_()
    sums.offs.copy_(torch.tensor([128, 256, 384, 512]))
    d = torch.full((4, 128, 128), 1e-40, device="cuda")
    sums.run("sm90 128x128", c=d, out=d)
    assert ((d == 0) | (d == torch.tensor(1e-40))).all()
