"""The operation "route": each token's experts and their weights, from a router's logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .accuracy import Errors
from .arrays import Arrays, NumpyArrays
from .dtypes import DTYPES
from .kernel_plan import KernelPlan, OneKernel, errors_of

# What float32 scores, exponentials and their sums may lose.
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class RouteCase(OneKernel):
    """As `cleave.moe.route` has them; n_group is above 1 for DeepSeek's choice of groups. bias: of experts."""

    tokens: int
    experts: int
    top_k: int
    dtype: str = "float32"
    scoring_func: str = "softmax"
    n_group: int = 1
    topk_group: int | None = None
    bias: bool = False

    @property
    def dtypes(self) -> frozenset[str]:
        return frozenset((self.dtype, "float32", "int32"))

    @property
    def bytes(self) -> int:
        """Logits and the bias are read once, ids and weights are written once."""
        biases = 4 * self.experts if self.bias else 0
        return self.tokens * (self.experts * DTYPES[self.dtype].bytes + 8 * self.top_k) + biases

    @property
    def flops(self) -> int:
        """It multiplies nothing to speak of."""
        return 0

    @property
    def title(self) -> str:
        groups = f" from {self.chosen_groups} of {self.n_group} groups" if self.n_group > 1 else ""
        bias = " with a bias" if self.bias else ""
        return f"{self.tokens} tokens to {self.top_k} of {self.experts} {self.dtype} {self.scoring_func}{groups}{bias}"

    @property
    def chosen_groups(self) -> int:
        return self.n_group if self.topk_group is None else self.topk_group

    def plan(self, device: str) -> KernelPlan:
        from .. import _core

        sizes = self.tokens, self.experts, self.top_k, self.dtype
        planned = _core.plan_route_problem(
            *sizes, self.n_group, self.chosen_groups, self.bias, self.scoring_func, device
        )
        return KernelPlan(planned, self.bytes)


@dataclass
class RouteOperands:
    case: RouteCase
    device: str
    logits: Any
    bias: Any = None
    weights: Any = None
    ids: Any = None


def make_operands(arrays: Arrays, case: RouteCase, seed: int = 0) -> RouteOperands:
    logits = arrays.normal((case.tokens, case.experts), case.dtype, seed)
    bias = arrays.normal((case.experts,), "float32", seed + 1) if case.bias else None
    return RouteOperands(case, arrays.device_name, logits, bias)


def plan_for(case: RouteCase, operands: RouteOperands) -> KernelPlan:
    return case.plan(operands.device)


def run(plan: KernelPlan, operands: RouteOperands, stream: int | None) -> None:
    import cleave

    case = operands.case
    options = {"scoring_func": case.scoring_func, "n_group": case.n_group, "topk_group": case.topk_group}
    operands.weights, operands.ids = cleave.moe.route(
        operands.logits, case.top_k, bias=operands.bias, stream=stream, **options
    )


def errors(arrays: Arrays, case: RouteCase, operands: RouteOperands) -> Errors:
    """Errors of each token's weights, by expert, so that experts chosen wrongly are errors."""
    import numpy

    logits = numpy.asarray(arrays.to_numpy(arrays.float64(operands.logits)))
    bias = 0.0 if operands.bias is None else numpy.asarray(arrays.to_numpy(arrays.float64(operands.bias)))
    powers = numpy.exp(logits - logits.max(-1, keepdims=True))
    sigmoids = 1 / (1 + numpy.exp(-logits))
    scores = sigmoids if case.scoring_func == "sigmoid" else powers / powers.sum(-1, keepdims=True)
    choice = _within_groups(case, scores + bias)
    chosen = numpy.argsort(-choice, -1, kind="stable")[:, : case.top_k]
    best = numpy.take_along_axis(scores, chosen, -1)
    expected = numpy.zeros_like(scores)
    numpy.put_along_axis(expected, chosen, best / best.sum(-1, keepdims=True), -1)
    made = numpy.zeros_like(scores)
    ids = numpy.asarray(arrays.to_numpy(operands.ids)).astype(numpy.int64)
    numpy.put_along_axis(made, ids, numpy.asarray(arrays.to_numpy(arrays.float64(operands.weights))), -1)
    return errors_of(NumpyArrays(), made, expected, _TOLERANCE * case.experts**0.5)


def _within_groups(case: RouteCase, scores: Any) -> Any:
    """Minus infinity for experts outside of the groups whose two best scores add up to most."""
    import numpy

    if case.chosen_groups == case.n_group:
        return scores
    groups = scores.reshape(len(scores), case.n_group, -1)
    best = numpy.sort(groups, -1)[..., -2:].sum(-1)
    kept = numpy.argsort(-best, -1, kind="stable")[:, : case.chosen_groups]
    mask = numpy.zeros(best.shape, bool)
    numpy.put_along_axis(mask, kept, True, -1)
    return numpy.where(mask[..., None], groups, -numpy.inf).reshape(scores.shape)
