"""Streams, CUDA graphs, threads, several GPUs, workspaces, and errors that only a GPU can have."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

from products import Product, allocates, integers  # noqa: E402
from served import skip_unless_served  # noqa: E402
from test_gemm_gpu import MODES, split  # noqa: E402

import cleave  # noqa: E402


def operands(m: int = 128, n: int = 128, k: int = 4096, device: str = "cuda") -> tuple[torch.Tensor, torch.Tensor]:
    a = integers((m, k), torch.float16, padding=0, device=device)
    b = integers((k, n), torch.float16, padding=0, device=device, column_major=True)
    return a, b


def exact(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.double() @ b.double()).half()


# --- streams ---


@pytest.mark.parametrize("how", ["current", "object", "integer"])
def test_other_streams_are_ordered(how: str) -> None:
    a, b = operands()
    out = torch.empty(128, 128, dtype=torch.float16, device="cuda")
    late = torch.zeros_like(a)
    cleave.gemm(late, b, out=out)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what comes before its input is ready would multiply zeros
        late.copy_(a)
        if how == "current":
            cleave.gemm(late, b, out=out)
    if how == "object":
        cleave.gemm(late, b, out=out, stream=stream)
    if how == "integer":
        cleave.gemm(late, b, out=out, stream=stream.cuda_stream)
    stream.synchronize()
    assert torch.equal(out, exact(a, b))


def test_calls_return_before_the_gpu_is_done() -> None:
    a, b = operands()
    out = torch.empty(128, 128, dtype=torch.float16, device="cuda")
    cleave.gemm(a, b, out=out)
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    cleave.gemm(a, b, out=out)
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


@pytest.mark.parametrize("mode", MODES)
def test_streams_do_not_share_workspaces(mode: str) -> None:
    skip_unless_served("auto", mode)
    streams = [torch.cuda.Stream() for _ in range(4)]
    products = [Product(136, 200, 8200, options=split(mode)) for _ in streams]
    torch.cuda.synchronize()
    for _ in range(10):
        for stream, product in zip(streams, products, strict=True):
            with torch.cuda.stream(stream):
                product.run()
    torch.cuda.synchronize()
    for product in products:
        product.check()


def test_op_syncs_its_stream() -> None:
    a, b = operands()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        arguments = cleave.op.Gemm(element=torch.float16).run(a, b, sync=False)
        torch.cuda._sleep(50_000_000)
    assert not stream.query()
    arguments.sync()
    assert stream.query()
    assert torch.equal(arguments.D, exact(a, b))


# --- CUDA graphs ---


@pytest.mark.parametrize("mode", MODES)
def test_graphs_replay_with_new_contents(mode: str) -> None:
    skip_unless_served("auto", mode)
    a, b = operands()
    out = torch.empty(128, 128, dtype=torch.float16, device="cuda")
    plan = cleave.plan_gemm(a, b, out=out, **split(mode))
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    plan.prepare(stream)
    with torch.cuda.graph(graph, stream=stream):
        plan.run(a, b, out=out)
        plan.run(a, b, out=out)  # the second finds the counters as the first left them
    for _ in range(5):
        a.copy_(torch.randint(-3, 4, a.shape))
        b.copy_(torch.randint(-3, 4, b.shape))
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, exact(a, b))


def test_gemm_is_captured_with_its_new_output() -> None:
    a, b = operands()
    cleave.gemm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = cleave.gemm(a, b)
    a.copy_(torch.randint(-3, 4, a.shape))
    graph.replay()
    assert torch.equal(out, exact(a, b))


@pytest.mark.parametrize("mode", ["none", "parallel"])
def test_a_graph_outlives_its_plan(mode: str) -> None:
    """Plans that are not used any more go; kernels and workspaces, which graphs refer to, stay."""
    a, b = operands()
    options = split(mode)
    out = cleave.gemm(a, b, **options)
    expected = out.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = cleave.gemm(a, b, **options)
    for m in range(1, 20_000):  # more than are kept
        cleave.plan_problem(m, 64, 64, split_k_mode="none", kernel="portable")
    for rows in range(1, 129):  # also of those that the Python module remembers
        for columns in range(8, 48, 8):
            cleave.gemm(a[:rows], b[:, :columns], kernel="portable", split_k_mode="none")
    out.zero_()
    graph.replay()
    assert torch.equal(out, expected)
    a.copy_(integers(tuple(a.shape), torch.float16, padding=0, device="cuda"))
    graph.replay()
    assert torch.equal(out, cleave.gemm(a, b, **options))


def test_capture_without_prepare() -> None:
    """The kernel is one that no other test has compiled: its epilogue is unusual."""
    a = integers((136, 328), torch.bfloat16)
    b = integers((328, 72), torch.bfloat16)
    c = integers((136, 72), torch.float16)
    out = torch.full((136, 72), 7.0, dtype=torch.float16, device="cuda")
    bias = torch.ones(136, 1, dtype=torch.bfloat16, device="cuda")
    plan = cleave.plan_gemm(a, b, c=c, out=out, bias=bias, activation="silu")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with pytest.raises(cleave.CudaError, match="prepare"), torch.cuda.graph(graph):
        plan.run(a, b, c=c, out=out, bias=bias)
    torch.cuda.synchronize()
    assert (out == 7.0).all()
    plan.prepare()
    plan.run(a, b, c=c, out=out, bias=bias)
    assert not (out == 7.0).all()


# --- threads and devices ---


def test_threads() -> None:
    failures = []

    def work(seed: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(20):
                    product = Product(100 + 8 * seed, 72, 264 + 8 * i, c="D", options=split(MODES[i % 6], 2))
                    product.run()
                    product.check()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


two_gpus = pytest.mark.skipif(cleave.device_count() < 2, reason="needs two GPUs")


@two_gpus
def test_another_device_than_the_current_one() -> None:
    for device in ("cuda:1", "cuda:0", "cuda:1"):
        for mode in ("none", "parallel"):
            product = Product(136, 72, 4096, device=device, options=split(mode))
            product.run()
            product.check()
    assert torch.cuda.current_device() == 0


@two_gpus
def test_tensors_of_two_devices() -> None:
    a, b = operands()
    with pytest.raises(ValueError, match="a is on cuda:0, b on cuda:1"):
        cleave.gemm(a, b.to("cuda:1"))


@two_gpus
def test_a_stream_of_another_device() -> None:
    a, b = operands()
    with pytest.raises((ValueError, cleave.CudaError), match="device"):
        cleave.gemm(a, b, stream=torch.cuda.Stream("cuda:1"))


def test_a_tensor_of_the_host() -> None:
    a, b = operands()
    with pytest.raises(ValueError, match="a is on cuda:0, b on cpu"):
        cleave.gemm(a, b.cpu())
    with pytest.raises(ValueError, match="workspace is on cpu"):
        cleave.gemm(a, b, workspace=torch.zeros(1 << 20))


# --- workspaces ---


@pytest.mark.parametrize("mode", MODES)
def test_given_workspaces(mode: str) -> None:
    """They have exactly the size that the plan names, between canaries."""
    skip_unless_served("auto", mode)
    a, b = operands(m=136, n=200)
    out = torch.full((136, 200), 7.0, dtype=torch.float16, device="cuda")
    plan = cleave.plan_gemm(a, b, out=out, **split(mode))
    size = plan.workspace_size
    frame = torch.full((size + 512,), 99, dtype=torch.uint8, device="cuda")
    workspace = frame[256 : 256 + size]
    workspace[: plan.counter_size] = 0
    if size:
        with pytest.raises(ValueError, match=f"{size - 16} bytes"):
            plan.run(a, b, out=out, workspace=workspace[:-16])
        with pytest.raises(ValueError, match="16 bytes"):
            plan.run(a, b, out=out, workspace=frame[1 : 1 + size])
        assert (out == 7.0).all()
    for _ in range(3):
        out.fill_(float("nan"))
        plan.run(a, b, out=out, workspace=workspace)
        assert torch.equal(out, exact(a, b))
        assert not workspace[: plan.counter_size].any()
    assert (frame[:256] == 99).all() and (frame[256 + size :] == 99).all()


def test_released_workspaces_come_back() -> None:
    for _ in range(3):
        product = Product(136, 72, 4096, options=split("parallel"))
        product.run()
        product.check()
        cleave.release_workspaces()


def test_runs_allocate_nothing() -> None:
    a, b = operands()
    out = torch.empty(128, 128, dtype=torch.float16, device="cuda")
    plan = cleave.plan_gemm(a, b, out=out, **split("parallel"))
    plan.run(a, b, out=out)
    assert not allocates(lambda: plan.run(a, b, out=out))


# --- other frameworks ---


def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    a = cupy.random.randint(-3, 4, (136, 328)).astype(cupy.float16)
    b = cupy.random.randint(-3, 4, (328, 72)).astype(cupy.float16)
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        d = cleave.gemm(a, b)
        assert type(d) is cupy.ndarray and d.dtype == cupy.float16
        stream.synchronize()
    assert (d == (a.astype(cupy.float64) @ b.astype(cupy.float64)).astype(cupy.float16)).all()


def test_cuda_array_interface() -> None:
    """What Numba and PyCUDA speak, without naming a device."""
    a, b = operands()
    out = torch.empty(128, 128, dtype=torch.float16, device="cuda")

    class Only:
        def __init__(self, tensor: torch.Tensor, **changes):
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__ | changes

    torch.cuda.synchronize()
    assert cleave.gemm(Only(a), Only(b, stream=1), out=out) is out
    torch.cuda.synchronize()
    assert torch.equal(out, exact(a, b))


def test_read_only_cuda_arrays() -> None:
    a, b = operands()
    out = torch.full((128, 128), 7.0, dtype=torch.float16, device="cuda")

    class ReadOnly:
        def __init__(self, tensor: torch.Tensor):
            interface = tensor.__cuda_array_interface__
            self.__cuda_array_interface__ = interface | {"data": (interface["data"][0], True)}

    with pytest.raises(ValueError, match="out is read-only"):
        cleave.gemm(a, b, out=ReadOnly(out))
    cleave.gemm(ReadOnly(a), ReadOnly(b), out=out)
    torch.cuda.synchronize()
    assert torch.equal(out, exact(a, b))
