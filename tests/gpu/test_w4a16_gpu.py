"""4-bit weights on a GPU: packed there as on the host; layers, in graphs too, against dequantised weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from four_bit_checkpoints import FORMATS, checkpoint  # noqa: E402
from torch import nn  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import Gate, W4A16Experts, W4A16Linear, load_quantized, replace_linears  # noqa: E402


def weights_of(rows: int, columns: int, group: int, zeros: bool, act_order: bool, dtype: Any) -> cleave.PackedWeights:
    groups = columns // group
    return cleave.pack_weights(
        torch.randint(0, 16, (rows, columns), dtype=torch.uint8, device="cuda"),
        group,
        scales=(torch.rand(groups, rows, device="cuda") * 0.1 + 0.01).to(dtype),
        zeros=torch.randint(0, 16, (groups, rows), dtype=torch.uint8, device="cuda") if zeros else None,
        g_idx=torch.randperm(columns, device="cuda") // group if act_order else None,
    )


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (70, 96), (1, 64), (4096, 2880)])
def test_packed_on_the_gpu_as_on_the_host(rows: int, columns: int) -> None:
    packed = weights_of(rows, columns, 32, zeros=True, act_order=True, dtype=torch.bfloat16)
    assert packed.packed.is_cuda and packed.scales.is_cuda and packed.perm.is_cuda
    codes = cleave.unpack_weights(packed)
    on_host = cleave.pack_weights(
        codes.cpu()[:, packed.perm.cpu().long()], 32, scales=packed.scales.cpu(), zeros=packed.zeros.cpu()
    )
    assert torch.equal(packed.packed.cpu(), on_host.packed)
    found, expected = cleave.dequantize_weights(packed).cpu(), cleave.dequantize_weights(on_host)
    assert torch.equal(found[:, packed.perm.cpu().long()], expected)


@pytest.mark.parametrize("format", ["int4", "mxfp4", "nvfp4"])
def test_floats_become_the_same_codes(format: str) -> None:
    weight = torch.randn(200, 256)
    packed, on_host = (cleave.pack_weights(w, format=format) for w in (weight.cuda(), weight))
    codes, expected = cleave.unpack_weights(packed).cpu(), cleave.unpack_weights(on_host)
    # A division may round a tie to the other side.
    assert (codes != expected).float().mean() < 1e-3
    # So may that of a scale: a step of bfloat16, none of powers of two, a step of e4m3.
    step = {"int4": 2.0**-7, "mxfp4": 0.0, "nvfp4": 2.0**-3}[format]
    assert torch.allclose(packed.scales.float().cpu(), on_host.scales.float(), rtol=step, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("zeros", "act_order"), [(False, False), (True, True)])
@pytest.mark.parametrize("group", [32, 64, 128, 1024])
def test_layers(group: int, zeros: bool, act_order: bool, dtype: Any) -> None:
    layer = W4A16Linear.from_packed(weights_of(520, 1024, group, zeros, act_order, dtype), torch.randn(520))
    weight = cleave.dequantize_weights(layer.weights()).double()
    for tokens in (1, 3, 16, 65, 300):
        x = torch.randn(tokens, 1024, device="cuda").to(dtype)
        expected = x.double() @ weight.T + layer.bias.double()
        magnitude = x.double().abs() @ weight.abs().T
        step = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
        assert bool(((layer(x).double() - expected).abs() <= 2 * step * (expected.abs() + magnitude) + 1e-3).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_mxfp4(dtype: Any) -> None:
    layer = W4A16Linear.from_linear(nn.Linear(320, 200).cuda(), format="mxfp4")
    weight = cleave.dequantize_weights(layer.weights()).double()
    for tokens in (1, 40):
        x = torch.randn(tokens, 320, device="cuda").to(dtype)
        expected = x.double() @ weight.T + layer.bias.double()
        assert (layer(x) - expected).norm() < 0.01 * expected.norm()


@pytest.mark.parametrize("gate", [Gate(), Gate(alpha=1.702, beta=1.0, limit=0.5)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("format", ["int4", "mxfp4"])
def test_experts_are_the_cpus(format: str, bias: bool, gate: Gate) -> None:
    shapes = (4, 512, 256), (4, 256, 256)
    experts = W4A16Experts.from_packed(
        *(cleave.pack_weights(torch.randn(shape).bfloat16() / 16, 32, format) for shape in shapes),
        *(torch.randn(shape[:2]).bfloat16() if bias else None for shape in shapes),
        gate=gate,
    )
    x, weights = torch.randn(33, 256).bfloat16(), torch.rand(33, 2)
    ids = torch.randint(0, 5, (33, 2))  # 4 is no expert's number
    expected = experts(x, ids, weights).float()
    found = experts.cuda()(x.cuda(), ids.cuda(), weights.cuda()).cpu().float()
    assert (found - expected).norm() < 0.01 * expected.norm()


def test_gradients_reach_activations() -> None:
    layer = W4A16Linear.from_packed(weights_of(96, 256, 64, True, True, torch.bfloat16))
    x = torch.randn(5, 256, device="cuda").bfloat16().requires_grad_()
    layer(x).float().sum().backward()
    expected = cleave.dequantize_weights(layer.weights()).double().sum(0).expand(5, -1)
    assert (x.grad - expected).norm() < 0.01 * expected.norm()


def test_a_graph_replays() -> None:
    layer = W4A16Linear.from_packed(weights_of(512, 1024, 128, True, True, torch.bfloat16))
    layer.prepare(8)
    x = torch.randn(8, 1024, device="cuda").bfloat16()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = layer(x)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(y, layer(x))


def test_moved_layers_compute_the_same() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 384), nn.SiLU(), nn.Linear(384, 128)).bfloat16()
    replace_linears(model, "int4")
    x = torch.randn(5, 256).bfloat16()
    with torch.no_grad():
        expected = model(x)
        moved = copy.deepcopy(model).cuda()
        found = moved(x.cuda()).cpu()
    assert moved[0].packed.is_cuda and (found - expected).float().norm() < 0.01 * expected.float().norm()
    compiled = torch.compile(moved[0], fullgraph=True)
    assert torch.equal(compiled(x.cuda()), moved[0](x.cuda()))


@pytest.mark.parametrize("name", FORMATS)
def test_checkpoints(name: str) -> None:
    """Tensors that were moved to the GPU before they were packed."""
    torch.manual_seed(0)
    made = FORMATS[name]
    trained = nn.ModuleDict({"q": nn.Linear(256, 128), "o": nn.Linear(128, 64, bias=False)})
    files, values = checkpoint(trained.state_dict(), made, lambda weight: weight.endswith("weight"))
    model = nn.ModuleDict({"q": nn.Linear(256, 128), "o": nn.Linear(128, 64, bias=False)}).half().cuda()
    assert load_quantized(model, files, made.config).layers == ["q", "o"]
    x = torch.randn(7, 256, device="cuda").half()
    hidden = x.double() @ values["q.weight"].cuda().double().T + values["q.bias"].cuda()
    expected = hidden @ values["o.weight"].cuda().double().T
    with torch.no_grad():
        found = model["o"](model["q"](x))
    assert (found - expected).norm() < 0.004 * expected.norm()
