"""TritonBench's operator `cleave_gemm`: dense products, with K split and not, against torch.mm."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator
from typing import Any

import torch
from tritonbench.utils.triton_op import (
    BenchmarkOperator,
    BenchmarkOperatorMetrics,
    register_benchmark,
    register_metric,
    register_x_val,
)

import cleave

# M, N, K: where K is much larger than M and N; layers of a language model; a square.
SHAPES = (
    (128, 128, 16384),
    (256, 256, 8192),
    (512, 512, 32768),
    (16, 7168, 2048),
    (64, 2112, 7168),
    (128, 4096, 7168),
    (4096, 7168, 2048),
    (4096, 4096, 4096),
)


def shape_of(text: str) -> tuple[int, int, int]:
    try:
        m, n, k = map(int, text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no M x N x K: write it as 128x128x16384") from None
    return m, n, k


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cleave_gemm", description=__doc__)
    parser.add_argument("--shapes", type=shape_of, nargs="+", default=SHAPES, metavar="MxNxK")
    return parser.parse_args(arguments or [])


class Operator(BenchmarkOperator):
    DEFAULT_METRICS = ["latency", "speedup", "tflops", "accuracy"]  # noqa: RUF012 - as the base class has it
    DEFAULT_PRECISION = "bf16"
    FWD_ONLY = True

    def __init__(self, tb_args: argparse.Namespace, extra_args: list[str] | None = None) -> None:
        super().__init__(tb_args, extra_args)
        self.shapes = options_of(self.extra_args).shapes

    @register_benchmark(baseline=True)
    def torch_mm(self, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: torch.mm(a, b)

    @register_benchmark()
    def cleave_gemm(self, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: cleave.gemm(a, b)

    @register_benchmark()
    def cleave_gemm_whole_k(self, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
        """What splitting K gains is the difference."""
        return lambda: cleave.gemm(a, b, split_k_mode="none")

    @register_x_val(label="(M, N, K)")
    def get_x_val(self, example_inputs: tuple[torch.Tensor, torch.Tensor]) -> tuple[int, int, int]:
        a, b = example_inputs
        return a.shape[0], b.shape[1], a.shape[1]

    @register_metric()
    def flops(self, fn_name: str, example_inputs: Any, metrics: BenchmarkOperatorMetrics) -> float:
        m, n, k = self.get_x_val(example_inputs)
        return 2.0 * m * n * k

    def get_input_iter(self) -> Generator[tuple[torch.Tensor, torch.Tensor], None, None]:
        """Weights as torch.nn.Linear has them. Elements of D have a magnitude of 1, whatever K is."""
        for m, n, k in self.shapes:
            a = torch.randn(m, k, device=self.device).to(self.dtype)
            b = (torch.randn(n, k, device=self.device) * k**-0.5).to(self.dtype)
            yield a, b.t()

    def _get_accuracy(self, fn: Callable[[], torch.Tensor], baseline_fn: Callable[[], torch.Tensor]) -> bool:
        """Either has rounded D once, and torch perhaps sums of slices as well."""
        return torch.allclose(fn().float(), baseline_fn().float(), rtol=2e-2, atol=1e-2)
