"""static_weights of layers on a GPU: whoever writes the weights is done before a call loads them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from torch import nn  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import W4A16Linear, W8A8Linear, fuse  # noqa: E402

SIZE = 8192  # its weights take long to write
FORMS: dict[str, Callable[..., Any]] = {
    "int8": lambda linear, **options: W8A8Linear.from_linear(linear, "int8", **options),
    "float8_e4m3fn": lambda linear, **options: W8A8Linear.from_linear(linear, "float8_e4m3fn", **options),
    "int4": lambda linear, **options: W4A16Linear.from_linear(linear, **options),
}
forms = pytest.mark.parametrize("form", FORMS)


def linear() -> nn.Linear:
    return nn.Linear(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)


def calls(make: Callable[[], nn.Module], x: torch.Tensor) -> torch.Tensor:
    """y of a layer that was made a moment ago, with others' weights where its own are now."""
    with torch.inference_mode():
        torch.empty(4 * SIZE * SIZE, device="cuda", dtype=torch.uint8).fill_(17)
        torch.cuda.synchronize()
        y = make()(x)
        torch.cuda.synchronize()
    return y


@forms
@pytest.mark.parametrize("tokens", [1, 16, 200])
def test_layers_that_were_just_made(form: str, tokens: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(tokens, SIZE, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        given = linear()
        slow = FORMS[form](given, static_weights=False)
        slow(x)
        torch.cuda.synchronize()
        with torch.inference_mode():
            expected = slow(x)
        assert torch.equal(calls(lambda given=given: FORMS[form](given), x), expected)
        fast = FORMS[form](given)
        assert torch.equal(calls(lambda fast=fast: copy.deepcopy(fast), x), expected)
        other = FORMS[form](linear())
        other.load_state_dict(slow.state_dict())
        assert torch.equal(calls(lambda other=other: other, x), expected)


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (W8A8Linear.from_linear(linear()) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def test_gates_that_were_just_fused() -> None:
    torch.manual_seed(0)
    x = torch.randn(16, SIZE, device="cuda", dtype=torch.bfloat16)
    model = nn.Sequential(MLP())
    fused = fuse(model)
    with torch.inference_mode():
        expected = model(x)
        fused.undo()
        for _ in range(5):
            fused = fuse(model)
            assert torch.equal(model(x), expected)
            fused.undo()


def test_a_capture_that_writes_weights_is_refused() -> None:
    layer = W8A8Linear.from_linear(linear())
    state = copy.deepcopy(layer.state_dict())
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="are written while a stream is being captured"), torch.cuda.graph(graph):
        layer.load_state_dict(state)
    torch.cuda.synchronize()


def test_graphs_see_weights_that_were_written_between_replays() -> None:
    """The last write by a kernel of Cleave's, whose dependents start early."""
    torch.manual_seed(0)
    x = torch.randn(16, SIZE, device="cuda", dtype=torch.bfloat16)
    layer = W8A8Linear.from_linear(linear())
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode():
        layer(x)
        with torch.cuda.graph(graph):
            y = layer(x)
        for _ in range(5):
            cleave.quantize(torch.randn(SIZE, SIZE, device="cuda"), "int8", out=layer.weight)
            graph.replay()
            made = y.clone()
            torch.cuda.synchronize()
            assert torch.equal(made, layer(x))
