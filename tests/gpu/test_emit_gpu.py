"""Emitted extensions on a GPU: their own tests, streams, graphs, two GPUs, and what they cost."""

from __future__ import annotations

import fcntl
import importlib
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from emitted_builds import build_together, run_own_tests  # noqa: E402
from emitted_operations import CONVOLUTIONS, OPERATIONS  # noqa: E402

import cleave  # noqa: E402
from cleave import _core  # noqa: E402

PLANNED = {operation.name: operation for operation in OPERATIONS}
MOST_TIME = 1.02  # of an emitted operator, where 1 is the library's own
# A call's time on a host that launches an empty kernel in EMPTY_KERNEL_US; a slower one may take
# longer in proportion.
MOST_HOST_US = 8.0
EMPTY_KERNEL_US = 2.4


def arch() -> str:
    return "sm_90a" if torch.cuda.get_device_capability() == (9, 0) else "sm_80"


def with_c() -> Any:
    op = cleave.op.Gemm(element=torch.bfloat16, element_C=torch.float32)
    a, b = torch.empty(512, 1024), torch.empty(256, 1024)
    a, b = (x.to("cuda", torch.bfloat16) for x in (a, b))
    c = torch.empty(512, 256, device="cuda")
    return op.construct(a, b.mT, c, beta=1.0, split_k_mode="serial", split_k_slices=2)


def with_zero_points() -> Any:
    a, b = torch.ones(2, 256, 512, device="cuda", dtype=torch.int8)
    row, column = torch.ones(256, 1, device="cuda"), torch.ones(1, 256, device="cuda")
    azp = torch.ones(256, device="cuda", dtype=torch.int32)
    return cleave.op.ScaledGemm().construct(a, b.mT, scale_A=row, scale_B=column, azp=azp, azp_adj=azp)


def with_8bit_d() -> Any:
    a, b = torch.ones(2, 256, 512, device="cuda").to(torch.float8_e4m3fn)
    one = torch.ones(1, device="cuda")
    op = cleave.op.ScaledGemm(element_D=torch.float8_e4m3fn)
    return op.construct(a, b.mT, scale_A=one, scale_B=one, scale_D=one, amax=one)


PLANS: dict[str, tuple[tuple[str, ...], Callable[[], Any]]] = {
    operation.name: (operation.archs, lambda o=operation: o.plan("cuda:0"))
    for operation in [*OPERATIONS, *CONVOLUTIONS]
} | {
    "with_c": (("sm_80", "sm_90a"), with_c),
    "with_zero_points": (("sm_80", "sm_90a"), with_zero_points),
    "with_8bit_d": (("sm_90a",), with_8bit_d),
}


# The size, and options, of what is timed.
TIMED: dict[str, tuple[tuple[int, int, int], dict[str, Any]]] = {
    "timed_dense": ((4096, 4096, 4096), {}),
    "timed_parallel": ((128, 128, 16384), {"split_k_mode": "parallel", "split_k_slices": 32}),
    "timed_serial": ((256, 1024, 8192), {"split_k_mode": "serial", "split_k_slices": 8}),
    "timed_stream_k": ((1024, 1536, 8192), {"split_k_mode": "stream_k"}),
}


def plan_of(name: str) -> Any:
    if name not in TIMED:
        return PLANS[name][1]()
    size, options = TIMED[name]
    return cleave.plan_gemm(*operands(size), **options)


def build(folder: Path) -> Path:
    """By its own setup.py."""
    environment = os.environ | {"MAX_JOBS": "2"}
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


# So many operations are built together, by whichever process needs one of them first.
TOGETHER = 8


