"""The operator against PyTorch in float64, for sizes that it was planned for and others."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("needs PyTorch with CUDA, and a GPU", allow_module_level=True)

from operation import _operation as fixed
from operation import gemm

OTHER = {"m": (4096, 256, 384, 4), "n": (256, 4096, 384, 4), "k": (256, 384, 4096, 4)}
SIZES = [  # m, n, k, batch or groups
    (fixed.M, fixed.N, fixed.K, fixed.BATCH),
    OTHER.get(fixed.GROUPING, (384, 256, 1024, 3)),
]
every_size = pytest.mark.parametrize("size", SIZES, ids=str)
GROUPED = fixed.GROUPING != "none"
MASKED = fixed.GROUPING == "m" and fixed.BOUNDS == "counts"
# What the rounding of operands and of D may cause, relative to the largest value.
TOLERANCE = {
    torch.float32: 2e-5 if fixed.IEEE else 2e-3,
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
    torch.float8_e4m3fn: 7e-2,
    torch.float8_e5m2: 1.3e-1,
    torch.int8: 1e-2,
    torch.int32: 0.0,
}
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.nn.functional.relu,
    "relu2": lambda x: torch.nn.functional.relu(x).square(),
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "swiglu": lambda x: torch.nn.functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
}


def values(*shape: int, dtype: torch.dtype, order: str = "row") -> Tensor:
    """Random ones, small enough for 8 bits."""
    if order == "column":
        return values(*shape[:-2], shape[-1], shape[-2], dtype=dtype).mT
    if dtype.itemsize == 1 or dtype == torch.int32:
        return torch.randint(-7, 8, shape, device="cuda").to(dtype)
    return torch.randn(shape, device="cuda").to(dtype)


def scales(*shape: int, order: str = "row") -> Tensor:
    scale = torch.rand(shape, device="cuda") + 0.5
    return scale.mT.contiguous().mT if order == "column" else scale


def spread(scale: Tensor, rows: int, columns: int, shape: torch.Size) -> Tensor:
    """A scale for each element of a matrix, from one for each block of rows x columns."""
    scale = scale.repeat_interleave(rows, -2).repeat_interleave(columns, -1)
    return scale[..., : shape[-2], : shape[-1]].double()


def block_scales(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    def blocks(size: int, block: int) -> int:
        return -(-size // block)

    (m, k), n = a.shape[-2:], b.shape[-1]
    rows_a, rows_b = fixed.SCALE_ROWS
    order_a = "row" if fixed.SCALE_MAJOR[0] == "k" else "column"
    order_b = "column" if fixed.SCALE_MAJOR[1] == "k" else "row"
    return (
        scales(*a.shape[:-2], blocks(m, rows_a), blocks(k, 128), order=order_a),
        scales(*b.shape[:-2], blocks(k, 128), blocks(n, rows_b), order=order_b),
    )


def groups_of(total: int, groups: int) -> tuple[list[slice], list[Tensor]]:
    """Groups of several sizes: where they are, and the tensors that say so."""
    each = total // groups // fixed.SPACING * fixed.SPACING
    if fixed.BOUNDS == "counts":
        each = total // groups if MASKED else fixed.SPACING
    ends = [each * (g + 1) - min(each, 5) * (g % 2) for g in range(groups)]
    begins = [0, *ends[:-1]]
    if fixed.BOUNDS in ("starts", "aligned_ends", "counts"):
        begins = [each * g for g in range(groups)]
    sizes = [end - begin for begin, end in zip(begins, ends, strict=True)]
    bounds = {"indptr": [[0, *ends]], "starts": [begins, sizes], "counts": [sizes]}
    tensors = [
        torch.tensor(numbers, device="cuda", dtype=fixed.INDEX_DTYPE) for numbers in bounds.get(fixed.BOUNDS, [ends])
    ]
    return [slice(*ends) for ends in zip(begins, ends, strict=True)], tensors


@dataclass
class Case:
    """Arguments of a call, and D in float64 with where it is defined."""

    arguments: list[Tensor]
    d: Tensor
    where: Tensor
    amax: Tensor | None

    def check(self, d: Tensor) -> None:
        assert d.shape == self.d.shape
        error = (d.double() - self.d).abs()[self.where].max()
        assert error <= TOLERANCE[d.dtype] * self.d[self.where].abs().max()


def multiply(a: Tensor, b: Tensor, batch: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """A @ B, of groups where they are; which rows and columns those are; the groups' bounds."""
    if not GROUPED:
        x = a @ b
        return x, torch.ones_like(x, dtype=torch.bool), []
    (m, k), n = a.shape[-2:], b.shape[-1]
    ranges, bounds = groups_of({"m": m, "n": n, "k": k}[fixed.GROUPING], batch)
    if fixed.GROUPING == "k":
        x = torch.stack([a[:, part] @ b[part] for part in ranges])
        return x, torch.ones_like(x, dtype=torch.bool), bounds
    x = torch.zeros(m, n, device="cuda", dtype=torch.float64)
    where = torch.zeros_like(x, dtype=torch.bool)
    for g, part in enumerate(ranges):
        there = (part, slice(None)) if fixed.GROUPING == "m" else (slice(None), part)
        x[there] = a[part] @ b[g] if fixed.GROUPING == "m" else a[g] @ b[:, part]
        where[there] = True
    return x, where, bounds


