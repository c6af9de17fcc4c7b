"""Tiles whose columns end within a strip of an operand that is contiguous along them, and 192 x 192: exactly, in every
layout and mode."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from named_kernels import check, run  # noqa: E402
from products import Product  # noqa: E402
from served import skip_unless_served  # noqa: E402

# By rows of the tile: columns whose last strip of 64 is cut.
CUT = {64: (80, 96, 112, 144, 160, 176, 208, 224), 128: (80, 96, 112, 144, 160, 176, 208, 224, 240),
       192: (80, 96, 112, 144), 256: (80, 96, 112, 144, 160, 176)}  # fmt: skip
TILES = [(rows, columns) for rows, widths in CUT.items() for columns in widths] + [(192, 192)]
FEW = [(64, 80), (128, 160), (128, 224), (192, 112), (192, 192), (256, 96)]
SPLITS = ("", " parallel 3", " parallel 4 clusters 2", " cluster 3", " stream_k 1", " serial 3")
# Where the kernel's columns are contiguous: A's rows, if the product is transposed, or B's columns.
LAYOUTS = (("nn", True), ("nt", True), ("nt", False), ("tt", False))


@pytest.fixture(autouse=True)
def hopper() -> None:
    skip_unless_served("sm90")


def kernel_of(tile: tuple[int, int], transposed: bool, rest: str = "") -> str:
    return f"sm90 {tile[0]}x{tile[1]}{' transposed' if transposed else ''}{rest}"


def product_of(tile: tuple[int, int], transposed: bool, layout: str, tiles: float, k: int, **more: object) -> Product:
    """So many tiles along the kernel's columns, to the next multiple of 8; two and a part along its rows."""
    rows, columns = 2 * tile[0] + 24, max(int(tiles * tile[1]) // 8 * 8, 8)
    return Product(*((columns, rows) if transposed else (rows, columns)), k, layout=layout, **more)


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("layout, transposed", LAYOUTS)
def test_every_width(tile: tuple[int, int], layout: str, transposed: bool) -> None:
    for tiles in (1, 0.6, 2.3, 5):  # alone, cut, with a part behind, whole ones that begin within a strip
        for k in (72, 1032):  # K ends within a k block
            check(product_of(tile, transposed, layout, tiles, k), kernel_of(tile, transposed))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("tile", FEW, ids=str)
@pytest.mark.parametrize("layout, transposed", [LAYOUTS[0], LAYOUTS[3]])
def test_splits(tile: tuple[int, int], layout: str, transposed: bool, split: str) -> None:
    for k in (1000, 4360):
        check(product_of(tile, transposed, layout, 1.4, k, dtype="float16"), kernel_of(tile, transposed, split))


@pytest.mark.parametrize("multicast", ["2x1", "1x2", "4x1"])
@pytest.mark.parametrize(
    "tile", [(64, 96), (64, 176), (128, 80), (128, 192), (128, 240), (192, 192), (256, 160)], ids=str
)
@pytest.mark.parametrize("layout, transposed", [LAYOUTS[0], LAYOUTS[3]])
def test_shared_loads(tile: tuple[int, int], layout: str, transposed: bool, multicast: str) -> None:
    """Two CTAs, or four, share strips, fewer of them too, or two what the other operand's rows have."""
    for k in (64, 648, 2568):
        check(product_of(tile, transposed, layout, 2.3, k), kernel_of(tile, transposed, f" multicast {multicast}"))


@pytest.mark.parametrize("rest", [" pingpong", " pingpong multicast 2x1", " pingpong multicast 1x2"])
@pytest.mark.parametrize("layout, transposed", [LAYOUTS[0], LAYOUTS[3]])
def test_warpgroups_with_tiles_of_their_own(layout: str, transposed: bool, rest: str) -> None:
    for k in (72, 1032):
        check(product_of((128, 160), transposed, layout, 5.4, k), kernel_of((128, 160), transposed, rest))


@pytest.mark.parametrize("tile", FEW, ids=str)
@pytest.mark.parametrize("layout, transposed", [LAYOUTS[0], LAYOUTS[3]])
def test_batches_and_epilogues(tile: tuple[int, int], layout: str, transposed: bool) -> None:
    kernel = kernel_of(tile, transposed)
    check(product_of(tile, transposed, layout, 1.6, 456, batch=3, bias="column"), kernel)
    check(product_of(tile, transposed, layout, 1.6, 456, bias="row", activation="relu", alpha=0.5), kernel)
    if tile[0] != 192:  # three warpgroups leave no registers for C
        check(product_of(tile, transposed, layout, 1.6, 456, c="float32", beta=-2.0, bias="row"), kernel)
        check(product_of(tile, transposed, layout, 1.6, 456, batch=2, c="D", beta=1.0), kernel)


@pytest.mark.parametrize("tile", [(64, 80), (128, 160), (192, 112), (256, 176)], ids=str)
@pytest.mark.parametrize("layout, transposed", [LAYOUTS[0], LAYOUTS[3]])
def test_columns_of_a_strip_that_are_no_tile_of_mine(tile: tuple[int, int], layout: str, transposed: bool) -> None:
    """The rest of the last strip is the next tile's, and NaNs there are not multiplied."""
    product = product_of(tile, transposed, layout, 3, 328)
    columns = product.a if transposed else product.b.mT
    columns[tile[1] : 2 * tile[1]] = float("nan")
    run(product, kernel_of(tile, transposed))
    d, expected = (x if transposed else x.mT for x in (product.out.double(), product.expected.double()))
    for part in (slice(tile[1]), slice(2 * tile[1], None)):
        assert torch.equal(d[part], expected[part].bfloat16().double())
    assert d[tile[1] : 2 * tile[1]].isnan().all()


@pytest.mark.parametrize("tile", [(64, 80), (64, 176), (128, 96), (256, 144)], ids=str)
def test_few_rows_that_threads_copy_beside_cut_strips(tile: tuple[int, int]) -> None:
    for m in (8, 40):
        check(Product(m, 3 * tile[1] - 8, 1032, layout="nt"), kernel_of(tile, False, " narrow"))
