"""Products on the GPU whose results are known exactly, in memory that shows every stray access.

Operands hold small integers and scales powers of two, so that sums are exact in float32 in whatever
order they are made, and D is known bit by bit. They are views into larger buffers: the inputs' are
filled with NaNs (of int8, 101s), which reach D if they are read, and D's with a canary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from cleave.testing.activations import activate
from cleave.testing.arrays import TorchArrays

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
DTYPES_8BIT = {
    "int8": torch.int8,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}
ALL_DTYPES = DTYPES | DTYPES_8BIT | {"int32": torch.int32}
CANARY = 96.0  # exact in every dtype
_ARRAYS = TorchArrays("cpu")


def allocates(call: Callable[[], Any]) -> bool:
    """Whether memory of the GPU is taken while `call` runs 100 times. The driver counts for all
    processes, among which other tests are: what takes memory does so in each of ten rounds."""

    def taken() -> tuple[int, int]:
        torch.cuda.synchronize()
        return torch.cuda.mem_get_info()[0], torch.cuda.memory_stats()["allocation.all.allocated"]

    for _ in range(10):
        before = taken()
        for _ in range(100):
            call()
        if taken() == before:
            return False
    return True


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
    buffer = torch.full((*lead, lines + 2 * margin, length + padding), fill, dtype=dtype, device=device)
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
    fill = float("nan") if dtype.is_floating_point else 101
    view, _ = framed(shape, dtype, fill, column_major, padding, device)
    view.copy_(torch.randint(low, high, shape, device=device).float())
    return view


def powers_of_two(shape: tuple[int, ...], *, column_major: bool, padding: int, device: str) -> torch.Tensor:
    view, _ = framed(shape, torch.float32, float("nan"), column_major, padding, device)
    view.copy_(2.0 ** torch.randint(-2, 3, shape, device=device))
    return view


def scale_shape(kind: str, rows: int, k: int) -> tuple[int, int]:
    """Shape of A's scales; B's are the transpose of those of [N, K]."""
    k_blocks = -(-k // 128)
    return {
        "tensor": (1, 1),
        "row": (rows, 1),
        "1x128": (rows, k_blocks),
        "128x128": (-(-rows // 128), k_blocks),
    }[kind]


def spread(scale: torch.Tensor, rows: int, k: int) -> torch.Tensor:
    """One scale for each element of [..., rows, k], in float64."""
    for axis, size in ((-2, rows), (-1, k)):
        if scale.shape[axis] not in (1, size):
            scale = scale.repeat_interleave(128, axis).narrow(axis, 0, size)
    return scale.double().expand(*scale.shape[:-2], rows, k)


def stored(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float64 as D holds it: to the nearest, ties to even, of 8 bits saturated."""
    if dtype.itemsize == 1:
        limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        value = value.clamp(limits.min, limits.max)
    return value.float().to(dtype) if dtype.is_floating_point else value.round().to(dtype)


