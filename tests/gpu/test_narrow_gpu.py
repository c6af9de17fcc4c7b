"""Products of few rows, contiguous along them, which threads copy beside TMA: exactly, in every mode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from named_kernels import check, run  # noqa: E402
from products import Product  # noqa: E402
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402

# A's rows on the tile's rows, or on its columns: in strips of 128, 64 and 32 bytes.
STRAIGHT = ("sm90 64x64 narrow", "sm90 64x128 narrow", "sm90 128x64 narrow", "sm90 256x128 narrow")
TURNED = tuple(f"sm90 {tile} transposed narrow" for tile in ("64x16", "128x16", "128x32", "64x48", "128x64", "256x96"))
SPLITS = ("", " serial 3", " parallel 3", " parallel 4 clusters 2", " cluster 3", " stream_k 1")


@pytest.fixture(autouse=True)
def hopper() -> None:
    skip_unless_served("sm90")


@pytest.mark.parametrize("kernel", STRAIGHT + TURNED)
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_rows(kernel: str, layout: str) -> None:
    for m in range(8, 73, 8):
        for n, k in ((136, 328), (520, 1032)):  # K ends within a k block, the pipeline goes around
            check(Product(m, n, k, layout=layout), kernel)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kernel", STRAIGHT[1:3] + TURNED[1:4])
def test_splits(kernel: str, split: str) -> None:
    for m in (8, 40):
        for dtype in ("bfloat16", "float16"):
            check(Product(m, 392, 2056, layout="nn", dtype=dtype), kernel + split)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kernel", (STRAIGHT[1], TURNED[1]))
def test_batches(kernel: str, split: str) -> None:
    for shared in (None, "a", "b"):
        product = Product(24, 136, 1160, batch=3, layout="nt", c="D", bias="column")
        if shared == "a":
            product.a = product.a[1]
        elif shared == "b":
            product.b = product.b[1]
        product.expected = product._expected()
        product.beta = 1.0
        check(product, kernel + split)


@pytest.mark.parametrize("kernel", (STRAIGHT[1], *TURNED[:3]))
@pytest.mark.parametrize("m, padding", [(2, 0), (4, 0), (10, 0), (12, 0), (12, 8), (12, 4), (60, 0), (9, 7), (63, 9)])
def test_rows_that_the_copy_engine_cannot_read(kernel: str, m: int, padding: int) -> None:
    """Rows that begin at multiples of 4 or 8 bytes, and rows that end within 16."""
    product = Product(m, 264, 456, layout="nn", padding=padding)
    b = torch.empty(264, 456, dtype=torch.bfloat16, device="cuda").mT
    product.b = b.copy_(product.b)  # the other operand comes by TMA
    check(product, kernel)


@pytest.mark.parametrize("kernel", (STRAIGHT[1], TURNED[1]))
def test_epilogue(kernel: str) -> None:
    product = Product(16, 264, 456, layout="nn", c="float32", beta=-2.0, bias="row", activation="relu", alpha=0.5)
    check(product, kernel)


@pytest.mark.parametrize("kernel", STRAIGHT[:2] + TURNED[1:4])
def test_what_was_in_shared_memory_reaches_no_row(kernel: str) -> None:
    nans = Product(64, 2056, 2056, layout="nn")
    nans.a.fill_(float("nan"))
    for m in (8, 56):
        product = Product(m, 2056, 2056, layout="nn")
        run(nans, kernel)
        check(product, kernel)


def test_few_rows_are_copied_by_themselves() -> None:
    """What the planner takes."""
    for layout in ("nn", "nt"):
        product = Product(8, 4104, 1160, layout=layout)
        plan = cleave.plan_gemm(product.a, product.b, out=product.out)
        assert "narrow" in plan.kernel_name
        product.run()
        product.check()
