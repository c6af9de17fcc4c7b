"""Products on the GPU whose results are known exactly, in memory that shows every stray access.

Operands hold small integers, so that sums are exact in float32 in whatever order they are made, and
D is known bit by bit. They are views into larger buffers: the inputs' are filled with NaNs, which
reach D if they are read, and D's with a canary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
CANARY = -704.0


def framed(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    fill: float,
    column_major: bool,
    padding: int,
    device: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """An uninitialised matrix or batch, cut from a buffer full of `fill`; and the buffer."""
    *lead, rows, cols = shape
    lines, length = (cols, rows) if column_major else (rows, cols)
    margin = 1 if padding else 0
    buffer = torch.full(
        (*lead, lines + 2 * margin, length + padding), fill, dtype=dtype, device=device
    )
    view = buffer[..., margin : margin + lines, :length]
    return (view.mT if column_major else view), buffer


def integers(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    *,
    column_major: bool = False,
    padding: int = 8,
    device: str = "cuda",
    low: int = -3,
    high: int = 4,
) -> torch.Tensor:
    view, _ = framed(shape, dtype, float("nan"), column_major, padding, device)
    view.copy_(torch.randint(low, high, shape, device=device))
    return view


@dataclass
class Product:
    """A drawn product; `run` it, then `check` D and everything around it."""

    m: int
    n: int
    k: int
    batch: int | None = None
    dtype: str = "bfloat16"
    out_dtype: str | None = None
    layout: str = "tn"  # A's letter, then B's: t is row-major for A, n column-major
    padding: int = 8  # elements between the lines of the operands and of D
    c: str | None = None  # a dtype, or "D" for in place
    bias: str | None = None  # "row" or "column"
    bias_dtype: str = "float32"
    activation: str = "none"
    alpha: float = 1.0
    beta: float | None = None
    device: str = "cuda"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lead = () if self.batch is None else (self.batch,)
        dtype = DTYPES[self.dtype]
        made = {"padding": self.padding, "device": self.device}
        a_col, b_col = self.layout[0] == "n", self.layout[1] == "n"
        self.a = integers((*lead, self.m, self.k), dtype, column_major=a_col, **made)
        self.b = integers((*lead, self.k, self.n), dtype, column_major=b_col, **made)
        self.out_type = DTYPES[self.out_dtype or self.dtype]
        shape = (*lead, self.m, self.n)
        self.out, self._frame = framed(
            shape, self.out_type, CANARY, False, self.padding, self.device
        )
        self.out.fill_(float("nan"))
        self.c_values = None
        if self.c == "D":
            self.out.copy_(torch.randint(-9, 10, shape, device=self.device))
            self.c_values = self.out
        elif self.c:
            self.c_values = integers(shape, DTYPES[self.c], **made)
        self.bias_values = None
        if self.bias:
            shape = (self.n,) if self.bias == "row" else (self.m, 1)
            values = torch.randint(-9, 10, shape, device=self.device)
            self.bias_values = values.to(DTYPES[self.bias_dtype])
        self.expected = self._expected()

    def _expected(self) -> torch.Tensor:
        value = self.alpha * (self.a.double() @ self.b.double())
        beta = (0.0 if self.c is None else 1.0) if self.beta is None else self.beta
        if beta != 0.0:
            value = value + beta * self.c_values.double()
        if self.bias_values is not None:
            value = value + self.bias_values.double()
        functional = torch.nn.functional
        match self.activation:
            case "relu":
                value = functional.relu(value)
            case "gelu":
                value = functional.gelu(value)
            case "gelu_tanh":
                value = functional.gelu(value, approximate="tanh")
            case "silu":
                value = functional.silu(value)
        return value

    def arguments(self) -> dict[str, Any]:
        """Keywords of cleave.gemm beside a and b."""
        return {
            "c": self.c_values,
            "bias": self.bias_values,
            "alpha": self.alpha,
            "beta": self.beta,
            "activation": self.activation,
            "out": self.out,
            **self.options,
        }

    def run(self) -> None:
        import cleave

        assert cleave.gemm(self.a, self.b, **self.arguments()) is self.out

    def check(self) -> None:
        """D is exact (but for a rounding, after an exponential); nothing beside it is written."""
        if self.activation in ("none", "relu"):
            assert torch.equal(self.out, self.expected.to(self.out_type)), self._describe()
        else:
            roundoff = torch.finfo(self.out_type).eps
            torch.testing.assert_close(
                self.out.double(), self.expected, rtol=max(roundoff, 1e-5), atol=1e-5
            )
        self.out.fill_(CANARY)
        assert (self._frame == CANARY).all(), "elements beside D were written"

    def _describe(self) -> str:
        wrong = self.out != self.expected.to(self.out_type)
        first = tuple(wrong.nonzero()[0].tolist()) if wrong.any() else None
        return (
            f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at {first}: "
            f"{self.out[first].item()} instead of {self.expected[first].item()}"
        )
