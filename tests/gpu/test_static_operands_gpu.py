"""static_b on the GPU: the same bits, with a, scales, bias and c written by what is ahead, and only b at rest."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cleave  # noqa: E402

# Tokens, outputs, inputs: whole and partial tiles, K of fewer blocks than there are stages, split and unsplit.
SHAPES = ((1, 4096, 4096), (16, 6144, 4096), (16, 4096, 14336), (64, 4096, 128), (65, 1000, 1040), (200, 4096, 4096),
          (256, 1024, 64), (256, 6144, 4096), (512, 28672, 4096), (2048, 4096, 4096))  # fmt: skip
SPLITS: tuple[dict[str, Any], ...] = (
    {}, {"split_k_mode": "none"}, {"split_k_mode": "parallel", "split_k_slices": 4},
    {"split_k_mode": "cluster", "split_k_slices": 2}, {"split_k_mode": "serial", "split_k_slices": 3},
    {"split_k_mode": "stream_k"},
)  # fmt: skip
DTYPES = ("bfloat16", "int8", "float8_e4m3fn")


def multiply(x: torch.Tensor, b: torch.Tensor, scale_b: Any, options: dict[str, Any], plan: bool = False) -> Any:
    """x, quantised to b's type if that has scales, times b's transpose; or the plan of the product."""
    if scale_b is None:
        return (cleave.plan_gemm if plan else cleave.gemm)(x, b.T, **options)
    a, scale_a = cleave.quantize(x, b.dtype)
    return (cleave.plan_scaled_gemm if plan else cleave.scaled_gemm)(a, b.T, scale_a, scale_b.T, **options)


def is_early(source: str) -> bool:
    return "static_a = true" in source or "static_b = true" in source


def is_shared(source: str) -> bool:
    return "multicast_m = 2" in source or "multicast_n = 2" in source


def weights(n: int, k: int, dtype: str) -> tuple[torch.Tensor, Any]:
    """B's transpose and its scales."""
    w = torch.randn(n, k, device="cuda").bfloat16()
    return (w, None) if dtype == "bfloat16" else cleave.quantize(w, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_the_same_bits_behind_what_writes_all_but_b(m: int, n: int, k: int, dtype: str) -> None:
    """In graphs: a kernel of torch, one of Cleave, the product, whose a changes from replay to replay."""
    torch.manual_seed(0)
    x, bias = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(n, device="cuda").bfloat16()
    new_x, new_bias = torch.empty_like(x), torch.empty_like(bias)
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    b, scale_b = weights(n, k, dtype)
    torch.cuda.synchronize()  # b is at rest from now on
    for split in SPLITS:
        options = {"bias": bias, "out": out} | split
        multiply(x, b, scale_b, options | {"static_b": True})
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x.copy_(new_x)
            bias.copy_(new_bias)
            multiply(x, b, scale_b, options | {"static_b": True})
        for _ in range(4):
            new_x.copy_(torch.randn(m, k))
            new_bias.copy_(torch.randn(n))
            out.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            made = out.clone()
            out.fill_(float("nan"))
            assert torch.equal(made, multiply(x, b, scale_b, options)), split


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_load_early(dtype: str) -> None:
    """Those of the test above."""
    early = shared = 0
    for m, n, k in SHAPES:
        x, (b, scale_b) = torch.randn(m, k, device="cuda").bfloat16(), weights(n, k, dtype)
        for split in SPLITS:
            source = multiply(x, b, scale_b, {"static_b": True} | split, plan=True).kernel_source
            early += is_early(source)
            shared += is_early(source) and is_shared(source)
    assert early > 10, "hardly a kernel loaded early"
    assert shared > 0, "no kernel with shared loads did"


def test_a_is_waited_for() -> None:
    """What is ahead takes long to write a."""
    b = torch.randn(4096, 4096, device="cuda").bfloat16()
    late, x = torch.zeros(64, 4096, device="cuda").bfloat16(), torch.randn(64, 4096, device="cuda").bfloat16()
    expected = cleave.gemm(x, b.T)
    cleave.gemm(late, b.T, static_b=True)
    for _ in range(20):
        late.zero_()
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000)
        late.copy_(x)
        assert torch.equal(cleave.gemm(late, b.T, static_b=True), expected)


def test_a_chain_of_products() -> None:
    """Each reads what the one before it has written; all may be on the GPU at once."""
    weights = [torch.randn(4096, 4096, device="cuda").bfloat16() / 64 for _ in range(4)]
    x = torch.randn(48, 4096, device="cuda").bfloat16()
    torch.cuda.synchronize()

    def chain(static: bool) -> torch.Tensor:
        y = x
        for i in range(12):
            y = cleave.gemm(y, weights[i % 4].T, static_b=static)
        return y

    expected = chain(False)
    chain(True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = chain(True)
    for _ in range(50):
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, expected)