@dataclass
class Product:
    """A drawn product; `run` it, then `check` D and everything around it."""

    m: int
    n: int
    k: int
    batch: int | None = None
    dtype: str = "bfloat16"
    b_dtype: str | None = None  # 8-bit floats: if it differs from A's
    out_dtype: str | None = None
    layout: str = "tn"  # A's letter, then B's: t is row-major for A, n column-major
    padding: int = 8  # elements between the lines of the operands and of D
    c: str | None = None  # a dtype, or "D" for in place
    bias: str | None = None  # "row" or "column"
    bias_dtype: str = "float32"
    activation: str = "none"
    alpha: float = 1.0
    beta: float | None = None
    scaling: tuple[str, str] | None = None  # of A and of B: "tensor", "row", "1x128", "128x128"
    scale_major: str = "mn"  # what is contiguous in the scales of blocks: "k" or "mn"
    scale_batch: bool = False  # scales of each batch entry
    azp: str | None = None  # "tensor" or "row"
    scale_d: float | None = None
    amax: bool = False
    device: str = "cuda"
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lead = () if self.batch is None else (self.batch,)
        dtype, b_dtype = ALL_DTYPES[self.dtype], ALL_DTYPES[self.b_dtype or self.dtype]
        made = {"padding": self.padding, "device": self.device}
        a_col, b_col = self.layout[0] == "n", self.layout[1] == "n"
        self.a = integers((*lead, self.m, self.k), dtype, column_major=a_col, **made)
        self.b = integers((*lead, self.k, self.n), b_dtype, column_major=b_col, **made)
        self.out_type = ALL_DTYPES[self.out_dtype or self.dtype]
        shape = (*lead, self.m, self.n)
        self.out, self._frame = framed(shape, self.out_type, CANARY, False, self.padding, self.device)
        self.out.fill_(float("nan") if self.out_type.is_floating_point else 101)
        self.c_values = None
        if self.c == "D":
            self.out.copy_(torch.randint(-9, 10, shape, device=self.device))
            self.c_values = self.out
        elif self.c:
            self.c_values = integers(shape, ALL_DTYPES[self.c], **made)
        self.bias_values = None
        if self.bias:
            shape = (self.n,) if self.bias == "row" else (self.m, 1)
            values = torch.randint(-9, 10, shape, device=self.device)
            self.bias_values = values.to(DTYPES[self.bias_dtype])
        self._make_scales(lead if self.scale_batch else ())
        self._make_zero_points()
        self.scale_d_value = self._value(self.scale_d)
        self.amax_value = self._value(0.0 if self.amax else None)
        self.expected = self._expected()

    def _value(self, value: float | None) -> torch.Tensor | None:
        return None if value is None else torch.tensor([value], device=self.device)

    def _make_scales(self, lead: tuple[int, ...]) -> None:
        self.scale_a = self.scale_b = None
        if self.scaling:
            made = {
                "column_major": self.scale_major == "mn",
                "padding": self.padding,
                "device": self.device,
            }
            of_a, of_b = self.scaling
            self.scale_a = powers_of_two((*lead, *scale_shape(of_a, self.m, self.k)), **made)
            self.scale_b = powers_of_two((*lead, *scale_shape(of_b, self.n, self.k)), **made).mT

    def _make_zero_points(self) -> None:
        self.azp_values = self.azp_adj = None
        if self.azp:
            draw = {"dtype": torch.int32, "device": self.device}
            self.azp_adj = torch.randint(-99, 100, (self.n,), **draw)
            if self.azp == "row":
                self.azp_values = torch.randint(-9, 10, (self.m,), **draw)

    def _expected(self) -> torch.Tensor:
        """D before scale_d, in float64."""
        a, b = self.a.float().double(), self.b.float().double()
        zero = 0.0
        if self.azp:
            zero = self.azp_adj.double().expand(self.m, self.n)
            if self.azp == "row":
                zero = zero * self.azp_values.double()[:, None]
        if self.scaling:
            a = a * spread(self.scale_a, self.m, self.k)
            b = b * spread(self.scale_b.mT, self.n, self.k).mT
            if self.azp:
                zero = zero * self.scale_a.double() * self.scale_b.double()
        value = self.alpha * (a @ b - zero)
        beta = (0.0 if self.c is None else 1.0) if self.beta is None else self.beta
        if beta != 0.0:
            value = value + beta * self.c_values.double()
        if self.bias_values is not None:
            value = value + self.bias_values.double()
        return activate(_ARRAYS, self.activation, value)

    def arguments(self) -> dict[str, Any]:
        """Keywords of cleave.gemm beside a and b, and of a plan's run beside `scales`."""
        return {
            "c": self.c_values,
            "bias": self.bias_values,
            "alpha": self.alpha,
            "beta": self.beta,
            "activation": self.activation,
            "out": self.out,
            **self.options,
        }

    def scaled_arguments(self) -> dict[str, Any]:
        """Keywords that cleave.scaled_gemm has beside those."""
        return {
            "scale_a": self.scale_a,
            "scale_b": self.scale_b,
            "azp": self.azp_values,
            "azp_adj": self.azp_adj,
            "scale_d": self.scale_d_value,
            "amax": self.amax_value,
        }

    def run(self) -> None:
        import cleave

        if self.dtype in DTYPES_8BIT:
            d = cleave.scaled_gemm(self.a, self.b, **self.arguments(), **self.scaled_arguments())
        else:
            d = cleave.gemm(self.a, self.b, **self.arguments())
        assert d is self.out

    def check(self) -> None:
        """D is exact (but for a rounding, after an exponential); nothing beside it is written."""
        if self.activation in ("none", "relu", "relu2"):
            expected = stored(self.expected / (self.scale_d or 1.0), self.out_type)
            assert torch.equal(self.out.double(), expected.double()), self._describe(expected)
            if self.amax:
                assert self.amax_value.item() == self.expected.abs().max().item()
        else:
            roundoff = torch.finfo(self.out_type).eps
            torch.testing.assert_close(self.out.double(), self.expected, rtol=max(roundoff, 1e-5), atol=1e-5)
        self.out.fill_(CANARY)
        assert (self._frame.float() == CANARY).all(), "elements beside D were written"

    def _describe(self, expected: torch.Tensor) -> str:
        wrong = self.out.double() != expected.double()
        first = tuple(wrong.nonzero()[0].tolist())
        return (
            f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at {first}: "
            f"{self.out[first].item()} instead of {expected[first].item()}"
        )
