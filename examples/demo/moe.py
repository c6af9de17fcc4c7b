"""A mixture of experts: the products of one layer, all experts at once and one by one.

Tokens are shared among the experts as unevenly as they are in practice. The loop is what one writes
without grouped products: the sizes go to the host, then there is a product per expert. Both are
Cleave's, and both are compared with float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cleave.cli.console import Console
from cleave.testing import measure
from cleave.testing.arrays import Arrays, select
from cleave.testing.group_sizes import spread_over

TITLE = "Mixture of experts: one product for all of them"

# What a result may differ from float64, of the largest element: float16's rounding, twice.
MOST_ERROR = 2.0**-10


@dataclass(frozen=True)
class Size:
    experts: int
    tokens: int
    features: int
    hidden: int
    repetitions: int
    seconds: float  # that repeating one product may take


GPU = Size(experts=64, tokens=4096, features=2048, hidden=1408, repetitions=20, seconds=2.0)
CPU = Size(experts=16, tokens=512, features=256, hidden=128, repetitions=5, seconds=0.2)


@dataclass(frozen=True)
class Product:
    """One of a layer's products, on `rows` of an expert or on all."""

    name: str
    grouped: Callable[[], Any]
    single: Callable[[int, slice], tuple[Any, Any]]  # the operands of one expert's
    out: Any  # of the loop: a matrix for each expert, or rows

    def place(self, array: Any, expert: int, rows: slice) -> Any:
        return array[expert if array.ndim == 3 else rows]


def run(device: str, console: Console) -> None:
    """Times both ways of each product; ValueError if either result is wrong."""
    size = CPU if device == "cpu" else GPU
    arrays = select(device, {"float16"})
    counts = sorted(spread_over(size.experts, size.tokens, "zipf"), reverse=True)
    ends = np.cumsum(counts)
    console.print(
        f"{size.tokens} tokens, {size.experts} experts with {counts[0]} down to {counts[-1]} "
        f"of them, {size.features} features, {size.hidden} hidden, float16, on {device}"
    )
    offs = arrays.from_numpy(ends, "int32")
    rows = []
    for product in products(arrays, size, offs):
        loop = _loop(arrays, product, offs)
        times = [_microseconds(arrays, call, size) for call in (loop, product.grouped)]
        arrays.synchronize()
        grouped = product.grouped()
        arrays.synchronize()
        results = {"the loop": product.out, "the grouped product": grouped}
        errors = [_error(arrays, product, name, result, ends) for name, result in results.items()]
        rows.append((product.name, *times, f"{times[0] / times[1]:.1f}", f"{max(errors):.1e}"))
    console.table(("", "loop us", "grouped us", "loop / grouped", "max rel err"), rows)


def products(arrays: Arrays, size: Size, offs: Any) -> list[Product]:
    """y = x w^T, dx = dy w and dw = dy^T x, of each expert's rows of x and y."""
    import cleave

    x = arrays.normal((size.tokens, size.features), "float16", seed=0)
    dy = arrays.normal((size.tokens, size.hidden), "float16", seed=1)
    w = arrays.normal((size.experts, size.hidden, size.features), "float16", seed=2)
    y, dx, dw = (arrays.full(result.shape, 0.0, "float16") for result in (dy, x, w))
    stream = {"stream": arrays.stream}
    return [
        Product(
            "forward",
            lambda: cleave.grouped_gemm(x, w.swapaxes(1, 2), offs, **stream),
            lambda expert, rows: (x[rows], w[expert].T),
            y,
        ),
        Product(
            "data gradient",
            lambda: cleave.grouped_gemm(dy, w, offs, **stream),
            lambda expert, rows: (dy[rows], w[expert]),
            dx,
        ),
        Product(
            "weight gradient",
            lambda: cleave.grouped_gemm_wgrad(dy, x, offs, **stream),
            lambda expert, rows: (dy[rows].T, x[rows]),
            dw,
        ),
    ]


def _microseconds(arrays: Arrays, call: Callable[[], Any], size: Size) -> float:
    return measure.host_microseconds(lambda: measure.run_to_completion(arrays, call), size.repetitions, size.seconds)


def _loop(arrays: Arrays, product: Product, offs: Any) -> Callable[[], None]:
    import cleave

    def loop() -> None:
        for expert, rows in enumerate(_slices(arrays.to_numpy(offs))):
            if rows.start < rows.stop:
                out = product.place(product.out, expert, rows)
                cleave.gemm(*product.single(expert, rows), out=out, stream=arrays.stream)

    return loop


def _error(arrays: Arrays, product: Product, name: str, result: Any, ends: np.ndarray) -> float:
    """The largest of any element, relative to the largest element."""
    largest = worst = 0.0
    for expert, rows in enumerate(_slices(ends)):
        a, b = (arrays.to_numpy(x).astype(np.float64) for x in product.single(expert, rows))
        exact = a @ b
        ours = arrays.to_numpy(product.place(result, expert, rows)).astype(np.float64)
        largest = max(largest, abs(exact).max(initial=0.0))
        worst = max(worst, abs(ours - exact).max(initial=0.0))
    if not worst <= MOST_ERROR * largest:  # NaN, too
        raise ValueError(
            f"{product.name}: {name} differs from float64 by {worst / largest:.1e} of the largest "
            f"element; at most {MOST_ERROR:.1e} was expected"
        )
    return worst / largest


def _slices(ends: np.ndarray) -> list[slice]:
    return [slice(b, e) for b, e in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]
