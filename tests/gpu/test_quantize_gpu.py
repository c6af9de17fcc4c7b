"""cleave.quantize on the GPU: bitwise what the CPU backend gives, streams, CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from products import allocates, framed  # noqa: E402

import cleave  # noqa: E402

INPUTS = (torch.float16, torch.bfloat16, torch.float32)
OUTPUTS = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
GRANULARITIES = ("tensor", "row", "block_1x128", "block_128x128")
CANARY = 77


def assert_same(results: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """Bit by bit, but for the bits of NaNs."""
    assert len(results) == len(expected)
    for result, reference in zip(results, expected, strict=True):
        result = result.cpu()
        assert result.dtype == reference.dtype and result.shape == reference.shape
        if result.dtype != torch.int32:
            nan = result.float().isnan() & reference.float().isnan()
            result, reference = result.float()[~nan], reference.float()[~nan]
        assert torch.equal(result, reference)


def check(x: torch.Tensor, dtype: torch.dtype, granularity: str, **options: Any) -> None:
    host = {name: value.cpu() if torch.is_tensor(value) else value for name, value in options.items()}
    assert_same(
        cleave.quantize(x, dtype, granularity, **options),
        cleave.quantize(x.cpu(), dtype, granularity, **host),
    )


def values(rows: int, cols: int, dtype: torch.dtype, padding: int = 0) -> torch.Tensor:
    x, _ = framed((rows, cols), dtype, float("nan"), False, padding, "cuda")
    x.copy_(torch.randn(rows, cols, device="cuda") * torch.randn(rows, 1, device="cuda").exp2())
    return x


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("output", OUTPUTS, ids=str)
@pytest.mark.parametrize("source", INPUTS, ids=str)
def test_equals_the_cpu(source: torch.dtype, output: torch.dtype, granularity: str) -> None:
    for rows, cols, padding in (
        (1, 1, 0), (3, 8, 8), (64, 7168, 0), (300, 1024, 16), (257, 130, 3), (17, 2050, 0),
        (128, 4096, 4), (5, 33001, 0), (4096, 512, 0),
    ):  # fmt: skip
        check(values(rows, cols, source, padding), output, granularity)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("output", OUTPUTS, ids=str)
def test_powers_of_two(output: torch.dtype, granularity: str) -> None:
    for rows, cols in ((3, 8), (64, 7168), (257, 130), (5, 33001)):
        x = values(rows, cols, torch.bfloat16)
        check(x, output, granularity, use_ue8m0=True)
        if granularity.startswith("block"):
            check(x, output, granularity, use_ue8m0=True, transpose=True)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_large_matrices(granularity: str) -> None:
    x = values(4096, 7168, torch.bfloat16)
    check(x, torch.float8_e4m3fn, granularity)
    if not granularity.startswith("block"):
        check(x, torch.int8, granularity, symmetric=False)
        check(x, torch.int8, granularity, smooth=torch.rand(7168, device="cuda") + 0.5)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_given_scales(granularity: str) -> None:
    x = values(300, 1000, torch.float16)
    scale = cleave.quantize(x, torch.int8, granularity)[1] * 0.7
    check(x, torch.int8, granularity, scale=scale)
    if not granularity.startswith("block"):
        zero = torch.arange(scale.numel(), dtype=torch.int32, device="cuda") % 50 - 25
        check(x, torch.int8, granularity, scale=scale, zero=zero, symmetric=False)


@pytest.mark.parametrize("granularity", ["block_1x128", "block_128x128"])
@pytest.mark.parametrize("source", INPUTS, ids=str)
def test_transposes(source: torch.dtype, granularity: str) -> None:
    for rows, cols in ((1, 1), (128, 256), (300, 1000), (257, 130), (1024, 7168)):
        for major in ("k", "mn"):
            check(values(rows, cols, source), torch.float8_e4m3fn, granularity, transpose=True,
                  scale_major=major)  # fmt: skip


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_unusual_values(granularity: str) -> None:
    for bad in (float("nan"), float("inf"), 1e-40, 0.0):
        x = values(200, 1000, torch.float32)
        x[3] = bad
        x[150, 700] = bad
        for output in OUTPUTS:
            check(x, output, granularity)
    check(torch.zeros(200, 1000, device="cuda"), torch.int8, granularity)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_empty_matrices(granularity: str) -> None:
    for shape in ((0, 64), (64, 0), (0, 0)):
        check(torch.empty(shape, device="cuda"), torch.int8, granularity)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_writes_nothing_else(granularity: str) -> None:
    for rows, cols in ((130, 257), (64, 1024), (3, 8)):
        x = values(rows, cols, torch.bfloat16, 8)
        for padding in (8, 3):
            out, frame = framed((rows, cols), torch.int8, CANARY, False, padding, "cuda")
            expected, _ = cleave.quantize(x.cpu(), "int8", granularity)
            cleave.quantize(x, "int8", granularity, out=out)
            assert torch.equal(out.cpu(), expected)
            out.fill_(CANARY)
            assert (frame == CANARY).all(), "elements beside q were written"


def test_unaligned_memory() -> None:
    for offset in (1, 2, 4):
        x = torch.randn(64 * 1024 + offset, device="cuda").bfloat16()[offset:].view(64, 1024)
        out = torch.empty(64 * 1024 + offset, dtype=torch.int8, device="cuda")[offset:]
        smooth = torch.rand(1024 + offset, device="cuda")[offset:] + 0.5
        q, _ = cleave.quantize(x, out=out.view(64, 1024), smooth=smooth)
        assert torch.equal(q.cpu(), cleave.quantize(x.cpu(), smooth=smooth.cpu())[0])


# --- streams and CUDA graphs ---


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_other_streams_are_ordered(granularity: str) -> None:
    x = values(128, 4096, torch.bfloat16)
    late = torch.zeros_like(x)
    cleave.quantize(late, "int8", granularity)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what comes before its input is ready would quantise zeros
        late.copy_(x)
        results = cleave.quantize(late, "int8", granularity)
    stream.synchronize()
    assert_same(results, cleave.quantize(x.cpu(), "int8", granularity))


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_graphs_replay_with_new_contents(granularity: str) -> None:
    """On a side stream, while another stream works."""
    x = values(128, 4096, torch.bfloat16)
    q = torch.empty(128, 4096, dtype=torch.float8_e4m3fn, device="cuda")
    scale = torch.empty_like(cleave.quantize(x, q.dtype, granularity)[1])
    options = {"out": q, "scale_out": scale}
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    cleave.plan_quantize(x, q.dtype, granularity, **options).prepare(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        cleave.quantize(x, q.dtype, granularity, **options)
        cleave.quantize(x, q.dtype, granularity, **options)  # finds the counters as left
    busy = values(64, 4096, torch.bfloat16)
    for _ in range(5):
        x.copy_(torch.randn(x.shape))
        scale.fill_(float("nan"))
        with torch.cuda.stream(other):
            cleave.quantize(busy, q.dtype, granularity)
        graph.replay()
        torch.cuda.synchronize()
        assert_same((q, scale), cleave.quantize(x.cpu(), q.dtype, granularity))


def test_many_replays_are_equal() -> None:
    x = values(64, 4096, torch.bfloat16)
    results = cleave.quantize(x, "int8", "tensor")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = cleave.quantize(x, "int8", "tensor", out=torch.empty_like(results[0]))
        different = (again[0] != results[0]).sum() + (again[1] != results[1]).sum()
    total = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(1000):
        graph.replay()
        total += different
    assert total.item() == 0


def test_a_quantised_product_in_one_graph() -> None:
    """Each kernel may start before the one before it has ended."""
    x, w = values(64, 2048, torch.bfloat16), values(512, 2048, torch.bfloat16)
    b, scale_b = cleave.quantize(w, "float8_e4m3fn")

    def forward() -> torch.Tensor:
        a, scale_a = cleave.quantize(x, "float8_e4m3fn")
        return cleave.scaled_gemm(a, b.T, scale_a, scale_b.T)

    expected = forward()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = forward()
    for _ in range(50):
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, expected)


def test_capture_without_prepare() -> None:
    """The kernel is one that no other test has compiled."""
    x = values(24, 2056, torch.float16)
    smooth = torch.ones(2056, device="cuda")
    out = torch.full((24, 2056), CANARY, dtype=torch.int8, device="cuda")
    options = {"symmetric": False, "smooth": smooth, "out": out}
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with pytest.raises(cleave.CudaError, match="prepare"), torch.cuda.graph(graph):
        cleave.quantize(x, "int8", "tensor", **options)
    torch.cuda.synchronize()
    assert (out == CANARY).all()
    cleave.plan_quantize(x, "int8", "tensor", **options).prepare()
    cleave.quantize(x, "int8", "tensor", **options)
    assert not (out == CANARY).all()


def test_runs_with_memory_of_their_own_allocate_nothing() -> None:
    x = values(64, 4096, torch.bfloat16)
    q, scale = cleave.quantize(x, "int8", "tensor")
    assert not allocates(lambda: cleave.quantize(x, "int8", "tensor", out=q, scale_out=scale))


def test_tensors_of_the_host_are_refused() -> None:
    x = values(4, 8, torch.float32)
    with pytest.raises(ValueError, match="x is on cuda:0, smooth on cpu"):
        cleave.quantize(x, smooth=torch.ones(8))
