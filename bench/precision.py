"""float32 products of every precision beside torch's float32: time, and error against float64.

    python -m bench.precision

torch multiplies by cuBLAS, with allow_tf32 off. All take turns, in graphs with a small kernel between the launches
(between.py), over operands that leave L2 cold. The error is the largest of an element, relative to the root of the
squares of its products.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import cleave
from cleave.testing.measure import set_count

from .between import Between, medians

SHAPES = (  # M, N, K
    (1024, 1024, 1024),
    (4096, 4096, 4096),
    (512, 512, 16384),
    (2048, 256, 4096),
    (16, 4096, 4096),
    (1, 128, 6144),
    (64, 256, 7168),
)
PRECISIONS = ("ieee", "tf32x3", "bf16x3", "tf32")
ROUNDS = 7

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # a, b, out


def operands(m: int, n: int, k: int) -> list[Operands]:
    def one() -> Operands:
        a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda").mT
        return a, b, torch.empty(m, n, device="cuda")

    return [one() for _ in range(set_count(4 * (m * k + n * k + m * n)))]


def of_torch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, b, out=out)


def ours(precision: str) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]:
    return lambda a, b, out: cleave.gemm(a, b, out=out, precision=precision)


def error(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> float:
    x, y = a.double(), b.double()
    return float(((out.double() - x @ y).abs() / ((x * x) @ (y * y)).sqrt()).max())


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    between = Between()
    contenders = {"torch": of_torch, **{precision: ours(precision) for precision in PRECISIONS}}
    print(f"{'M x N x K':20}{'torch us':>10} error  " + "".join(f"{name:>8} us  ratio   error" for name in PRECISIONS))
    for m, n, k in SHAPES:
        torch.manual_seed(0)
        sets = operands(m, n, k)
        errors, samples = {}, {}
        for name, call in contenders.items():
            sets[0][-1].fill_(float("nan"))
            call(*sets[0])
            errors[name] = error(*sets[0])
            samples[name] = between.timed(lambda i, call=call, sets=sets: call(*sets[i % len(sets)]))
        us = medians(samples, ROUNDS)
        row = f"{f'{m} x {n} x {k}':20}{us['torch']:10.2f} {errors['torch']:.1e}"
        for name in PRECISIONS:
            row += f"{us[name]:10.2f} {us['torch'] / us[name]:6.2f}  {errors[name]:.1e}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
