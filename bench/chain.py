"""python -m bench.chain: norms and linear layers of Llama's decoder layers in 8 bits, in one graph, beside torch's.

The sizes are Llama-3-8B's. Attention is left out: the first columns of the product with q, k and v stand for what it
gives. Weights are those of several layers in turn, so that L2 is cold; torch is compiled, and a peer's layers follow
each other in a graph as ours do. Each contender's layer is compared with the same in float64, of the weights it has.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import cleave.torch
from cleave._compile_ahead import CompileAhead
from cleave.testing import measure
from cleave.testing.arrays import TorchArrays

ops = torch.ops.cleave
EPS = 1e-5
LAYERS = 4  # of which the weights take turns
FP8, INT8 = torch.float8_e4m3fn, torch.int8

# What an H200's memory gives, and its tensor cores in 8 bits.
BYTES_PER_US, FLOPS_PER_US = 4.3e6, 1979e6

# Microseconds a layer that `fp8` should not exceed, and by how much it should be ahead of torch's fp8.
BARS = {16: 62.0, 64: 68.0, 256: 104.0}
BAR_RATIO = {2048: 1.05}

# Against float64, in the norm of the whole result. A contender in 8 bits should also be as good as torch's, nearly.
MOST_ERROR = {"8 bits": 0.12, "16 bits": 0.02}
MOST_RATIO = 1.15


@dataclass(frozen=True)
class Sizes:
    """A layer's sizes; `qkv`: the columns of q, k and v together."""

    hidden: int = 4096
    qkv: int = 6144
    intermediate: int = 14336

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Outputs and inputs of the linear layers; the gates are before the other half."""
        return {
            "qkv": (self.qkv, self.hidden),
            "o": (self.hidden, self.hidden),
            "gate_up": (2 * self.intermediate, self.hidden),
            "down": (self.hidden, self.intermediate),
        }

    def bytes(self, tokens: int) -> int:
        """What one layer in 8 bits reads and writes: weights, and what goes from kernel to kernel, once a launch."""
        h, i = self.hidden, self.intermediate
        weights = sum(n * k for n, k in self.linears.values())
        norms = 2 * (3 * 2 * h + h)  # x, the residual in and out; q
        products = (h + 2 * self.qkv) + (h + 2 * h) + (h + 2 * i) + (i + 2 * h)
        return weights + tokens * (norms + 3 * h + 3 * i + products)

    def flops(self, tokens: int) -> int:
        return 2 * tokens * sum(n * k for n, k in self.linears.values())


@dataclass
class Weights:
    """One layer's weights, by names: norms, and linear layers with their scales by row, or without."""

    norms: dict[str, Tensor]
    linears: dict[str, tuple[Tensor, Tensor | None]]

    def real(self, name: str) -> Tensor:
        """In float64."""
        weight, scale = self.linears[name]
        return weight.double() if scale is None else weight.double() * scale.double().view(-1, 1)


# One layer: x and the residual before it become those after it. x is added by the next norm.
Layer = Callable[[Tensor, Tensor, Weights], tuple[Tensor, Tensor]]


def make_weights(sizes: Sizes, device: str, seed: int) -> Weights:
    """In bfloat16."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    linears = {name: ((normal(n, k) / k**0.5).bfloat16(), None) for name, (n, k) in sizes.linears.items()}
    norms = {name: (1 + 0.1 * normal(sizes.hidden)).bfloat16() for name in ("attention", "mlp")}
    return Weights(norms, linears)


def quantized(weights: Weights, dtype: torch.dtype) -> Weights:
    def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
        q, scale = ops.quantize(weight, dtype)
        return q, scale.view(1, -1)

    return Weights(weights.norms, {name: quantize(weight) for name, (weight, _) in weights.linears.items()})


# --- ours ---


class Ours:
    """dtype: of the operands. add_norm: what adds and normalises where that is no part of the quantisation. static:
    products may read their weights before the kernels ahead are done."""

    def __init__(self, dtype: torch.dtype, add_norm: Callable[..., Any] | None = None, static: bool = True):
        self._dtype = dtype
        self._fast = dtype == FP8
        self._add_norm = add_norm
        self._static = static

    def __call__(self, x: Tensor, residual: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        q, scale, residual = self._normalize(x, residual, weights.norms["attention"])
        qkv = self._multiply(q, scale, *weights.linears["qkv"])
        q, scale = ops.quantize(qkv[:, : x.shape[1]], self._dtype)
        x = self._multiply(q, scale, *weights.linears["o"])
        q, scale, residual = self._normalize(x, residual, weights.norms["mlp"])
        h = self._multiply(q, scale, *weights.linears["gate_up"], activation="swiglu")
        q, scale = ops.quantize(h, self._dtype)
        return self._multiply(q, scale, *weights.linears["down"]), residual

    def _normalize(self, x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self._add_norm is None:
            return ops.quantize_normed_sum(x, residual, weight, self._dtype, "rms_norm", EPS)
        normed, residual = self._add_norm(x, residual, weight)
        return *ops.quantize(normed, self._dtype), residual

    def _multiply(
        self, q: Tensor, scale: Tensor, weight: Tensor, of_weight: Tensor, activation: str = "none"
    ) -> Tensor:
        return ops.scaled_gemm.full(
            q, weight.t(), scale, of_weight, None, torch.bfloat16, self._fast, activation=activation,
            static_b=self._static,
        )  # fmt: skip

    def plans(self, tokens: int, weights: Weights) -> Iterator[Any]:
        """The products' plans."""
        for name, (weight, scale) in weights.linears.items():
            a = torch.empty((tokens, weight.shape[1]), dtype=weight.dtype, device=weight.device)
            of_a = torch.empty((tokens, 1), device=weight.device)
            options = {"activation": "swiglu" if name == "gate_up" else "none", "use_fast_accum": self._fast}
            yield cleave.plan_scaled_gemm(
                a, weight.t(), of_a, scale, out_dtype=torch.bfloat16, static_b=self._static, **options
            )