class Built(dict):
    """The folders of operations, by name. All processes of a run share them."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        served = [name for name, (archs, _) in PLANS.items() if arch() in archs]
        self.groups = [served[i : i + TOGETHER] for i in range(0, len(served), TOGETHER)] + [list(TIMED)]

    def __missing__(self, name: str) -> Path:
        group = next((group for group in self.groups if name in group), None)
        if group is None:
            pytest.skip(f"{name} has no kernel for {arch()}")
        folder = self.root / group[0]
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "built").exists():
                build_together({name: (plan_of(name), [arch()]) for name in group}, folder, "-O2")
                (folder / "built").touch()
        self.update({name: folder / name for name in group})
        return self[name]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if not torch.cuda.is_available():
        pytest.skip("needs torch with CUDA, and a GPU")
    own = tmp_path_factory.getbasetemp()
    return Built((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "emitted")


def loaded(name: str, built: dict[str, Path]) -> Any:
    """The operator."""
    folder = str(built[name])
    if folder not in sys.path:
        sys.path.insert(0, folder)
    importlib.import_module(name)
    return getattr(torch.ops, name).gemm


def operands(plan_sizes: tuple[int, int, int], *batch: int, device: str = "cuda") -> list[Any]:
    """bfloat16 matrices with K as the unit stride of both."""
    m, n, k = plan_sizes
    a = torch.randn(*batch, m, k, device=device, dtype=torch.bfloat16)
    b = torch.randn(*batch, n, k, device=device, dtype=torch.bfloat16).mT
    return [a, b]


@pytest.fixture(scope="session")
def fresh() -> Any:
    """Makes processes that have not met CUDA and need not import PyTorch, which would take longer than their tests."""
    # Else PyTorch asks the driver whether there is a GPU, and a process that has asked can fork none that may use it.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._inductor.compile_fx"])
    return context.Process


@pytest.mark.parametrize("name", PLANS)
def test_its_own_tests_pass(name: str, built: dict[str, Path], fresh: Any) -> None:
    child = fresh(target=run_own_tests, args=(name, built[name]))
    child.start()
    child.join()
    said = (built[name] / "said").read_text()
    assert child.exitcode == 0, said
    assert "skipped" not in said.splitlines()[-1]


def test_an_exported_program_can_be_packaged(built: dict[str, Path], tmp_path: Path) -> None:
    """With an emitted operator and one of the library's, compiled ahead (AOTInductor) and loaded again."""
    import cleave.torch  # noqa: F401

    gemm = loaded("bf16", built)

    class Layers(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.ops.cleave.gemm(gemm(x, w.t()).sin(), w)

    x, w = (torch.randn(n, 256, device="cuda", dtype=torch.bfloat16) for n in (64, 512))
    program = torch.export.export(Layers(), (x, w), dynamic_shapes={"x": {0: torch.export.Dim.AUTO}, "w": None})
    # By the system's compiler: where $CXX links its own C++ library into each package, PyTorch's fail by themselves.
    with torch._inductor.config.patch({"cpp.cxx": (None, "/usr/bin/g++")}):
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "layers.pt2"))
    packaged = torch._inductor.aoti_load_package(package)
    for given in (x, x[:24]):
        torch.testing.assert_close(packaged(given, w), Layers()(given, w))


@pytest.mark.parametrize("name", ["bf16", "bf16_parallel", "bf16_stream_k"])
def test_sizes_that_were_not_planned(name: str, built: dict[str, Path]) -> None:
    gemm = loaded(name, built)
    clusters = "cluster" in PLANNED[name].plan().kernel_name
    for m, n, k in ((8, 8, 8), (1, 4096, 512), (1000, 24, 4096), (136, 200, 16384), (0, 8, 8)):
        a, b = operands((m, n, k))
        if clusters and k < 512 and m > 0:  # nothing is computed for no rows
            with pytest.raises(ValueError, match="splits K among"):
                gemm(a, b)
            continue
        d = gemm(a, b)
        expected = a.double() @ b.double()
        assert d.shape == expected.shape
        if d.numel():
            assert (d - expected).abs().max() <= 1e-2 * expected.abs().max()


def test_streams_do_not_share_counters(built: dict[str, Path]) -> None:
    gemm = loaded("bf16_stream_k", built)
    cases = [operands((256, 384, 4096)) for _ in range(4)]
    expected = [gemm(*case) for case in cases]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    results: list[list[Any]] = [[] for _ in cases]
    for _ in range(20):
        for stream, case, result in zip(streams, cases, results, strict=True):
            with torch.cuda.stream(stream):
                result.append(gemm(*case))
    torch.cuda.synchronize()
    for result, d in zip(results, expected, strict=True):
        assert all(torch.equal(x, d) for x in result)


