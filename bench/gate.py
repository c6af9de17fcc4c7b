"""python -m bench.gate: the first layer of an MLP, its gate and its quantisation by 1x128 in one call.

Beside it stand the product alone, without a gate, which writes both halves in bfloat16 ("plain"); the product with its
gate and Cleave's quantisation behind it ("gated"); and the plain product with gate and quantisation behind it in one
kernel of torch's compiler ("apart"). Four models' layers, 16 to 4096 tokens, operands in fp8 with scales of rows and of
blocks, and in bfloat16. Marginal microseconds between ordinary kernels (between.py); weights are cold, x is warm.

What is asked: the call, of one launch or two, takes at most 1.03 of plain, no more than the better of the two kernels,
and is ahead of that one by at least 0.97 of what saves the way of 2 + 2 bytes an element through memory, whose
bandwidth is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cleave
from cleave._compile_ahead import CompileAhead
from cleave.testing.arrays import TorchArrays
from cleave.testing.case import SCALINGS, Block
from cleave.testing.measure import set_count
from cleave.testing.quantization import dequantize

from .bandwidth import bytes_per_us
from .between import Between, medians
from .chain import FP8, swiglu
from .kept_rows import KeptRows
from .summary import spread, spread_text

# Columns after the gate, and inputs.
MODELS = {
    "Llama-3-8B": (14336, 4096),
    "Llama-3-70B on 4 GPUs": (7168, 8192),
    "Qwen3-4B": (9728, 2560),
    "an expert of DeepSeek-V3": (2048, 7168),
}
TOKENS = (16, 256, 4096)
KINDS = {"fp8 rows": "row", "fp8 blocks": "block_128x128", "bf16": "none"}  # with what of SCALINGS
GROUP = 128
FOUND = "block_1x128"  # scales of what the layer makes

# What is asked for.
MOST_OF_PLAIN = 1.03
LEAST_OF_SAVED = 0.97

# Results are compared with float64 on so many rows, in the norm: roundings to fp8 and, apart, to bfloat16 before.
COMPARED = 128
MOST_ERROR = 0.05

# Options of the product of each contender.
GATED = {"activation": "swiglu"}
PRODUCTS: dict[str, dict[str, Any]] = {
    "plain": {"out_dtype": torch.bfloat16},
    "gated": GATED | {"out_dtype": torch.bfloat16},
    "one kernel": GATED | {"out_dtype": FP8, "out_scale": FOUND, "scale_major": "mn"},
}

Call = Callable[[int], Any]
Parts = tuple[Tensor, Tensor | None]  # a matrix and its scales


class Layer:
    """[2 N, K] weights of a kind, the gates' rows first, as often as leaves L2 cold."""

    def __init__(self, kind: str, n: int, k: int, device: str = "cuda:0"):
        self.kind, self.k = kind, k
        self._scaling, self._arrays = KINDS[kind], TorchArrays(device)
        first = self._quantized(self._arrays.normal((2 * n, k), "float32", 0) / k**0.5, self._scaling)
        # All are as the first: what is multiplied does not matter, where it lies does.
        copies = set_count(first[0].nbytes) - 1
        self.weights = [first] + [(first[0].clone(), first[1]) for _ in range(copies)]

    def _quantized(self, x: Tensor, scaling: str) -> Parts:
        x = x.bfloat16()
        return (x, None) if scaling == "none" else cleave.quantize(x, FP8, scaling, scale_major="mn")

    def activations(self, tokens: int) -> Parts:
        scaling = FOUND if self._scaling.startswith("block") else self._scaling
        return self._quantized(self._arrays.normal((tokens, self.k), "float32", tokens), scaling)

    def _real(self, x: Parts, block: Block) -> Tensor:
        return x[0].double() if x[1] is None else dequantize(self._arrays, *x, block)

    def multiply(self, x: Parts, i: int, options: dict[str, Any], plan: bool = False) -> Any:
        """The product with the weights whose turn it is, or its plan."""
        weight, scale = self.weights[i % len(self.weights)]
        if scale is None:
            return (cleave.plan_gemm if plan else cleave.gemm)(x[0], weight.t(), **options)
        operands = (x[0], weight.t(), x[1], scale.t())
        call = cleave.plan_scaled_gemm if plan else cleave.scaled_gemm
        return call(*operands, use_fast_accum=self.kind == "fp8 rows", **options)

    def plans(self, tokens: int) -> dict[str, Any]:
        x = self.activations(tokens)
        return {name: self.multiply(x, 0, options, plan=True) for name, options in PRODUCTS.items()}

    def calls(self, x: Parts, gate_and_quantize: Callable[[Tensor], Any]) -> dict[str, Call]:
        def gated(i: int) -> Any:
            h = self.multiply(x, i, PRODUCTS["gated"])
            return cleave.quantize(h, FP8, FOUND, scale_major="mn")

        return {
            "one kernel": lambda i: self.multiply(x, i, PRODUCTS["one kernel"]),
            "plain": lambda i: self.multiply(x, i, PRODUCTS["plain"]),
            "gated": gated,
            "apart": lambda i: gate_and_quantize(self.multiply(x, i, PRODUCTS["plain"])),
        }

    def errors(self, calls: dict[str, Call], x: Parts) -> dict[str, float]:
        """Each contender's against float64, of its first rows and relative to their norm."""
        of_x, of_weight = SCALINGS[self._scaling] or (None, None)
        h = self._real(x, of_x)[:COMPARED] @ self._real(self.weights[0], of_weight).t()
        gate, up = h.chunk(2, -1)
        found = {}
        for name, call in calls.items():
            wanted = h if name == "plain" else torch.nn.functional.silu(gate) * up
            made = call(0)
            made = self._real(made, (1, GROUP)) if isinstance(made, tuple) else made.double()
            found[name] = float((made[:COMPARED] - wanted).norm() / wanted.norm())
        return found