# --- torch ---


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    residual = x + residual
    return rms_norm(residual, weight).to(x.dtype), residual


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """In float32."""
    real = x.float()
    return real * torch.rsqrt(real.square().mean(-1, keepdim=True) + EPS) * weight.float()


def swiglu(x: Tensor) -> Tensor:
    """In float32, of which the quantisation need not be rounded to 16 bits before."""
    gate, up = x.float().chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def torch_bfloat16(x: Tensor, residual: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    def linear(x: Tensor, name: str) -> Tensor:
        return torch.nn.functional.linear(x, weights.linears[name][0])

    normed, residual = add_rms_norm(x, residual, weights.norms["attention"])
    x = linear(linear(normed, "qkv")[:, : x.shape[1]], "o")
    normed, residual = add_rms_norm(x, residual, weights.norms["mlp"])
    return linear(swiglu(linear(normed, "gate_up")).to(x.dtype), "down"), residual


def torch_fp8(x: Tensor, residual: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    def linear(x: Tensor, name: str) -> Tensor:
        real = x.float()
        scale = (real.abs().amax(-1, keepdim=True) / torch.finfo(FP8).max).clamp(min=1e-12)
        weight, of_weight = weights.linears[name]
        return torch._scaled_mm(
            (real / scale).to(FP8), weight.t(), scale, of_weight, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    residual = x + residual
    x = linear(linear(rms_norm(residual, weights.norms["attention"]), "qkv")[:, : x.shape[1]], "o")
    residual = x + residual
    return linear(swiglu(linear(rms_norm(residual, weights.norms["mlp"]), "gate_up")), "down"), residual


def exact(x: Tensor, residual: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """In float64, without any rounding."""

    def norm(x: Tensor, name: str) -> Tensor:
        return torch.nn.functional.rms_norm(x, (x.shape[1],), weights.norms[name].double(), EPS)

    x, residual = x.double(), x.double() + residual.double()
    x = norm(residual, "attention") @ weights.real("qkv")[: x.shape[1]].t() @ weights.real("o").t()
    residual = x + residual
    gate, up = (norm(residual, "mlp") @ weights.real("gate_up").t()).chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up) @ weights.real("down").t(), residual


# --- the contest ---


@dataclass
class Contender:
    layer: Layer
    weights: Sequence[Weights]
    bits: str = "8 bits"


def contenders(layers: Sequence[Weights], compiled: Callable[..., Any]) -> dict[str, Contender]:
    """By name. compiled: torch.compile, or what stands for it."""
    fp8, int8 = ([quantized(layer, dtype) for layer in layers] for dtype in (FP8, INT8))
    return {
        "cleave fp8": Contender(Ours(FP8), fp8),
        "cleave int8": Contender(Ours(INT8), int8),
        "cleave fp8, weights wait": Contender(Ours(FP8, static=False), fp8),
        "cleave fp8, norms apart": Contender(Ours(FP8, compiled(add_rms_norm), static=False), fp8),
        "torch fp8": Contender(compiled(torch_fp8), fp8),
        "torch bfloat16": Contender(compiled(torch_bfloat16), layers, "16 bits"),
    }


def activations(sizes: Sizes, tokens: int, device: str) -> tuple[Tensor, Tensor]:
    """x and the residual before the first layer."""
    generator = torch.Generator(device).manual_seed(tokens)
    x, residual = torch.randn((2, tokens, sizes.hidden), generator=generator, device=device).bfloat16()
    return x, residual


def errors(entries: dict[str, Contender], x: Tensor, residual: Tensor) -> dict[str, float]:
    """Each entry's error in what a layer adds to the residual."""
    found = {}
    for name, entry in entries.items():
        result = entry.layer(x, residual, entry.weights[0])
        expected = exact(x, residual, entry.weights[0])
        made, wanted = (float64[0].double() + float64[1].double() - x.double() - residual.double()
                        for float64 in (result, expected))  # fmt: skip
        found[name] = float((made - wanted).norm() / wanted.norm())
    return found


def wrong(entries: dict[str, Contender], found: dict[str, float]) -> list[str]:
    """Who is less exact than allowed."""
    limits = {
        name: min(MOST_ERROR[entry.bits], MOST_RATIO * found["torch fp8"] if entry.bits == "8 bits" else 1.0)
        for name, entry in entries.items()
    }
    return [name for name in entries if not found[name] <= limits[name]]


class Chain:
    """`call(i)` enqueues layer i of those in turn, on what the one before it left."""

    def __init__(self, entry: Contender, x: Tensor, residual: Tensor):
        self._entry, self._first = entry, (x, residual)
        self._state = self._first

    def __call__(self, i: int) -> None:
        weights = self._entry.weights
        if i % len(weights) == 0:
            self._state = self._first
        self._state = self._entry.layer(*self._state, weights[i % len(weights)])


def measured(arrays: Any, entries: dict[str, Contender], x: Tensor, residual: Tensor, rounds: int) -> dict[str, float]:
    """Microseconds a layer."""
    chains = [Chain(entry, x, residual) for entry in entries.values()]
    graphs = measure.rotating_graphs(arrays, chains, max(len(entry.weights) for entry in entries.values()))
    return dict(zip(entries, measure.interleaved(graphs, rounds), strict=True))


def report(sizes: Sizes, tokens: int, us: dict[str, float], found: dict[str, float]) -> list[str]:
    floors = sizes.bytes(tokens) / BYTES_PER_US, sizes.flops(tokens) / FLOPS_PER_US
    ours = us["cleave fp8"]
    lines = [f"{tokens} tokens: floor {floors[0]:.1f} us by bytes, {floors[1]:.1f} us by FLOP"]
    for name, time_us in us.items():
        lines.append(
            f"  {name:<24} {time_us:8.1f} us a layer, {max(floors) / time_us:.2f} of the floor's speed, "
            f"{time_us / ours:.3f} of cleave fp8's time, error {found[name]:.4f}"
        )
    if tokens in BARS:
        lines.append(f"  bar {BARS[tokens]:.0f} us: {'met' if ours <= BARS[tokens] else 'missed'}")
    if tokens in BAR_RATIO:
        ahead = us["torch fp8"] / ours
        met = "met" if ahead >= BAR_RATIO[tokens] else "missed"
        lines.append(f"  bar {BAR_RATIO[tokens]:.2f} of torch's fp8: {ahead:.3f}, {met}")
    return lines


def compile_products(entries: dict[str, Contender], tokens: Sequence[int]) -> None:
    """Side by side, before they are wanted."""
    ours = [entry for entry in entries.values() if isinstance(entry.layer, Ours)]
    with CompileAhead() as ahead:
        ahead.wait(plan for entry in ours for m in tokens for plan in entry.layer.plans(m, entry.weights[0]))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chain", description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 64, 256, 2048])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args(argv)
    torch._dynamo.config.cache_size_limit = 64
    start, sizes, device = time.monotonic(), Sizes(), "cuda:0"
    arrays = TorchArrays(device)
    entries = contenders(
        [make_weights(sizes, device, seed) for seed in range(LAYERS)],
        lambda function: torch.compile(function, fullgraph=True, dynamic=False),
    )
    compile_products(entries, arguments.tokens)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.monotonic() - start:.0f} s of preparation")
    failed = []
    with torch.no_grad():
        for tokens in arguments.tokens:
            x, residual = activations(sizes, tokens, device)
            found = errors(entries, x, residual)
            us = measured(arrays, entries, x, residual, arguments.rounds)
            print("\n".join(report(sizes, tokens, us, found)), f"  ({time.monotonic() - start:.0f} s)", flush=True)
            failed += [f"{name} at {tokens} tokens" for name in wrong(entries, found)]
    if failed:
        print("less exact than allowed:", ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
