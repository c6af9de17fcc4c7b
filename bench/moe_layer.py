"""python -m bench.moe_layer: a layer of experts in fp8 for inference, from routed tokens to their sums.

Two models' layers, 128 to 16384 tokens, experts drawn at random: the whole layer, each of its steps, its two products
alone, and the floor of the bytes of all experts that are hit, at the bandwidth that this GPU's memory was measured to
give. Marginal microseconds between ordinary kernels (between.py); the weights are more than L2 holds, what goes from
step to step is where the step before left it.

What is asked: 1.08 of the larger of floor and products, and 10 us; never slower than the steps apart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cleave
from cleave._compile_ahead import CompileAhead
from cleave.testing.arrays import TorchArrays
from cleave.testing.case import SCALINGS
from cleave.testing.quantization import dequantize

from .bandwidth import bytes_per_us
from .between import Between, medians
from .chain import FP8, MOST_ERROR
from .gate import FOUND, KINDS, PRODUCTS
from .kept_rows import KeptRows
from .summary import geomean

TOKENS = (128, 512, 2048, 8192, 16384)
COMPARED = 4  # tokens whose sums are compared with float64

# What is asked for.
MOST_OF_FLOOR, MOST_BEYOND_US = 1.08, 10.0


@dataclass(frozen=True)
class Sizes:
    experts: int
    top_k: int
    hidden: int
    intermediate: int

    def __str__(self) -> str:
        return f"{self.experts} experts, top {self.top_k}, {self.hidden} x {self.intermediate}"


SIZES = (Sizes(128, 8, 2048, 768), Sizes(256, 8, 7168, 2048))


@dataclass(frozen=True)
class Form:
    """first: what of bench.gate's the first product is; gathers: whether it gathers its rows. into_slots: tokens are
    quantised into the rows of all their slots."""

    first: str = "gated"
    gathers: bool = False
    into_slots: bool = False


APART = Form()
FORMS = {
    "first quantises": Form("one kernel"),
    "first gathers": Form(gathers=True),
    "first gathers and quantises": Form("one kernel", gathers=True),
    "into slots": Form("one kernel", into_slots=True),
}

# A step reads what those before it made, by name, and adds to it. Its own inputs it leaves as they are.
Values = dict[str, Any]
Step = Callable[[Values], None]


class Layer:
    """Experts' weights of a kind of bench.gate's, the gates' rows first."""

    def __init__(self, kind: str, sizes: Sizes, device: str = "cuda:0"):
        self.kind, self.sizes, self.arrays = kind, sizes, TorchArrays(device)
        self._scaling = KINDS[kind]
        self.gate_up = self._experts(2 * sizes.intermediate, sizes.hidden, 0)
        self.down = self._experts(sizes.hidden, sizes.intermediate, sizes.experts)

    def _experts(self, n: int, k: int, seed: int) -> tuple[Tensor, Tensor]:
        q = torch.empty(self.sizes.experts, n, k, device=self.arrays.device, dtype=FP8)
        scales = []
        for expert, values in enumerate(q):
            weight = self.arrays.normal((n, k), "bfloat16", seed + expert) / k**0.5
            scales.append(cleave.quantize(weight, FP8, self._scaling, out=values)[1])
        return q, torch.stack(scales)

    def _quantize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scales in rows, which `gather` takes as they are."""
        return cleave.quantize(x, FP8, "row" if self._scaling == "row" else FOUND)

    def multiply(
        self, values: Values, rows: str, weight: tuple[Tensor, Tensor], plan: bool = False, **more: Any
    ) -> Any:
        """The product of `rows` in 8 bits, or its plan."""
        q, scale = values[rows]
        of_weight = weight[1].squeeze(-1) if self._scaling == "row" else weight[1].mT
        scales = {"scale_a": scale.flatten() if self._scaling == "row" else scale, "scale_b": of_weight}
        options = PRODUCTS["plain"] | {"use_fast_accum": self._scaling == "row"} | more
        call = cleave.plan_grouped_gemm if plan else cleave.grouped_gemm
        return call(q, weight[0].mT, values["offs"], **scales, **options)

    def routed(self, tokens: int) -> Values:
        """What the layer is given: tokens, and the experts that were drawn for them, with weights."""
        logits = self.arrays.normal((tokens, self.sizes.experts), "float32", tokens)
        weights, ids = cleave.moe.route(logits, self.sizes.top_k)
        x = self.arrays.normal((tokens, self.sizes.hidden), "bfloat16", tokens + 1)
        return {"x": x, "weights": weights, "ids": ids}

    def forms(self) -> dict[str, dict[str, Step]]:
        """Ways to compute the layer, each as steps by name."""
        steps: dict[str, Step] = {
            "quantise x": lambda v: v.update(q=self._quantize(v["x"])),
            "sort": lambda v: v.update(
                zip(("offs", "indices"), cleave.moe.sort_tokens(v["ids"], self.sizes.experts), strict=True)
            ),
            "gather": lambda v: v.update(rows=tuple(cleave.moe.gather(part, v["indices"]) for part in v["q"])),
            "first": lambda v: v.update(hidden=self.multiply(v, "rows", self.gate_up, **PRODUCTS["gated"])),
            "quantise": lambda v: v.update(h=self._quantize(v["hidden"])),
            "second": lambda v: v.update(parts=self.multiply(v, "h", self.down)),
            "combine": lambda v: v.update(y=cleave.moe.unpermute(v["parts"], v["indices"], v["weights"])),
        }
        return {"steps apart": steps} | {
            name: self._steps_of(form, steps)
            for name, form in FORMS.items()
            if form.first == "gated" or self._scaling != "row"  # found scales are those of blocks
        }

    def _steps_of(self, form: Form, apart: dict[str, Step]) -> dict[str, Step]:
        quantises = form.first == "one kernel"
        left_out = {"gather"} if form.gathers else {"quantise x", "gather"} if form.into_slots else set()
        left_out |= {"quantise"} if quantises else set()
        steps = {name: step for name, step in apart.items() if name not in left_out}
        made = "h" if quantises else "hidden"
        steps["first"] = lambda v: v.update({made: self._first(v, form)})
        if form.into_slots:
            steps["sort"] = self._permute
        return steps

    def _permute(self, values: Values) -> None:
        rows, scale, *routing = cleave.moe.permute(values["x"], values["ids"], self.sizes.experts, out_dtype=FP8)
        values |= {"rows": (rows, scale)} | dict(zip(("offs", "indices"), routing, strict=True))

    def _first(self, values: Values, form: Form, plan: bool = False) -> Any:
        listed = {"gather": values["indices"], "top_k": self.sizes.top_k} if form.gathers else {}
        rows = "q" if form.gathers else "rows"
        return self.multiply(values, rows, self.gate_up, plan, **PRODUCTS[form.first], **listed)

    def plans(self, tokens: int) -> Iterator[Any]:
        forms = self.forms()
        values = run(forms["steps apart"], self.routed(tokens), until="second")
        for form in {FORMS.get(name, APART) for name in forms}:
            yield self._first(values, form, plan=True)
        yield self.multiply(values, "h", self.down, plan=True)

    def expected(self, values: Values) -> Tensor:
        """What the first tokens should become, in float64."""
        _, block = SCALINGS[self._scaling]
        sums = []
        for x, weights, experts in zip(*(values[name][:COMPARED] for name in ("x", "weights", "ids")), strict=True):
            total = torch.zeros_like(x, dtype=torch.float64)
            for weight, expert in zip(weights, experts.tolist(), strict=True):
                w1, w2 = (dequantize(self.arrays, q[expert], s[expert], block) for q, s in (self.gate_up, self.down))
                gate, up = (w1 @ x.double()).chunk(2)
                total += weight * (w2 @ (torch.nn.functional.silu(gate) * up))
            sums.append(total)
        return torch.stack(sums)

    def hit_bytes(self, values: Values) -> int:
        """Those of the weights, with their scales, of all experts that some token goes to."""
        share = values["ids"].unique().numel() / self.sizes.experts
        return round(share * sum(part.nbytes for weight in (self.gate_up, self.down) for part in weight))


def run(steps: dict[str, Step], given: Values, until: str | None = None) -> Values:
    """All values that the steps make; those before `until`."""
    values = dict(given)
    for name, step in steps.items():
        if name == until:
            break
        step(values)
    return values


def measure(layer: Layer, tokens: int, between: Between, rounds: int, bandwidth: float) -> dict[str, Any]:
    """One row."""
    given, forms = layer.routed(tokens), layer.forms()
    expected = layer.expected(given)
    made = {name: run(steps, given) for name, steps in forms.items()}
    errors = {name: float((v["y"][:COMPARED] - expected).norm() / expected.norm()) for name, v in made.items()}
    wrong = [f"{name} ({error:.2g})" for name, error in errors.items() if not error <= MOST_ERROR["8 bits"]]
    if wrong:
        raise RuntimeError(f"{layer.kind}, {layer.sizes}, {tokens} tokens: wrong are {', '.join(wrong)}")
    apart, values = forms["steps apart"], made["steps apart"]
    products = {name: apart[name] for name in ("first", "second")}
    calls = {name: lambda i, steps=steps: run(steps, given) for name, steps in forms.items()}
    calls["products"] = lambda i: run(products, values)
    calls |= {f"step {name}": lambda i, step=step: step(dict(values)) for name, step in apart.items()}
    layer.arrays.synchronize()  # calls are on a stream of their own
    us = medians({name: between.timed(call) for name, call in calls.items()}, rounds)
    cleave.release_workspaces()
    form = min(forms, key=us.__getitem__)
    return {
        "job": layer.kind,
        "case": f"{layer.sizes}, {tokens} tokens",
        "form": form,
        "us": us[form],
        "floor_us": layer.hit_bytes(given) / bandwidth,
        "products_us": us["products"],
        "forms": {name: us[name] for name in forms},
        "steps": {name: us[f"step {name}"] for name in apart},
        "error": errors[form],
    }


def most(row: dict[str, Any]) -> float:
    """Microseconds that the layer may take."""
    return MOST_OF_FLOOR * max(row["floor_us"], row["products_us"]) + MOST_BEYOND_US


def lines(row: dict[str, Any]) -> Iterator[str]:
    met = "met" if row["us"] <= most(row) else "missed"
    yield (
        f"{row['job']}, {row['case']}: {row['us']:.1f} us ({row['form']}), products {row['products_us']:.1f}, floor "
        f"{row['floor_us']:.1f}; at most {most(row):.1f} is asked: {met}"
    )
    for what in ("forms", "steps"):
        yield f"  {what}: " + ", ".join(f"{name} {us:.1f}" for name, us in row[what].items())


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for kind in dict.fromkeys(row["job"] for row in rows):
        own = [row for row in rows if row["job"] == kind]
        ahead = geomean(row["forms"]["steps apart"] / row["us"] for row in own)
        met = sum(row["us"] <= most(row) for row in own)
        over = geomean(row["us"] / most(row) for row in own)
        yield (
            f"{kind}: {met} of {len(own)} rows meet the bar, in geomean {over:.3f} of what it allows; steps apart take "
            f"{ahead:.3f} of the layer's time"
        )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.moe_layer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = [kind for kind in KINDS if kind.startswith("fp8")]
    parser.add_argument("--kinds", default="fp8 blocks", help=", ".join(kinds))
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=540, help="start no row after this long")
    parser.add_argument("--out", type=Path, default=Path("bench/results/moe_layer.json"))
    arguments = parser.parse_args(argv)
    kept, between = KeptRows(arguments.out, arguments.seconds), Between()
    bandwidth = bytes_per_us(TorchArrays("cuda:0"))
    print(f"{torch.cuda.get_device_name()}, memory gives {bandwidth * 1e-6:.2f} TB/s")
    for kind in arguments.kinds.split(","):
        for sizes in SIZES:
            missing = kept.missing(kind, [(f"{sizes}, {tokens} tokens", tokens) for tokens in arguments.tokens])
            if not missing or kept.time_is_up:
                continue
            layer = Layer(kind, sizes)
            with CompileAhead() as ahead:
                ahead.wait(plan for tokens in missing for plan in layer.plans(tokens))
            for tokens in missing:
                if not kept.time_is_up:
                    kept.add(measure(layer, tokens, between, arguments.rounds, bandwidth))
                    print(*lines(kept.rows[-1]), sep="\n", flush=True)
                    torch.cuda.empty_cache()  # the next row's graphs have memory of their own
            del layer
    print(*summary(kept.rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