def gate_and_quantize(h: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float32, for torch's compiler to make one kernel of."""
    groups = swiglu(h).unflatten(-1, (-1, GROUP))
    scale = (groups.abs().amax(-1, keepdim=True) / torch.finfo(FP8).max).clamp(min=1e-12)
    return (groups / scale).to(FP8).flatten(-2), scale.squeeze(-1)


def measure(
    layer: Layer,
    model: str,
    tokens: int,
    behind: Callable[[Tensor], Any],
    between: Between,
    rounds: int,
    bandwidth: float,
) -> dict[str, Any]:
    """One row. behind: gate_and_quantize, compiled."""
    x = layer.activations(tokens)
    calls = layer.calls(x, behind)
    found = layer.errors(calls, x)
    wrong = [f"{name} ({error:.2g})" for name, error in found.items() if not error <= MOST_ERROR]
    if wrong:
        raise RuntimeError(f"{layer.kind}, {model}, {tokens} tokens: wrong are {', '.join(wrong)}")
    us = medians({name: between.timed(call) for name, call in calls.items()}, rounds)
    cleave.release_workspaces()
    saved = 4 * tokens * (layer.weights[0][0].shape[0] // 2) / bandwidth
    best = min(us["gated"], us["apart"])
    return {
        "job": layer.kind,
        "case": f"{model}, {tokens} tokens",
        "kernel": layer.plans(tokens)["one kernel"].kernel_name,
        "us": us["one kernel"],
        "plain_us": us["plain"],
        "gated_us": us["gated"],
        "apart_us": us["apart"],
        "of_plain": us["one kernel"] / us["plain"],
        "ratio": best / us["one kernel"],
        "allowed": 1 + saved / us["plain"],
        "error": found["one kernel"],
    }


def is_met(row: dict[str, Any]) -> bool:
    return row["of_plain"] <= MOST_OF_PLAIN and row["ratio"] >= max(1.0, LEAST_OF_SAVED * row["allowed"])


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['job']:10} {row['case']:38} {row['us']:8.2f} us, plain {row['plain_us']:8.2f} ({row['of_plain']:.2f}), "
        f"gated {row['gated_us']:8.2f}, apart {row['apart_us']:8.2f}, the better one's over ours {row['ratio']:.3f} "
        f"(bytes allow {row['allowed']:.3f}): {'met' if is_met(row) else 'missed'}  {row['kernel']}"
    )


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for kind in dict.fromkeys(row["job"] for row in rows):
        own = [row for row in rows if row["job"] == kind]
        ratios = {row["case"]: row["ratio"] for row in own}
        of_plain = max(own, key=lambda row: row["of_plain"])
        yield (
            f"{kind}: the better two kernels' time over one's: {spread_text(spread(ratios))}; over plain at most "
            f"{of_plain['of_plain']:.2f}, {of_plain['case']}; {sum(map(is_met, own))} of {len(own)} rows meet the bar"
        )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=540, help="start no row after this long")
    parser.add_argument("--out", type=Path, default=Path("bench/results/gate.json"))
    arguments = parser.parse_args(argv)
    torch._dynamo.config.cache_size_limit = 64
    compiled = torch.compile(gate_and_quantize, fullgraph=True, dynamic=False)
    kept, between = KeptRows(arguments.out, arguments.seconds), Between()
    bandwidth = bytes_per_us(TorchArrays("cuda:0"))
    print(f"{torch.cuda.get_device_name()}, memory gives {bandwidth * 1e-6:.2f} TB/s")
    for kind in arguments.kinds.split(","):
        cases = [(f"{model}, {m} tokens", (model, m)) for model in MODELS for m in arguments.tokens]
        missing = kept.missing(kind, cases)
        layers = {model: Layer(kind, *MODELS[model]) for model, _ in missing}
        with CompileAhead() as ahead:
            ahead.wait(plan for model, tokens in missing for plan in layers[model].plans(tokens).values())
        for model, tokens in missing:
            if not kept.time_is_up:
                kept.add(measure(layers[model], model, tokens, compiled, between, arguments.rounds, bandwidth))
                print(line(kept.rows[-1]), flush=True)
    print(*summary(kept.rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
