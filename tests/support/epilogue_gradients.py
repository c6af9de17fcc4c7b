"""Gradients of products with an epilogue function, against those that torch makes of the same text in float64."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import cleave.torch

M, N, K = 20, 13, 24
SHAPES = {"scalar": (), "row": (N,), "column": (M,), "matrix": (M, N)}


def _extreme(bound: str, other: Any) -> Any:
    """torch's clamp where one of the two is a number."""

    def apply(x: Any, y: Any) -> Any:
        if isinstance(x, float):
            x, y = y, x
        return torch.clamp(x, **{bound: y}) if isinstance(y, float) else other(x, y)

    return apply


def _number(x: Any, like: Any) -> Any:
    return x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=like.dtype)


TORCH = SimpleNamespace(
    **{name: getattr(torch, name) for name in ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "clamp")},
    **dict.fromkeys(SHAPES),
    where=lambda c, x, y: torch.where(c, _number(x, y), y) if isinstance(y, torch.Tensor) else torch.where(c, x, y),
    minimum=_extreme("max", torch.minimum),
    maximum=_extreme("min", torch.maximum),
    relu=torch.relu,
    relu2=lambda x: torch.relu(x) ** 2,
    silu=torch.nn.functional.silu,
    gelu=torch.nn.functional.gelu,
    outputs=lambda **values: values,
)


class Case:
    """A function as text, `def drawn(acc, ...)`, and what it is called with: with gates b has twice as many columns."""

    def __init__(self, text: str, seed: int = 0, batch: tuple[int, ...] = ()) -> None:
        self.text = text
        torch.manual_seed(seed)
        self.shapes = dict(re.findall(r"(\w+): cleave\.(\w+)", text.split("\n", 1)[0]))
        self.gated = "acc.gate" in text or "acc.even" in text
        self.a, self.b = torch.randn(*batch, M, K) / K**0.5, torch.randn(*batch, K, 2 * N if self.gated else N)
        self.inputs = {name: torch.randn(SHAPES[shape]) for name, shape in self.shapes.items()}
        self.leaves = [self.a, self.b, *self.inputs.values()]
        self.weights = [torch.randn(*batch, M, N) for _ in range(3)]
        for leaf in self.leaves:
            leaf.requires_grad_()

    def traced(self) -> cleave.Epilogue:
        names: dict[str, Any] = {"cleave": cleave}
        exec(compile(self.text, "<case>", "exec"), names)
        return cleave.epilogue(names["drawn"])

    def ours(self, **options: Any) -> list[Any]:
        made = cleave.torch.gemm(self.a, self.b, epilogue=self.traced()(**self.inputs), **options)
        return list(made) if isinstance(made, tuple) else [made]

    def expected(self, dtype: Any) -> tuple[list[Any], list[Any]]:
        """Outputs and gradients of the leaves, by torch."""
        leaves = [leaf.detach().to(dtype).requires_grad_() for leaf in self.leaves]
        names: dict[str, Any] = {"cleave": TORCH}
        exec(compile(self.text, "<case>", "exec"), names)
        inputs = dict(zip(self.inputs, leaves[2:], strict=True))
        columns = {name: x.unsqueeze(1) for name, x in inputs.items() if self.shapes[name] == "column"}
        acc = leaves[0] @ leaves[1]
        if self.gated:
            acc = SimpleNamespace(gate=acc[..., :N], up=acc[..., N:], even=acc[..., 0::2], odd=acc[..., 1::2])
        made = names["drawn"](acc, **inputs | columns)
        outputs = list(made.values()) if isinstance(made, dict) else [made]
        loss = sum((x * w.to(dtype)).sum() for x, w in zip(outputs, self.weights, strict=False))
        grads = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        return outputs, list(grads)

    def check(self, outputs: list[Any]) -> None:
        loss = sum((x * w).sum() for x, w in zip(outputs, self.weights, strict=False))
        grads = torch.autograd.grad(loss, self.leaves, allow_unused=True, materialize_grads=True)
        exact_outputs, exact = self.expected(torch.float64)
        _, rounded = self.expected(torch.float32)  # which says how well float32 can do
        for x, y in zip(outputs, exact_outputs, strict=True):
            torch.testing.assert_close(x.double(), y.expand(x.shape), atol=1e-3, rtol=1e-3)
        for leaf, x, y, z in zip(self.leaves, grads, exact, rounded, strict=True):
            assert x.dtype == leaf.dtype and x.shape == leaf.shape
            largest = y.abs().max()
            allowed = 2e-5 * largest + 20 * (z.double() - y).abs().max() + 1e-6
            assert (x.double() - y).abs().max() <= allowed, self.text


class Products(TorchDispatchMode):
    """Which of Cleave's operators are called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[str]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "cleave":
            text = args[2] if func._overloadname == "epilogue" else ""
            made = [line for line in text.splitlines() if " = " in line and not line.startswith("%")]
            self.calls.append((func._overloadname, [line.split()[0] for line in made]))
        return func(*args, **kwargs or {})
