"""Groups whose last tile is filled by half at most, which narrower instructions then multiply."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from served import skip_unless_served

from cleave import _core
from cleave.testing import grouped
from cleave.testing.arrays import TorchArrays

TILES = ((128, 96), (128, 144), (64, 128), (256, 112), (128, 176))
KINDS = {
    "bf16": {"dtype": "bfloat16"},
    "fp8 rows": {"dtype": "float8_e4m3fn", "out_dtype": "bfloat16", "scaling": "row", "use_fast_accum": True},
    "fp8 rows, promoted": {"dtype": "float8_e4m3fn", "out_dtype": "bfloat16", "scaling": "row"},
    "fp8 blocks": {"dtype": "float8_e4m3fn", "out_dtype": "bfloat16", "scaling": "block_128x128"},
    "int8": {"dtype": "int8", "scaling": "row", "out_dtype": "bfloat16"},
}


@pytest.mark.parametrize("words", ["", " multicast 2x1", " multicast 1x2", " stream_k 1", " parallel 3", " cluster 2"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_ends_on_either_side_of_a_half(tile: tuple[int, int], kind: str, words: str) -> None:
    skip_unless_served("sm90")
    rows, columns = tile
    half = -(-columns // 32) * 16
    sizes = (0, 1, half - 1, half, half + 1, columns, columns + half, columns + half + 1, 0, 3 * columns)
    case = grouped.GroupedCase(len(sizes), sum(sizes), 400, 1040, sizes=sizes, **KINDS[kind])
    try:
        plan = _core.plan_as(case.plan("cuda"), f"sm90 {rows}x{columns} transposed{words}")
    except ValueError:
        pytest.skip("has no such kernel")
    arrays = TorchArrays("cuda:0")
    operands = grouped.make_operands(arrays, case)
    grouped.run(plan, operands, None)
    assert grouped.errors(arrays, case, operands).acceptable
