"""Quantised checkpoints on CUDA tensors, beside the same model on the CPU: logits, tokens, graphs and experts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from quantized_checkpoints import FORMATS, checkpoint  # noqa: E402
from tiny_llama import TinyLlama, is_quantized  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import W8A8Experts, load_quantized  # noqa: E402
from cleave.torch._scales import scale_shape  # noqa: E402

formats = pytest.mark.parametrize("name", FORMATS)


@pytest.fixture(autouse=True)
def inference() -> Any:
    with torch.no_grad():
        yield


def loaded(name: str, device: str) -> TinyLlama:
    """The same weights each time, on the device before they are loaded, as a server does."""
    torch.manual_seed(0)
    tensors = checkpoint(TinyLlama().state_dict(), FORMATS[name], is_quantized)
    with torch.device(device):
        model = TinyLlama()
    load_quantized(model, tensors, FORMATS[name].config)
    return model


@formats
def test_logits_are_the_cpus(name: str) -> None:
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    on_gpu, on_cpu = loaded(name, "cuda"), loaded(name, "cpu")
    found, expected = on_gpu(ids.cuda()).cpu(), on_cpu(ids)
    # Activations are rounded to the neighbour here and there: a few per mille.
    assert (found - expected).norm() < 5e-3 * expected.norm()
    assert torch.equal(on_gpu.generate(ids.cuda(), 12).cpu(), on_cpu.generate(ids, 12))


@formats
def test_moved_to_the_gpu_after_loading(name: str) -> None:
    ids = torch.tensor([[2, 7, 1, 8]], device="cuda")
    assert torch.equal(loaded(name, "cpu").cuda()(ids), loaded(name, "cuda")(ids))


@formats
def test_replays_follow_their_input(name: str) -> None:
    model, ids = loaded(name, "cuda").bfloat16(), torch.tensor([[2, 7, 1, 8]], device="cuda")
    layer = model.model.layers[0].self_attn.q_proj
    x = torch.randn(9, layer.in_features, device="cuda").bfloat16()
    assert torch.isfinite(model(ids)).all()
    layer(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(y, layer(x))


@pytest.mark.parametrize(
    ("dtype", "granularity"), [("int8", "row"), ("float8_e4m3fn", "row"), ("float8_e4m3fn", "block_128x128")]
)
def test_experts_are_the_cpus(dtype: str, granularity: str) -> None:
    gate_up, down = torch.randn(4, 512, 256) / 16, torch.randn(4, 256, 256) / 16
    parts = []
    for weight in (gate_up, down):
        quantized = [cleave.quantize(expert, dtype, granularity) for expert in weight]
        elements, scales = zip(*quantized, strict=True)
        parts += [torch.stack(elements), torch.stack(scales).view(4, *scale_shape(granularity, *weight.shape[1:]))]
    experts = W8A8Experts.from_quantized(*parts, granularity=granularity)
    x, weights = torch.randn(33, 256), torch.rand(33, 2)
    ids = torch.randint(0, 5, (33, 2))  # 4 is no expert's number
    expected = experts(x, ids, weights)
    found = experts.cuda()(x.cuda(), ids.cuda(), weights.cuda()).cpu()
    # Where sums of the first product differ in their last bits, gates are rounded to the other of two 8-bit values: one
    # in 200 of fp8's, whose tensor cores keep 13 bits of a sum, each by 2^-4 of itself.
    assert (found - expected).norm() < 2e-2 * expected.norm()
