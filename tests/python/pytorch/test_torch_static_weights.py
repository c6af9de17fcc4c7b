"""static_weights of cleave.torch's layers: which products are told, what keeps it, and when the GPU is waited for."""

from __future__ import annotations

import copy
import io
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import W4A16Linear, W8A8Linear, W8A8SwiGLU, fuse, replace_linears  # noqa: E402
from cleave.torch._static_weights import StaticWeights  # noqa: E402

# What replace_linears makes of a layer of 64 features.
KINDS: dict[str, dict[str, Any]] = {
    "int8": {},
    "float8_e4m3fn": {"activation": 0.1, "smooth": {"0": torch.ones(64)}},
    "int4": {"group_size": 64},
    "nvfp4": {},
}
kinds = pytest.mark.parametrize("kind", KINDS)


class Products(TorchDispatchMode):
    """static_b of each product, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.static: list[bool] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function.__name__.partition(".")[0] in ("scaled_gemm", "mixed_gemm"):
            self.static.append((options or {}).get("static_b", False))
        return function(*arguments, **options or {})


def static_of(layer: nn.Module, x: torch.Tensor | None = None) -> list[bool]:
    with Products() as products:
        layer(torch.randn(4, 64).bfloat16() if x is None else x)
    return products.static


def layer_of(kind: str, **options: Any) -> StaticWeights:
    model = nn.Sequential(nn.Linear(64, 48).bfloat16())
    replace_linears(model, kind, **KINDS[kind], **options)
    return model[0]


# --- which products are told ---


@kinds
def test_products_are_told(kind: str) -> None:
    for static in (True, False):
        layer = layer_of(kind, static_weights=static)
        assert layer.static_weights is static and f"static_weights={static}" in repr(layer)
        assert static_of(layer) == [static]
        layer.static_weights = not static
        assert static_of(layer) == [not static]


@kinds
def test_compiled_products_are_told(kind: str) -> None:
    told = []

    def backend(module: torch.fx.GraphModule, _: Any) -> Any:
        told.extend(node.kwargs["static_b"] for node in module.graph.nodes if "static_b" in node.kwargs)
        return module

    torch.compiler.reset()  # forwards are compiled once for each kind
    layer, x = layer_of(kind), torch.randn(4, 64).bfloat16()
    call = torch.compile(layer, backend=backend, fullgraph=True)
    for layer.static_weights in (True, False):
        call(x)
    assert told == [True, False]
    torch.compiler.reset()


def test_by_default_weights_are_static() -> None:
    linear = nn.Linear(64, 48)
    weight, scale = cleave.quantize(linear.weight.detach(), "int8")
    for layer in (
        W8A8Linear(64, 48),
        W8A8Linear.from_linear(linear),
        W8A8Linear.from_quantized(weight, scale),
        W8A8SwiGLU(64, 96),
        W4A16Linear(64, 48, group_size=64),
        W4A16Linear.from_linear(linear, 64),
        W4A16Linear.from_packed(cleave.pack_weights(linear.weight.detach(), 64)),
    ):
        assert layer.static_weights


def test_a_product_with_gradients_is_told() -> None:
    for static in (True, False):
        x = torch.randn(4, 64).bfloat16().requires_grad_()
        layer = layer_of("int4", static_weights=static)
        assert static_of(layer, x) == [static]
        layer(x).sum().backward()
        assert torch.equal(x.grad, x.new_ones(4, 48) @ cleave.dequantize_weights(layer.weights(), torch.bfloat16))


@kinds
def test_results_are_the_same(kind: str) -> None:
    layer, x = layer_of(kind), torch.randn(4, 64).bfloat16()
    y = layer(x)
    layer.static_weights = False
    assert torch.equal(layer(x), y)


# --- what keeps it ---


def saved(layer: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@kinds
def test_copies_and_loading_keep_it(kind: str) -> None:
    layer = layer_of(kind, static_weights=False)
    for kept in (copy.deepcopy(layer), saved(layer), layer.half(), layer.to("meta")):
        assert not kept.static_weights
    for static in (True, False):
        made = layer_of(kind, static_weights=static)
        made.load_state_dict(layer_of(kind, static_weights=not static).state_dict())
        assert made.static_weights is static


def test_layers_that_were_pickled_before_are_static() -> None:
    layer = layer_of("int8")
    del layer.__dict__["static_weights"]
    assert static_of(saved(layer)) == [True]


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(64, 128), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize("static", [True, False])
def test_fused_layers_keep_it(static: bool) -> None:
    model = nn.Sequential(MLP())
    replace_linears(model, "int8", static_weights=static)
    fused = fuse(model)
    assert type(model[0].gate_up) is W8A8SwiGLU
    assert static_of(model) == [static] * 2
    fused.undo()
    assert static_of(model) == [static] * 3


def test_layers_that_differ_stay_apart() -> None:
    model = nn.Sequential(MLP())
    replace_linears(model, "int8")
    model[0].up.static_weights = False
    assert fuse(model).left == [("0", "they differ in static_weights")]


# --- when the GPU is waited for ---


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A copy of the first buffer, at each wait."""
    waits: list[Any] = []
    monkeypatch.setattr(
        StaticWeights, "wait_for_weights", lambda layer: waits.append(next(layer.buffers()).clone().view(torch.uint8))
    )
    return waits


