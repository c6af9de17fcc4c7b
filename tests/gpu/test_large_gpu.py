"""Matrices of more than 2^31 elements: an offset in 32 bits would wrap within each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

import cleave  # noqa: E402

ROOM = 40 << 30  # bytes on the GPU
ROWS = 8192  # compared at a time
LONG = 151936  # columns: a vocabulary
TALL = 2**31 // LONG + 777  # rows of so many columns: more than 2^31 elements, an odd number of rows


@pytest.fixture(autouse=True)
def room() -> Iterator[None]:
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < ROOM:
        pytest.skip(f"needs {ROOM >> 30} GiB of free memory on the GPU")
    yield
    torch.cuda.empty_cache()


def integers(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """From -2 to 2: products of so few are exact in every type that is multiplied here."""
    return torch.randint(-2, 3, (rows, columns), device="cuda", dtype=torch.int8).to(dtype)


def one() -> torch.Tensor:
    """A scale that changes nothing."""
    return torch.ones(1, device="cuda")


def poisoned(rows: int, columns: int) -> torch.Tensor:
    return torch.full((rows, columns), float("nan"), device="cuda", dtype=torch.bfloat16)


def check(d: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Every element, some rows at a time."""
    b = b.bfloat16()
    for first in range(0, d.shape[0], ROWS):
        rows = slice(first, first + ROWS)
        assert torch.equal(d[rows], a[rows].bfloat16() @ b), f"rows from {first}"


@pytest.mark.parametrize("kernel", ["auto", "portable"])
@pytest.mark.parametrize("order", ["row", "column"])
def test_d(kernel: str, order: str) -> None:
    a, b = integers(TALL, 64, torch.bfloat16), integers(64, LONG, torch.bfloat16)
    d = poisoned(TALL, LONG) if order == "row" else poisoned(LONG, TALL).mT
    cleave.gemm(a, b, out=d, kernel=kernel)
    check(d, a, b)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_d_of_8_bit_operands(dtype: torch.dtype) -> None:
    a, b = integers(TALL, 128, dtype), integers(LONG, 128, dtype).mT
    ones = lambda *shape: torch.ones(shape, device="cuda")  # noqa: E731
    d = poisoned(TALL, LONG)
    cleave.scaled_gemm(a, b, ones(TALL, 1), ones(1, LONG), out=d)
    check(d, a, b)


def test_d_with_scales_of_blocks() -> None:
    a, b = integers(TALL, 256, torch.float8_e4m3fn), integers(LONG, 256, torch.float8_e4m3fn).mT
    d = poisoned(TALL, LONG)
    cleave.scaled_gemm(a, b, torch.ones((TALL, 2), device="cuda"), torch.ones((2, LONG // 128), device="cuda"), out=d)
    check(d, a, b)


@pytest.mark.parametrize("mode", ["none", "parallel", "stream_k"])
def test_operands(mode: str) -> None:
    """Both longer than 2^31 elements along K, and along M."""
    k = 2**31 // 256 + 64
    a, b = integers(256, k, torch.float8_e4m3fn), integers(128, k, torch.float8_e4m3fn)
    d = cleave.scaled_gemm(a, b.mT, one(), one(), out_dtype="float32", split_k_mode=mode)
    parts = [a[:, i : i + 2**20].half().double() @ b[:, i : i + 2**20].half().double().mT for i in range(0, k, 2**20)]
    assert torch.equal(d.double(), sum(parts).float().double())

    weights, x = integers(LONG, 14400, torch.float8_e4m3fn), integers(16, 14400, torch.float8_e4m3fn)
    assert weights.numel() > 2**31
    d = cleave.scaled_gemm(x, weights.mT, one(), one(), out_dtype="float32", split_k_mode=mode)
    for first in range(0, LONG, ROWS):
        rows = slice(first, first + ROWS)
        assert torch.equal(d[:, rows], x.float() @ weights[rows].float().mT)


def test_groups() -> None:
    """Experts' weights, the tokens and their products: each has more than 2^31 elements."""
    experts, columns, inner = 64, 7168, 4864
    rows = 2**31 // inner + 333
    assert experts * columns * inner > 2**31
    ends = torch.sort(torch.randint(0, rows, (experts,), device="cuda", dtype=torch.int32)).values
    ends[-1] = rows
    a = integers(rows, inner, torch.bfloat16)
    b = torch.randint(-2, 3, (experts, inner, columns), device="cuda", dtype=torch.int8).bfloat16()
    d = cleave.grouped_gemm(a, b, ends)
    for e in range(experts):
        group = slice(int(ends[e - 1]) if e else 0, int(ends[e]))
        assert torch.equal(d[group], a[group] @ b[e]), f"expert {e}"
