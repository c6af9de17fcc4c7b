"""torch.ops.cleave.grouped_gemm, GroupedLinear and MoE on CUDA tensors: graphs, torch.compile.

`test_torch_gpu.py` compares every operator with the CPU's.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import grouped_reference  # noqa: E402
from torch import nn  # noqa: E402

from cleave.compat import deep_gemm  # noqa: E402
from cleave.torch import GroupedLinear, MoE  # noqa: E402

ops = torch.ops.cleave

GROUPS, TOKENS, FEATURES, OUTPUTS = 16, 1000, 256, 192


def ends(generator_seed: int, tokens: int = TOKENS) -> torch.Tensor:
    """The ends of groups of any sizes, some of them empty, that leave some tokens to nobody."""
    generator = torch.Generator().manual_seed(generator_seed)
    cuts = torch.randint(0, tokens + 1, (GROUPS,), generator=generator).sort().values
    cuts[3] = cuts[4]
    return cuts.int().cuda()


def ranges(offs: torch.Tensor) -> list[grouped_reference.Range]:
    return list(itertools.pairwise([0, *offs.tolist()]))


def whole(*shape: int) -> torch.Tensor:
    """Whole numbers, whose sums are exact."""
    return torch.randint(-3, 4, shape, device="cuda").bfloat16()


@pytest.mark.parametrize("seed", range(3))
def test_training_is_exact(seed: int) -> None:
    """Forward and gradients of whole numbers, float32 results of bfloat16."""
    offs = ends(seed)
    x, weight = whole(TOKENS, FEATURES), whole(GROUPS, OUTPUTS, FEATURES)
    dy = whole(TOKENS, OUTPUTS).float()
    x.requires_grad_()
    weight.requires_grad_()
    y = ops.grouped_gemm(x, weight.mT, offs, None, torch.float32)
    a, b = x.detach().double(), weight.detach().double()
    given = ranges(offs)
    assert torch.equal(y.double().cpu(), grouped_reference.product(a.cpu(), b.mT.cpu(), given))
    dx, dw = torch.autograd.grad(y, (x, weight), dy)
    exact = grouped_reference.product(dy.double().cpu(), b.cpu(), given)
    assert torch.equal(dx.cpu(), exact.bfloat16())
    exact = grouped_reference.product(dy.double().mT.cpu(), a.cpu(), given)
    assert torch.equal(dw.cpu(), exact.bfloat16())


def test_main_grad() -> None:
    offs = ends(0)
    layer = GroupedLinear(GROUPS, FEATURES, OUTPUTS, accumulate_main_grad=True, device="cuda", dtype=torch.bfloat16)
    layer.weight.main_grad = torch.zeros_like(layer.weight, dtype=torch.float32)
    x, dy = whole(TOKENS, FEATURES), whole(TOKENS, OUTPUTS)
    for _ in range(2):
        layer(x, offs).backward(dy)
    exact = grouped_reference.product(dy.double().mT.cpu(), x.double().cpu(), ranges(offs))
    assert torch.equal(layer.weight.main_grad.double().cpu(), 2 * exact)


def step(module: nn.Module, x: torch.Tensor, *offs: torch.Tensor) -> list[torch.Tensor]:
    y = module(x, *offs)
    return [y, *torch.autograd.grad((y.float() ** 2).mean(), list(module.parameters()))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replays_follow_the_offsets(dtype: torch.dtype) -> None:
    """Bit by bit what the same step gives outside the graph."""
    layer = GroupedLinear(GROUPS, FEATURES, OUTPUTS, device="cuda", dtype=dtype)
    x, offs = torch.randn(TOKENS, FEATURES, device="cuda", dtype=dtype), ends(0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(layer, x, offs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(layer, x, offs)
    every = torch.full_like(offs, TOKENS)
    for seed in range(20):
        x.copy_(torch.randn_like(x))
        offs.copy_({18: every, 19: torch.zeros_like(offs)}.get(seed, ends(seed)))
        graph.replay()
        for found, expected in zip(captured, step(layer, x, offs), strict=True):
            assert torch.equal(found, expected)


def experts(dtype: torch.dtype = torch.bfloat16) -> MoE:
    return MoE(GROUPS, 4, FEATURES, OUTPUTS, device="cuda", dtype=dtype)


def test_a_captured_mixture_follows_its_routing() -> None:
    moe, x = experts(), torch.randn(128, FEATURES, device="cuda", dtype=torch.bfloat16)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step(moe, x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(moe, x)
    for _ in range(10):
        x.copy_(torch.randn_like(x))
        graph.replay()
        for found, expected in zip(captured, step(moe, x), strict=True):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mixture_is_that_of_the_cpu(dtype: torch.dtype) -> None:
    """Routers that are sure of themselves: no rounding sends a token elsewhere."""
    moe, x = experts(dtype), torch.randn(200, FEATURES, device="cuda", dtype=dtype)
    with torch.no_grad():
        moe.router.weight.mul_(16)
        y, expected = moe(x), moe.cpu()(x.cpu())
    error = (y.cpu().double() - expected.double()).norm() / expected.double().norm()
    assert error < 2e-2


def test_steps_repeat_bit_by_bit() -> None:
    moe, x = experts(), torch.randn(512, FEATURES, device="cuda", dtype=torch.bfloat16)
    first = step(moe, x)
    for _ in range(20):
        for found, expected in zip(step(moe, x), first, strict=True):
            assert torch.equal(found, expected)


# --- torch.compile ---


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_training(mode: str, cudagraph_skips: Callable[[], int]) -> None:
    layer = GroupedLinear(GROUPS, FEATURES, OUTPUTS, device="cuda")
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for seed in range(5):
        x, offs = torch.randn(TOKENS, FEATURES, device="cuda"), ends(seed)
        torch.compiler.cudagraph_mark_step_begin()
        y = compiled(x, offs)
        loss = (y**2).mean()
        found = [y.clone(), *torch.autograd.grad(loss, list(layer.parameters()))]
        torch.testing.assert_close(found, step(layer, x, offs), rtol=1e-3, atol=1e-5)
    assert cudagraph_skips() == 0


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_mixture(mode: str, cudagraph_skips: Callable[[], int]) -> None:
    moe = experts(torch.float32)
    compiled = torch.compile(moe, fullgraph=True, mode=mode)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(128, FEATURES, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(compiled(x).clone(), moe(x), rtol=1e-2, atol=1e-3)
    assert cudagraph_skips() == 0


# --- what is made of these ---


def test_rows_that_name_their_groups_can_be_captured() -> None:
    """DeepGEMM's layout is turned into bounds without waiting."""
    a, b = whole(TOKENS, FEATURES), whole(GROUPS, OUTPUTS, FEATURES)
    d = torch.empty(TOKENS, OUTPUTS, device="cuda", dtype=torch.bfloat16)
    offs = ends(0)
    groups = torch.full((TOKENS,), -1, dtype=torch.int32, device="cuda")

    def fill() -> None:
        groups.fill_(-1)
        for group, (begin, end) in enumerate(ranges(offs)):
            groups[begin:end] = group

    fill()
    deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b, d, groups)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        deep_gemm.m_grouped_bf16_gemm_nt_contiguous(a, b, d, groups)
    for seed in range(3):
        offs = ends(seed)
        fill()
        graph.replay()
        assert torch.equal(d, ops.grouped_gemm(a, b.mT, offs))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_example_trains(dtype: str) -> None:
    path = Path(__file__).parents[2] / "examples" / "moe" / "train.py"
    spec = importlib.util.spec_from_file_location("train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(["--dtype", dtype])
