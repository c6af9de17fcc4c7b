"""float32 products of every precision beside torch's float32: time in a graph, and error against float64.

    python -m bench.precision

torch multiplies by cuBLAS, with allow_tf32 off. The error is the largest of an element, relative to the root of the
squares of its products.
"""

from __future__ import annotations

import torch

import cleave

from .route import in_graph

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


def error(d: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    x, y = a.double(), b.double()
    return float(((d.double() - x @ y).abs() / ((x * x) @ (y * y)).sqrt()).max())


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"{'M x N x K':20}{'torch us':>10} error  " + "".join(f"{name:>8} us  ratio   error" for name in PRECISIONS))
    for m, n, k in SHAPES:
        torch.manual_seed(0)
        a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda").mT
        out = torch.empty(m, n, device="cuda")
        theirs = in_graph(lambda: torch.mm(a, b, out=out))  # noqa: B023
        row = f"{f'{m} x {n} x {k}':20}{theirs:10.2f} {error(out, a, b):.1e}"
        for precision in PRECISIONS:
            ours = in_graph(lambda: cleave.gemm(a, b, out=out, precision=precision))  # noqa: B023
            row += f"{ours:10.2f} {theirs / ours:6.2f}  {error(out, a, b):.1e}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
