"""cleave.scaled_gemm in CUDA graphs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from scaled_products import E4M3, KINDS, make, random_operands, random_scales  # noqa: E402
from served import skip_unless_served  # noqa: E402
from test_gemm_gpu import MODES  # noqa: E402

import cleave  # noqa: E402


class Noise:
    """Work on a stream of its own, to run beside what is tested and shift which block is first."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.factor = torch.randn(2048, 2048, device="cuda")
        self.sink = torch.empty_like(self.factor)
        for tensor in (self.factor, self.sink):  # not to be used anew while this stream works
            tensor.record_stream(self.stream)
        torch.cuda.synchronize()
        self.make()  # what cuBLAS allocates, it allocates before any capture
        torch.cuda.synchronize()

    def make(self) -> None:
        with torch.cuda.stream(self.stream):
            for _ in range(5):
                torch.mm(self.factor, self.factor, out=self.sink)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_graphs_replay_with_new_contents(mode: str, kind: dict) -> None:
    """Captured on a stream of its own while another one works; every input changes in between."""
    skip_unless_served("auto", mode, kind["dtype"])
    product, *others = (make(128, 136, 4096, mode=mode, amax=True, **kind) for _ in range(4))
    stream, noise, graph = torch.cuda.Stream(), Noise(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        product.run()
    with torch.cuda.graph(graph, stream=stream):
        noise.make()
        for _ in range(2):  # the second finds the counters as the first left them
            product.run()
    for other in others:
        for name in ("a", "b", "scale_a", "scale_b", "azp_values", "azp_adj"):
            if getattr(product, name) is not None:
                getattr(product, name).copy_(getattr(other, name))
        product.amax_value.zero_()
        product.out.fill_(float("nan"))
        product.expected = other.expected
        noise.make()
        graph.replay()
        product.check()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["int8", E4M3])
def test_ten_thousand_replays_are_equal_bit_by_bit(mode: str, dtype: str) -> None:
    skip_unless_served("auto", mode, dtype)
    m, n, k = 64, 2112, 7168
    a, b = random_operands(m, n, k, dtype)
    scale_a, scale_b = random_scales(("row", "row"), m, n, k)
    out = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    plan = cleave.plan_scaled_gemm(a, b, scale_a, scale_b, out=out, split_k_mode=mode)
    stream, noise, graph = torch.cuda.Stream(), Noise(), torch.cuda.CUDAGraph()
    plan.prepare(stream)
    first = plan.run(a, b, scale_a=scale_a, scale_b=scale_b, out=out).clone()
    per_replay = 100
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(per_replay):
            out.fill_(float("nan"))
            plan.run(a, b, scale_a=scale_a, scale_b=scale_b, out=out)
            different += (out.view(torch.int16) != first.view(torch.int16)).sum()
    for i in range(10_000 // per_replay):
        if i % 2:
            noise.make()
        graph.replay()
    assert different.item() == 0


def test_capture_of_forks_and_joins() -> None:
    """Two products side by side, and a third that needs both."""
    kind = {"dtype": E4M3, "scaling": ("row", "row")}
    skip_unless_served("auto", dtype=E4M3)
    left, right = make(128, 256, 4096, **kind), make(128, 256, 4096, **kind)
    for product in (left, right):
        product.run()
    total = torch.empty(128, 128, dtype=torch.float32, device="cuda")
    last = cleave.plan_gemm(left.out, right.out.mT, out=total)
    main, fork = torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    for stream in (main, fork):
        with torch.cuda.stream(stream):
            left.run()
            right.run()
    last.prepare(main)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=main):
        fork.wait_stream(main)
        left.run()
        with torch.cuda.stream(fork):
            right.run()
        main.wait_stream(fork)
        last.run(left.out, right.out.mT, out=total)
    for product in (left, right):
        product.out.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(total, last.run(left.out, right.out.mT))
    left.check()
    right.check()


def test_capture_without_prepare() -> None:
    """The kernel is one that no other test has compiled: its epilogue is unusual."""
    product = make(
        72, 136, 336, dtype="int8", scaling=("row", "tensor"), azp="row", amax=True,
        bias="column", bias_dtype="float16", activation="silu", c="float16", out_dtype="float16",
    )  # fmt: skip
    graph = torch.cuda.CUDAGraph()
    product.out.fill_(7.0)
    torch.cuda.synchronize()
    with pytest.raises(cleave.CudaError, match="prepare"), torch.cuda.graph(graph):
        product.run()
    torch.cuda.synchronize()
    assert (product.out == 7.0).all()
    product.run()
    product.check()
