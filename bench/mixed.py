"""Products with packed int4 weights, cleave.mixed_gemm against bfloat16 and against a Triton kernel.

    python -m bench.mixed        # a table, of shapes of language models' layers

Weights take turns, so that L2 is cold, and contenders do, in graphs with a small kernel between the products
(between.py). What bytes alone take is beside it: at 4.3 TB/s of an H200, of which 0.92 are to be had, and a launch.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch

import cleave
from cleave.testing.measure import set_count

from .between import Between, medians
from .triton_mixed import TritonWeights, multiply

LAYERS = (  # outputs, inputs
    ("Llama-3-8B qkv", 6144, 4096),
    ("Llama-3-8B o", 4096, 4096),
    ("Llama-3-8B gate_up", 28672, 4096),
    ("Llama-3-8B down", 4096, 14336),
    ("Llama-3-70B qkv", 10240, 8192),
    ("Llama-3-70B o", 8192, 8192),
    ("Llama-3-70B gate_up", 57344, 8192),
    ("Llama-3-70B down", 8192, 28672),
    ("Qwen3-32B gate_up", 51200, 5120),
    ("Qwen3-32B down", 5120, 25600),
)
TOKENS = (1, 8, 16, 32, 64, 128, 256, 512)
GROUP = 128
BYTES_PER_US = 4.3e6 * 0.92
ROUNDS = 7
MOST_ERROR = 1e-2  # of the largest of D


class Layer:
    """A weight in all forms, as often as L2 takes to be cold."""

    def __init__(self, n: int, k: int) -> None:
        self.n, self.k = n, k
        first = torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * 0.02
        self.dense = [first] + [first.clone() for _ in range(set_count(2 * n * k) - 1)]
        few = set_count(n * k // 2)
        packed = cleave.pack_weights(self.dense[0], GROUP)
        self.packed = [packed] + [
            cleave.PackedWeights(packed.packed.clone(), packed.scales.clone(), None, packed.shape, GROUP)
            for _ in range(few - 1)
        ]
        triton = TritonWeights.of(cleave.unpack_weights(packed), packed.scales)
        self.triton = [triton] + [triton.clone() for _ in range(few - 1)]
        self.weight = cleave.dequantize_weights(packed, "bfloat16")

    def bytes(self, m: int) -> int:
        return self.n * self.k // 2 + self.n * self.k // GROUP * 2 + 2 * m * (self.n + self.k)

    def times(self, m: int, between: Between) -> dict[str, float]:
        """Ours, bfloat16 of ours and of torch, Triton, in turns."""
        x = torch.randn(m, self.k, device="cuda", dtype=torch.bfloat16)
        d = torch.empty(m, self.n, device="cuda", dtype=torch.bfloat16)
        expected = x.double() @ self.weight.double().t()
        for call in (
            lambda: cleave.mixed_gemm(x, self.packed[0], out=d),
            lambda: multiply(x, self.triton[0], d),
        ):
            d.fill_(float("nan"))
            call()
            error = ((d.double() - expected).abs().max() / expected.abs().max()).item()
            if not error < MOST_ERROR:
                raise RuntimeError(f"{m} x {self.n} x {self.k}: an error of {error}")
        packed, dense, of_triton = self.packed, self.dense, self.triton
        calls = {
            "int4": lambda i: cleave.mixed_gemm(x, packed[i % len(packed)], out=d, static_b=True),
            "bf16": lambda i: cleave.gemm(x, dense[i % len(dense)].t(), out=d, static_b=True),
            "torch": lambda i: torch.mm(x, dense[i % len(dense)].t(), out=d),
            "triton": lambda i: multiply(x, of_triton[i % len(of_triton)], d),
        }
        return medians({name: between.timed(call) for name, call in calls.items()}, ROUNDS)


def geomean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values) if values else float("nan")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="*", default=TOKENS)
    parser.add_argument("--match", default="", help="only layers with this in their names")
    options = parser.parse_args(arguments)
    print(f"{torch.cuda.get_device_name()}, {cleave.__version__}; microseconds")
    columns = ("tokens", "int4", "bytes", "bf16", "torch", "triton", "x bf16", "x triton")
    print(f"{'layer':22}" + "".join(f"{column:>9}" for column in columns))
    ratios: dict[int, list[tuple[float, float]]] = {}
    between = Between()
    for name, n, k in LAYERS:
        if options.match not in name:
            continue
        layer = Layer(n, k)
        for m in options.tokens:
            us = layer.times(m, between)
            over = us["bf16"] / us["int4"], us["triton"] / us["int4"]
            ratios.setdefault(m, []).append(over)
            times = (us["int4"], layer.bytes(m) / BYTES_PER_US, us["bf16"], us["torch"], us["triton"], *over)
            print(f"{name:22}{m:9}" + "".join(f"{time:9.2f}" for time in times), flush=True)
        del layer
        torch.cuda.empty_cache()
    for m, pairs in ratios.items():
        of_bf16, of_triton = geomean([pair[0] for pair in pairs]), geomean([pair[1] for pair in pairs])
        print(f"geomean of {m} tokens: {of_bf16:.2f} of bf16, {of_triton:.2f} of triton")


if __name__ == "__main__":
    main()
