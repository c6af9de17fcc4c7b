"""Tiles of 64 rows, which one warpgroup multiplies while an elected lane loads: exactly, in every mode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from named_kernels import check  # noqa: E402
from products import Product  # noqa: E402
from served import skip_unless_served  # noqa: E402

STRAIGHT = tuple(f"sm90 {tile}" for tile in ("64x16", "64x32", "64x64", "64x96", "64x128"))
TURNED = tuple(f"sm90 {tile} transposed" for tile in ("64x16", "64x48", "64x80", "64x112"))
SPLITS = ("", " serial 3", " parallel 3", " parallel 4 clusters 2", " cluster 3", " stream_k 1")
BLOCK = 64  # or twice that


@pytest.fixture(autouse=True)
def hopper() -> None:
    skip_unless_served("sm90")


@pytest.mark.parametrize("kernel", STRAIGHT + TURNED)
def test_one_block_and_odd_numbers_of_them(kernel: str) -> None:
    for k in (8, BLOCK, 2 * BLOCK, 2 * BLOCK + 8, *range(3 * BLOCK, 15 * BLOCK, 2 * BLOCK), 63 * BLOCK, 65 * BLOCK):
        check(Product(72, 136, k), kernel)


@pytest.mark.parametrize("kernel", STRAIGHT + TURNED)
@pytest.mark.parametrize("k", [BLOCK, 5 * BLOCK, 6 * BLOCK, 21 * BLOCK + 8])
def test_many_tiles_of_a_cta(kernel: str, k: int) -> None:
    check(Product(1048, 4104, k), kernel)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kernel", STRAIGHT[::2] + TURNED[::2])
def test_splits(kernel: str, split: str) -> None:
    for k in (1000, 2056, 4360):
        check(Product(40, 392, k, dtype="float16"), kernel + split)
        check(Product(200, 2056, k), kernel + split)


@pytest.mark.parametrize("layout, tiles", [("tn", STRAIGHT[2:]), ("tt", STRAIGHT[2::2]), ("nn", STRAIGHT[2:]),
                                           ("nt", STRAIGHT[2::2])])  # fmt: skip
@pytest.mark.parametrize("multicast", ["", " multicast 2x1", " multicast 1x2"])
def test_layouts_and_shared_loads(layout: str, tiles: tuple[str, ...], multicast: str) -> None:
    for kernel in tiles:
        if layout[1] == "t" and multicast == " multicast 2x1" and "64x64" in kernel:
            continue  # a strip of B is not dealt to two
        if layout[0] == "n" and multicast == " multicast 1x2":
            continue  # nor one of A
        for k in (BLOCK, 7 * BLOCK, 40 * BLOCK):
            check(Product(264, 1032, k, layout=layout), kernel + multicast)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8", "float32"])
@pytest.mark.parametrize("kernel", STRAIGHT[1:] + TURNED[::2])
def test_types(dtype: str, kernel: str) -> None:
    scaled = {} if dtype == "float32" else {"scaling": ("row", "row"), "out_dtype": "bfloat16"}
    options = {"use_fast_accum": True} if dtype.startswith("float8") else {}
    for k in (128, 1152, 4736):
        check(Product(120, 528, k, dtype=dtype, padding=16, options=options, **scaled), kernel)


@pytest.mark.parametrize("kernel", (STRAIGHT[2], TURNED[1]))
def test_batches_and_epilogues(kernel: str) -> None:
    check(Product(24, 136, 1160, batch=7, c="D", bias="column", beta=1.0), kernel)
    check(Product(300, 264, 456, c="float32", beta=-2.0, bias="row", activation="relu", alpha=0.5), kernel)


@pytest.mark.parametrize("kernel", ("sm90 64x16 transposed", "sm90 64x32 transposed"))
def test_blocks_that_memory_brings_in_any_order(kernel: str) -> None:
    """Some thousand tiles at the speed of memory: blocks come when they come."""
    for m, n, k in ((1, 128256, 8192), (3, 65544, 8200), (8, 151936, 1544)):
        product = Product(m, n, k)
        for _ in range(3):
            check(product, kernel)