def make(m: int, n: int, k: int, batch: int, requires_grad: bool = False) -> Case:
    columns = 2 * n if fixed.ACTIVATION == "swiglu" else n
    lead_a = (batch,) if not GROUPED or fixed.GROUPING == "n" else ()
    lead_b = (batch,) if not GROUPED or fixed.GROUPING == "m" else ()
    a = values(*lead_a, m, k, dtype=fixed.A_DTYPE, order=fixed.A_ORDER)
    b = values(*lead_b, k, columns, dtype=fixed.B_DTYPE, order=fixed.B_ORDER)
    arguments = [a, b]
    for operand in arguments:
        operand.requires_grad_(requires_grad)
    real_a, real_b, factor = a.double(), b.double(), 1
    if fixed.SCALING == "vector":
        batched = [(batch,) if GROUPED and own else () for own in fixed.SCALES_BATCHED]
        scale_a, scale_b = scales(*batched[0], m, 1), scales(*batched[1], 1, columns)
        arguments += [scale_a, scale_b]
        if fixed.GROUPING == "k":
            factor = scale_a * scale_b
        else:
            real_a, real_b = real_a * scale_a, real_b * scale_b
    if fixed.SCALING == "block":
        scale_a, scale_b = block_scales(a, b)
        arguments += [scale_a, scale_b]
        real_a = real_a * spread(scale_a, fixed.SCALE_ROWS[0], 128, a.shape)
        real_b = real_b * spread(scale_b, 128, fixed.SCALE_ROWS[1], b.shape)
    x, where, bounds = multiply(real_a, real_b, batch)
    x = x * factor
    arguments += bounds
    if fixed.HAS_ZERO:
        azp_adj, azp = values(n, dtype=torch.int32), values(m, dtype=torch.int32)
        zeros = azp[:, None].double() * azp_adj
        x = x - (zeros * scale_a * scale_b if fixed.SCALING == "vector" else zeros)
    if fixed.BIAS != "none":
        shape = (columns,) if fixed.BIAS == "row" else (m, 1)
        bias = values(*shape, dtype=fixed.BIAS_DTYPE).requires_grad_(requires_grad)
        arguments.append(bias)
        x = x + bias
    if fixed.HAS_C:
        c = values(*x.shape, dtype=fixed.C_DTYPE, order=fixed.D_ORDER)
        c.requires_grad_(requires_grad)
        arguments.append(c.view(batch, -1, n) if MASKED else c)
        x = x + c
    x, where = ACTIVATIONS[fixed.ACTIVATION](x), where[..., :n]
    amax = x[where].abs().max() if fixed.HAS_AMAX else None
    if fixed.HAS_SCALE_D:
        scale_d = x[where].abs().max().float() / 100
        arguments.append(scale_d)
        x = x / scale_d
    if fixed.HAS_ZERO:
        arguments += [azp_adj, azp]
    if MASKED:
        arguments[0] = a.view(batch, -1, k)
        x, where = x.view(batch, -1, n), where.reshape(batch, -1, n)
    return Case(arguments, x, where, amax)


def d_of(result: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    return result[0] if fixed.HAS_AMAX else result


@every_size
def test_result_on_a_side_stream(size: tuple[int, ...]) -> None:
    case = make(*size)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        result = gemm(*case.arguments)
        out = d_of(gemm(*case.arguments, out=torch.zeros_like(d_of(result))))
    torch.cuda.synchronize()
    case.check(d_of(result))
    case.check(out)
    if case.amax is not None:
        assert result[1].item() == pytest.approx(case.amax.item(), rel=1e-2)


@every_size
def test_graph(size: tuple[int, ...]) -> None:
    case = make(*size)
    gemm(*case.arguments)  # loads the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        d = d_of(gemm(*case.arguments))
    for _ in range(3):
        d.zero_()
        graph.replay()
        case.check(d)


def test_compiled_as_one_graph() -> None:
    case = make(*SIZES[0])
    compiled = torch.compile(gemm, fullgraph=True)
    case.check(d_of(compiled(*case.arguments)))


if fixed.DIFFERENTIABLE:

    @every_size
    def test_gradients(size: tuple[int, ...]) -> None:
        case = make(*size, requires_grad=True)
        d = gemm(*case.arguments)
        grad = torch.randn_like(d)
        if fixed.ACTIVATION == "relu":
            # Where sums are nearly 0, rounding decides whether relu lets the gradient pass.
            grad = grad * (case.d > TOLERANCE[d.dtype])
        expected = torch.autograd.grad(case.d, case.arguments, grad.double())
        for x, y in zip(torch.autograd.grad(d, case.arguments, grad), expected, strict=True):
            assert (x - y).abs().max() <= 2 * TOLERANCE[x.dtype] * y.abs().max()


def test_autograd_hears_of_what_is_written() -> None:
    case = make(*SIZES[0])
    out = torch.zeros_like(d_of(gemm(*case.arguments)))
    version = out._version
    gemm(*case.arguments, out=out)
    assert out._version > version
    if out.is_floating_point():
        with pytest.raises(ValueError, match="out requires grad"):
            gemm(*case.arguments, out=out.requires_grad_())


def test_refusals() -> None:
    a, b, *rest = make(*SIZES[0]).arguments
    with pytest.raises(ValueError, match="b"):
        gemm(a, b.double(), *rest)
    with pytest.raises(ValueError, match="columns"):
        gemm(a, b[..., :-1, :], *rest)