@kinds
def test_whoever_writes_the_weights_waits_for_it(kind: str, seen: list[Any]) -> None:
    layer = layer_of(kind)
    own = next(layer.buffers()).view(torch.uint8)
    assert len(seen) == 1 and torch.equal(seen[-1], own)
    copy.deepcopy(layer)
    assert len(seen) == 2 and torch.equal(seen[-1], own)
    other = layer_of(kind)
    seen.clear()
    for assign in (False, True):
        layer.load_state_dict(other.state_dict(), assign=assign)
        assert torch.equal(seen[-1], next(other.buffers()).view(torch.uint8))
    assert len(seen) == 2
    nn.Sequential(layer).to(torch.float16)
    assert len(seen) == 3


def test_fused_weights_are_waited_for(seen: list[Any]) -> None:
    model = nn.Sequential(MLP())
    replace_linears(model, "int8")
    seen.clear()
    fuse(model)
    (weight,) = seen
    assert torch.equal(weight, model[0].gate_up.weight.view(torch.uint8))


def on_gpu(monkeypatch: pytest.MonkeyPatch, initialised: bool, capturing: bool) -> tuple[StaticWeights, list[str]]:
    """A layer on a GPU that is none, and what is asked of its stream."""
    asked: list[str] = []
    stream = SimpleNamespace(synchronize=lambda: asked.append("synchronize"))
    gpu = {"current_stream": lambda: stream, "device": nullcontext}
    gpu |= {"is_initialized": lambda: initialised, "is_current_stream_capturing": lambda: capturing}
    for name, function in gpu.items():
        monkeypatch.setattr(torch.cuda, name, function)
    with FakeTensorMode():
        return W8A8Linear(64, 48, device="cuda:0"), asked


def test_waiting_is_for_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, asked = on_gpu(monkeypatch, initialised=True, capturing=False)
    layer.wait_for_weights()
    assert asked == ["synchronize"]
    layer.static_weights = False
    layer.wait_for_weights()
    assert asked == ["synchronize"]


def test_nothing_is_waited_for_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, asked = on_gpu(monkeypatch, initialised=False, capturing=False)
    layer.wait_for_weights()
    W8A8Linear(64, 48).wait_for_weights()
    assert not asked


def test_weights_that_a_graph_writes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, asked = on_gpu(monkeypatch, initialised=True, capturing=True)
    with pytest.raises(RuntimeError, match="buffers of W8A8Linear are written while a stream is being captured"):
        layer.wait_for_weights()
    layer.static_weights = False
    layer.wait_for_weights()
    assert not asked
