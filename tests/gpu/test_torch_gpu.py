"""torch.ops.cleave and cleave.torch's layers on CUDA tensors: streams, graphs, torch.compile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import torch_operators  # noqa: E402
from torch import nn  # noqa: E402
from torch.library import opcheck  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import W8A8Linear, replace_linears  # noqa: E402

ops = torch.ops.cleave

DTYPES = ("int8", "float8_e4m3fn")
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def needs_fp8(dtype: str) -> None:
    if dtype != "int8" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("8-bit floats need compute capability 8.9")


@pytest.mark.parametrize("name", sorted(torch_operators.every_name()))
def test_opcheck(name: str) -> None:
    for call in torch_operators.calls("cuda")[name]:
        op, arguments, options = call
        checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
        if torch_operators.uses_fp8(call):
            needs_fp8("float8")
        else:
            checks.append("test_schema")  # torch cannot compare 8-bit floats
        opcheck(op, arguments, options, test_utils=checks)


@pytest.mark.parametrize("name", sorted(torch_operators.every_name()))
def test_results_are_those_of_the_cpu(name: str) -> None:
    for on_gpu, on_cpu in zip(*(_drawn(name, device) for device in ("cuda", "cpu")), strict=True):
        for x, y in zip(on_gpu, on_cpu, strict=True):
            assert x.dtype == y.dtype and x.stride() == y.stride()
            # Neighbours in the coarsest type, since convolutions of float32 are tf32 on a GPU.
            exact = x.dtype in (torch.int8, torch.int32)
            tolerance = {"rtol": 0, "atol": 1} if exact else {"rtol": 0.26, "atol": 0.1}
            torch.testing.assert_close(x.cpu().float(), y.float(), **tolerance, equal_nan=True)


def _drawn(name: str, device: str) -> list[list[torch.Tensor]]:
    """What each call returns or writes, of operands that are the same on both devices."""
    results = []
    torch.manual_seed(0)
    for call in torch_operators.calls("cpu")[name]:
        op, arguments, options = call
        if torch_operators.uses_fp8(call):
            needs_fp8("float8")
        arguments, options = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda x: x.detach().to(device), (arguments, options)
        )
        result = op(*arguments, **options)
        if result is None:
            result = tuple(options[name] for name in torch_operators.WRITTEN if name in options)
        results.append(list(result) if isinstance(result, (tuple, list)) else [result])
    return results


# --- streams and devices ---


def test_the_current_stream_is_used() -> None:
    a, b = torch.randn(128, 4096, device="cuda"), torch.randn(4096, 128, device="cuda")
    late = torch.zeros_like(a)
    ops.gemm(late, b)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what comes before its input is ready would multiply zeros
        late.copy_(a)
        d = ops.gemm(late, b)
    assert not stream.query()
    stream.synchronize()
    assert torch.equal(d, ops.gemm(a, b))


two_gpus = pytest.mark.skipif(cleave.device_count() < 2, reason="needs two GPUs")


@two_gpus
@dtypes
def test_another_device_than_the_current_one(dtype: str) -> None:
    needs_fp8(dtype)
    layer = W8A8Linear.from_linear(nn.Linear(512, 256), dtype)
    x = torch.randn(16, 512)
    y = layer.to("cuda:1")(x.to("cuda:1"))
    assert y.device == torch.device("cuda:1") and torch.cuda.current_device() == 0
    torch.testing.assert_close(y.cpu(), layer.cpu()(x), rtol=0, atol=1e-2)


@two_gpus
def test_tensors_of_two_devices() -> None:
    a = torch.ones(16, 16, device="cuda:0")
    with pytest.raises(RuntimeError, match="a is on cuda:0, b on cuda:1"):
        ops.gemm(a, a.to("cuda:1"))


def test_a_tensor_of_the_host() -> None:
    a = torch.ones(16, 16, device="cuda")
    with pytest.raises(RuntimeError, match="a is on cuda:0, b on cpu"):
        ops.gemm(a, a.cpu())
    with pytest.raises(RuntimeError, match="a is on cpu, b on cuda:0"):
        ops.gemm(a.cpu(), a)


# --- CUDA graphs ---


def linears(dtype: str, static: bool = False) -> nn.Module:
    """Three of them, the middle one with so many inputs that its K is split."""
    needs_fp8(dtype)
    model = nn.Sequential(nn.Linear(256, 8192), nn.GELU(), nn.Linear(8192, 256), nn.Linear(256, 64))
    model = model.to("cuda", torch.bfloat16)
    replace_linears(model, dtype, 0.05 if static else "dynamic")
    return model


def draw(tokens: int) -> torch.Tensor:
    return torch.randn(tokens, 256, dtype=torch.bfloat16, device="cuda")


@dtypes
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_replays_follow_the_input(dtype: str, static: bool) -> None:
    model, x = linears(dtype, static), draw(16)
    with torch.no_grad():
        model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        for _ in range(100):
            x.copy_(draw(16))
            graph.replay()
            assert torch.equal(y, model(x))


@dtypes
def test_prepared_layers_can_be_captured(dtype: str) -> None:
    """On a stream that has run nothing, of a number of tokens that nothing else has."""
    needs_fp8(dtype)
    layer = W8A8Linear.from_linear(nn.Linear(1024, 512).to("cuda", torch.bfloat16), dtype)
    layer.prepare(37)
    x = torch.randn(37, 1024, dtype=torch.bfloat16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        y = layer(x)
    graph.replay()
    assert torch.equal(y, layer(x))


def test_capture_without_prepare() -> None:
    """The kernel is one that no other test has compiled: its epilogue is unusual."""
    a = torch.ones(136, 328, dtype=torch.bfloat16, device="cuda")
    b = torch.ones(328, 72, dtype=torch.bfloat16, device="cuda")
    c = torch.ones(136, 72, device="cuda")
    bias = torch.ones(136, 1, dtype=torch.float16, device="cuda")

    def product() -> torch.Tensor:
        return ops.gemm(a, b, bias, c, out_dtype=torch.float16, activation="gelu_tanh")

    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="prepare"), torch.cuda.graph(graph):
        product()
    torch.cuda.synchronize()
    assert (product() == 330).all()


@dtypes
def test_graphs_that_share_a_pool(dtype: str) -> None:
    """Graphs of several batch sizes, replayed in the order of their captures."""
    model = linears(dtype)
    pool = torch.cuda.graph_pool_handle()
    inputs = [draw(tokens) for tokens in (64, 16, 1)]
    captured = []
    with torch.no_grad():
        for x in inputs:
            model(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                y = model(x)
            captured.append((graph, y))
        for _ in range(10):
            for x, (graph, y) in zip(inputs, captured, strict=True):
                x.copy_(draw(len(x)))
                graph.replay()
                assert torch.equal(y, model(x))


@dtypes
def test_forks_inside_a_capture(dtype: str) -> None:
    model, x = linears(dtype), draw(16)
    side = torch.cuda.Stream()

    def both() -> torch.Tensor:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            other = model(-x)
        one = model(x)
        torch.cuda.current_stream().wait_stream(side)
        other.record_stream(torch.cuda.current_stream())
        return one - other

    with torch.no_grad():
        both()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = both()
        for _ in range(20):
            x.copy_(draw(16))
            graph.replay()
            assert torch.equal(y, model(x) - model(-x))


@dtypes
def test_replays_beside_other_work(dtype: str) -> None:
    """1,000 replays on one stream, all the same, while the same layers run on another."""
    model, x = linears(dtype), draw(16)
    other, busy = draw(16), torch.cuda.Stream()
    stream = torch.cuda.Stream()
    with torch.no_grad():
        expected, expected_other = model(x), model(other)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            y = model(x)
        wrong = torch.zeros(2, dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        for _ in range(1000):
            with torch.cuda.stream(busy):
                wrong[0] += (model(other) != expected_other).sum()
            with torch.cuda.stream(stream):
                graph.replay()
                wrong[1] += (y != expected).sum()
        torch.cuda.synchronize()
    assert wrong.tolist() == [0, 0]


class Product(nn.Module):
    """A linear layer with an activation, that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(128, 256, device="cuda") / 16)
        self.bias = nn.Parameter(torch.randn(128, device="cuda"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.cleave.gemm(x, self.weight.t(), self.bias, activation="silu")


def gradients(model: Callable, module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    y = model(x)
    return [y, *torch.autograd.grad((y**2).mean(), list(module.parameters()))]


def test_graphed_callables_train() -> None:
    module = Product()
    x = torch.randn(32, 256, device="cuda")
    graphed = torch.cuda.make_graphed_callables(Product(), (torch.randn_like(x),))
    graphed.load_state_dict(module.state_dict())
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        found, expected = gradients(graphed, graphed, x), gradients(module, module, x)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@dtypes
def test_graphed_layers(dtype: str) -> None:
    model, x = linears(dtype), draw(16)
    with torch.no_grad():
        expected = model(x)
        graphed = torch.cuda.make_graphed_callables(model, (torch.randn_like(x),))
        assert torch.equal(graphed(x), expected)


# --- torch.compile ---

modes = pytest.mark.parametrize("mode", ["default", "reduce-overhead"])


@modes
@dtypes
def test_compiled_layers(dtype: str, mode: str, cudagraph_skips: Callable[[], int]) -> None:
    model = linears(dtype)
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    with torch.no_grad():
        for tokens in (16, 16, 16, 16, 1, 1, 1):
            x = draw(tokens)
            torch.compiler.cudagraph_mark_step_begin()
            # Where torch fuses GELU, it rounds it elsewhere, and then a value is quantised to the
            # next step.
            torch.testing.assert_close(compiled(x).clone(), model(x), rtol=0.1, atol=0.05)
    assert cudagraph_skips() == 0


@modes
def test_compiled_training(mode: str, cudagraph_skips: Callable[[], int]) -> None:
    module = Product()
    compiled = torch.compile(module, fullgraph=True, mode=mode)
    for _ in range(5):
        x = torch.randn(32, 256, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        found = [y.clone() for y in gradients(compiled, module, x)]
        torch.testing.assert_close(found, gradients(module, module, x), rtol=1e-4, atol=1e-5)
    assert cudagraph_skips() == 0


@modes
def test_compiled_outputs(mode: str) -> None:
    """`out` and `amax` are written in the middle of a graph, and read."""

    def function(q: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out = torch.empty(q.shape[0], w.shape[1], device="cuda")
        amax = torch.zeros(1, device="cuda")
        torch.ops.cleave.scaled_gemm.out(q, w, scale, scale, out=out, amax=amax)
        return out / amax

    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, mode=mode)
    w = torch.randint(-9, 9, (64, 256), device="cuda").to(torch.int8).t()
    scale = torch.ones(1, device="cuda")
    for _ in range(4):
        q = torch.randint(-9, 9, (32, 256), device="cuda").to(torch.int8)
        torch.compiler.cudagraph_mark_step_begin()
        expected = function(q, w, scale)
        torch.testing.assert_close(compiled(q, w, scale).clone(), expected)
        assert expected.abs().max() == 1
