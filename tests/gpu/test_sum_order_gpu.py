"""sum_order="k" on a GPU: the bits of the unsplit sum, for every M, N, batch and group."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave  # noqa: E402
import cleave.torch  # noqa: E402

ORDER: dict[str, Any] = {"sum_order": "k"}
M, N = 2048, 4096
ROWS = (1, 2, 7, 16, 63, 64, 65, 129, 300, 1024, M)
COLUMNS = (8, 16, 64, 120, 128, 136, 640, 2048, N)
KINDS = ("bfloat16", "float16", "float32", "float8_e4m3fn row", "float8_e4m3fn block_1x128", "int8 row", "int4")


def product(kind: str, k: int, **options: Any) -> Any:
    """What multiplies some rows by some columns."""
    x, w = torch.randn(M, k, device="cuda"), torch.randn(N, k, device="cuda")
    if kind in ("bfloat16", "float16", "float32"):
        x, w = x.to(getattr(torch, kind)), w.to(getattr(torch, kind))
        out = {"out_dtype": torch.float32}
        return lambda rows, columns, **more: cleave.gemm(x[rows], w[columns].t(), **out, **options, **more)
    if kind == "int4":
        x, w = x.bfloat16(), w.bfloat16()
        return lambda rows, columns, **more: cleave.mixed_gemm(
            x[rows], cleave.pack_weights(w[columns], 128), **options, **more
        )
    dtype, granularity = kind.split()
    (a, scale_a), (b, scale_b) = (cleave.quantize(each, dtype, granularity) for each in (x, w))
    options["out_dtype"] = torch.float32
    return lambda rows, columns, **more: cleave.scaled_gemm(
        a[rows], b[columns].t(), scale_a[rows], scale_b[columns].t(), **options, **more
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [512, 4096, 16384])
def test_elements_are_those_of_any_rows_and_columns(kind: str, k: int) -> None:
    multiply = product(kind, k, **ORDER)
    everything = slice(0, M), slice(0, N)
    whole = multiply(*everything)
    assert torch.isfinite(whole).all()
    different = [
        (m, n)
        for m in ROWS
        for n in COLUMNS
        if not torch.equal(multiply(slice(M - m, M), slice(N - n, N)), whole[M - m :, N - n :])
        or not torch.equal(multiply(slice(0, m), slice(0, n)), whole[:m, :n])
    ]
    assert different == []


@pytest.mark.parametrize("kind", ["bfloat16", "float32", "float8_e4m3fn row"])
def test_they_are_those_of_every_unsplit_tile(kind: str) -> None:
    """The kernel that a large product takes unasked, with K whole, is not the promise's own choice."""
    multiply = product(kind, 4096)
    whole = multiply(slice(0, M), slice(0, N), split_k_mode="none")
    assert torch.equal(multiply(slice(3, 12), slice(128, 256), **ORDER), whole[3:12, 128:256])


def test_groups_have_the_bits_of_products() -> None:
    x = torch.randn(512, 4096, device="cuda").bfloat16()
    w = torch.randn(4, 512, 4096, device="cuda").bfloat16()
    offs = torch.tensor([5, 100, 100, 512], dtype=torch.int32, device="cuda")
    d = cleave.grouped_gemm(x, w.mT, offs, **ORDER)
    assert torch.equal(d[100:], cleave.gemm(x[100:], w[3].t(), **ORDER))
    assert torch.equal(d[:5], cleave.gemm(x[:5], w[0].t(), **ORDER))


def test_in_a_graph() -> None:
    x, w = (torch.randn(*shape, device="cuda").bfloat16() for shape in ((64, 8192), (1024, 8192)))
    whole = cleave.gemm(x, w.t(), **ORDER)
    out = torch.full((8, 256), float("nan"), device="cuda", dtype=torch.bfloat16)
    with cleave.torch.batch_invariant(sum_order="k", aten=False):
        run = lambda: torch.ops.cleave.gemm.out(x[:8], w[:256].t(), out=out)  # noqa: E731
        run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
    out.fill_(float("nan"))
    graph.replay()
    assert torch.equal(out, whole[:8, :256])
