"""Rows of D that do not depend on the batch, bit by bit, on a GPU."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave  # noqa: E402
import cleave.torch  # noqa: E402

MOST = 8192
ROWS = [*range(1, 301), 384, 511, 512, 777, 1024, 2000, 4096, 5003, MOST]
WEIGHTS = [(128, 16384), (1536, 7168), (4096, 4096), (2048, 896), (2056, 2000)]
INVARIANT: dict[str, Any] = {"deterministic": "batch_invariant"}


def weight_and_rows(kind: str, n: int, k: int) -> tuple[Any, Any]:
    """What multiplies the first m rows, or any other ones."""
    x, w = torch.randn(MOST, k, device="cuda"), torch.randn(n, k, device="cuda")
    if kind in ("bfloat16", "float16", "float32"):
        x, w = x.to(getattr(torch, kind)), w.to(getattr(torch, kind))
        return lambda rows: cleave.gemm(x[rows], w.t(), **INVARIANT), x
    dtype, granularity = kind.split()
    (a, scale_a), (b, scale_b) = (cleave.quantize(each, dtype, granularity) for each in (x, w))
    options = {"out_dtype": torch.float32, **INVARIANT}
    return lambda rows: cleave.scaled_gemm(a[rows], b.t(), scale_a[rows], scale_b.t(), **options), x


KINDS = ["bfloat16", "float32", "float8_e4m3fn row", "float8_e4m3fn block_1x128", "int8 row"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), WEIGHTS)
def test_rows_are_those_of_any_batch(kind: str, n: int, k: int) -> None:
    if "block" in kind and k % 128:
        pytest.skip("blocks of 128 that K does not fill have a test of their own")
    product, _ = weight_and_rows(kind, n, k)
    whole = product(slice(0, MOST))
    assert torch.isfinite(whole).all()
    different = [m for m in ROWS if not torch.equal(product(slice(0, m)), whole[:m])]
    assert different == []
    moved = [m for m in (1, 7, 64, 333) if not torch.equal(product(slice(MOST - m, MOST)), whole[MOST - m :])]
    assert moved == []


DRAWN = ["bfloat16", "float16", "float32", "float8_e4m3fn row", "int8 row", "int4 weights", "mxfp4 weights"]


def drawn_weights(count: int) -> list[tuple[str, int, int]]:
    """Kinds, and sizes N, K of up to 2^26 together: multiples of 128 and 8, and some of 16 and 32 bits of neither."""
    draw = random.Random(0)
    found: list[tuple[str, int, int]] = []
    while len(found) < count:
        n, k = (round(2 ** draw.uniform(low, 14)) for low in (3, 6))
        kind, step = draw.choice(DRAWN), 128 if draw.random() < 0.5 else 8
        if "row" not in kind and draw.random() < 0.2:
            step = 1  # 8 bits need rows of 16 bytes
        n, k = (max(step, each // step * step) for each in (n, k))
        if n * k <= 2**26 and not ("row" in kind and k % 16):
            found.append((kind, n, k))
    return found


@pytest.mark.parametrize(("kind", "n", "k"), drawn_weights(200))
def test_drawn_weights(kind: str, n: int, k: int) -> None:
    """Sizes that nobody thought of; fewer numbers of rows of each."""
    if kind.endswith("weights"):
        k = -(-k // 128) * 128
        packed = cleave.pack_weights(torch.randn(n, k, device="cuda").bfloat16(), format=kind.split()[0])
        x = torch.randn(MOST, k, device="cuda").bfloat16()
        product = lambda rows: cleave.mixed_gemm(x[rows], packed, **INVARIANT)  # noqa: E731
    else:
        product, _ = weight_and_rows(kind, n, k)
    whole = product(slice(0, MOST))
    sampled = [*random.Random(n).sample(range(1, 301), 12), 512, 1000, 2047, 4096]
    assert [m for m in sampled if not torch.equal(product(slice(0, m)), whole[:m])] == []
    assert [m for m in (1, 7, 333) if not torch.equal(product(slice(MOST - m, MOST)), whole[MOST - m :])] == []


@cleave.epilogue
def shifted(acc: Any, shift: cleave.row, residual: cleave.matrix) -> Any:
    return cleave.gelu(acc * 1.3 + shift) + residual * 0.7


EPILOGUES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "alpha and beta": lambda x, c, w: cleave.gemm(x, w, c=c, alpha=1.3, beta=0.7, **INVARIANT),
    "bias and gelu": lambda x, c, w: cleave.gemm(x, w, bias=shift_of(w), activation="gelu", **INVARIANT),
    "swiglu": lambda x, c, w: cleave.gemm(x, w, activation="swiglu", **INVARIANT),
    "function": lambda x, c, w: cleave.gemm(x, w, epilogue=shifted(shift=shift_of(w), residual=c), **INVARIANT),
}


def shift_of(w: Any) -> Any:
    return w[3].clone()


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("n", "k"), [(128, 16384), (1536, 7168), (256, 200)])
def test_what_follows_the_sum_has_one_order_too(name: str, dtype: Any, n: int, k: int) -> None:
    """Whichever kernel, and whether it stores D by TMA or not."""
    x, c, w = (torch.randn(r, s, device="cuda", dtype=dtype) for r, s in ((2000, k), (2000, n), (n, k)))
    product = EPILOGUES[name]
    whole = product(x, c, w.t())
    first = [slice(0, m) for m in (1, 2, 5, 16, 33, 64, 100, 129, 300, 1000)]
    for rows in first + [slice(-m, None) for m in (1, 7, 333)]:
        assert torch.equal(product(x[rows], c[rows], w.t()), whole[rows]), rows


def test_replays_have_the_bits_of_calls() -> None:
    x, w = torch.randn(40, 16384, device="cuda").bfloat16(), torch.randn(128, 16384, device="cuda").bfloat16()
    whole = cleave.gemm(x, w.t(), **INVARIANT)
    for m in (1, 13, 40):
        cleave.gemm(x[:m], w.t(), **INVARIANT)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            d = cleave.gemm(x[:m], w.t(), **INVARIANT)
        graph.replay()
        assert torch.equal(d, whole[:m])


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_groups_of_rows_are_those_of_any_routing(dtype: str) -> None:
    groups, n, k, rows = 8, 512, 4096, 1500
    x, w = torch.randn(rows, k, device="cuda"), torch.randn(groups, n, k, device="cuda")
    if dtype == "bfloat16":
        a, b, scales = x.bfloat16(), w.bfloat16(), {}
    else:
        a, scale_a = cleave.quantize(x, dtype, "row")
        quantized = [cleave.quantize(each, dtype, "row") for each in w]
        b = torch.stack([q for q, _ in quantized])
        scales = {"scale_a": scale_a.view(-1), "scale_b": torch.stack([s.view(-1) for _, s in quantized])}
    known: dict[int, Any] = {}  # each group's product with every row
    for g in range(groups):
        ends = torch.tensor([0] * g + [rows] * (groups - g), dtype=torch.int32, device="cuda")
        known[g] = cleave.grouped_gemm(a, b.mT, ends, out_dtype=torch.float32, **scales, **INVARIANT)
    for _ in range(20):
        ends = torch.randint(0, rows + 1, (groups,), device="cuda").sort().values.int()
        d = cleave.grouped_gemm(a, b.mT, ends, out_dtype=torch.float32, **scales, **INVARIANT)
        begin = 0
        for g, end in enumerate(ends.tolist()):
            assert torch.equal(d[begin:end], known[g][begin:end])
            begin = end


def test_torchs_own_products_are_routed() -> None:
    linear = torch.nn.Linear(7168, 1536, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(MOST, 7168, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad(), cleave.torch.batch_invariant():
        whole = linear(x)
        assert all(torch.equal(linear(x[:m]), whole[:m]) for m in (1, 2, 3, 16, 64, 100, 1000))
    torch.testing.assert_close(whole, linear(x), rtol=2e-2, atol=2e-2)


def test_layers_choose_no_way_by_the_number_of_rows() -> None:
    """Experts' rows are gathered or copied, adapters one launch or two, as is faster for so many, but for here."""
    torch.manual_seed(0)
    many = torch.randn(3000, 2048, device="cuda").bfloat16()
    moe = cleave.torch.MoE(8, 2, 2048, 256, device="cuda", dtype=torch.bfloat16)
    a, b = (torch.randn(*shape, device="cuda").bfloat16() for shape in ((3, 64, 2048), (3, 512, 64)))

    def adapted(rows: Any, ends: list[int]) -> Any:
        return cleave.torch.lora(rows, a, b, torch.tensor(ends, dtype=torch.int32, device="cuda"))

    with torch.no_grad(), cleave.batch_invariant():
        mixed, adapters = moe(many), adapted(many, [3000, 3000, 3000])
        for few in (1, 17, 300):
            assert torch.equal(moe(many[:few]), mixed[:few])
            assert torch.equal(adapted(many[:few], [few, few, few]), adapters[:few])