def test_graphs_with_branches_beside_eager_calls(built: dict[str, Path]) -> None:
    gemm = loaded("bf16_stream_k", built)
    first, second = operands((256, 384, 4096)), operands((256, 384, 2048))
    expected = gemm(*first), gemm(*second)
    graph, branch = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        branch.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(branch):
            d = [gemm(*second) for _ in range(3)]
        c = [gemm(*first) for _ in range(3)]
        torch.cuda.current_stream().wait_stream(branch)
    side = torch.cuda.Stream()
    for _ in range(20):
        with torch.cuda.stream(side):
            graph.replay()
        eager = gemm(*first)  # at the same time
        torch.cuda.synchronize()
        assert torch.equal(eager, expected[0])
        assert all(torch.equal(x, expected[0]) for x in c)
        assert all(torch.equal(x, expected[1]) for x in d)


def test_capture_does_not_disturb_later_captures(built: dict[str, Path]) -> None:
    gemm = loaded("bf16_stream_k", built)
    case = operands((256, 384, 4096))
    expected = gemm(*case)
    pool, graphs, results = torch.cuda.graph_pool_handle(), [], []
    for _ in range(3):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool=pool):
            results.append(gemm(*case))
    for _ in range(3):
        for graph, result in zip(graphs, results, strict=True):
            graph.replay()
            assert torch.equal(result, expected)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_gpu_that_is_not_the_current_one(built: dict[str, Path]) -> None:
    for name in ("bf16_bias_relu", "bf16_stream_k"):
        gemm = loaded(name, built)
        results = []
        for device in ("cuda:0", "cuda:1"):
            torch.manual_seed(0)
            a, b = (x.to(device) for x in operands((256, 384, 1024), device="cpu"))
            bias = [torch.zeros(384, device=device, dtype=torch.bfloat16)]
            results.append(gemm(a, b, *(bias if "bias" in name else [])).cpu())
            assert torch.cuda.current_device() == 0
        assert torch.equal(*results)
        with pytest.raises(ValueError, match="cuda:0"):
            gemm(a.to("cuda:0"), b, *bias[: "bias" in name])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_sources_built_by_nvcc(tmp_path: Path) -> None:
    operation = next(o for o in OPERATIONS if o.name == "bf16_bias_relu")
    plan = operation.plan("cuda:0")
    folder = build(cleave.emit.pytorch(plan, "from_sources", tmp_path / "x", archs=[arch()]))
    gemm = loaded("from_sources", {"from_sources": folder})
    a, b = operands((256, 384, 1024))
    bias = torch.randn(384, device="cuda", dtype=torch.bfloat16)
    expected = torch.relu(a.double() @ b.double() + bias)
    assert (gemm(a, b, bias) - expected).abs().max() <= 1e-2 * expected.max()


def replay_us(graph: Any, launches: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000 / launches


def captured(call: Callable[[], Any], launches: int) -> Any:
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            call()
    return graph


@pytest.mark.parametrize("name", TIMED)
def test_time_on_the_gpu(name: str, built: dict[str, Path]) -> None:
    size, options = TIMED[name]
    a, b = operands(size)
    out = torch.empty(size[0], size[1], device="cuda", dtype=torch.bfloat16)
    plan = cleave.plan_gemm(a, b, out=out, **options)
    gemm = loaded(name, built)
    launches = 50
    own = captured(lambda: plan.run(a, b, out=out), launches)
    emitted = captured(lambda: gemm.out(a, b, out=out), launches)
    times: list[tuple[float, float]] = []
    for _ in range(25):
        times.append((replay_us(own, launches), replay_us(emitted, launches)))
    own_us, emitted_us = (statistics.median(column) for column in zip(*times[5:], strict=True))
    assert emitted_us <= MOST_TIME * own_us, f"{emitted_us:.2f} us, the library {own_us:.2f} us"


@pytest.mark.parametrize("name", ["bf16", "bf16_parallel"])
def test_time_on_the_host(name: str, built: dict[str, Path]) -> None:
    """The least of many rounds: what else the host does, other tests say, lasts for many."""
    gemm = loaded(name, built)
    a, b = operands((64, 64, 512))
    calls, best = 200, float("inf")
    stream = torch.cuda.current_stream()
    floor = min(_core.launch_floor(0, calls, stream) for _ in range(20))
    most = MOST_HOST_US * max(1.0, floor / EMPTY_KERNEL_US)
    end = time.perf_counter() + 10
    with torch.inference_mode():
        while best > most and time.perf_counter() < end:
            gemm(a, b)
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                gemm(a, b)
            best = min(best, (time.perf_counter() - start) / calls * 1e6)
    assert best <= most, f"an empty kernel takes {floor:.2f} us"
