"""Functions of acc.gate and acc.up with gradients, gates that alternate with ups, and MoE's SwiGLU in its products, on
the GPU, against float64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from swiglu_checks import exact_with_bounds, gradients, layer, operands, unfused  # noqa: E402

import cleave.torch  # noqa: E402


@cleave.epilogue
def limited(acc, limit: cleave.scalar, shift: cleave.row):
    gate = cleave.minimum(acc.gate, limit)
    return gate * cleave.sigmoid(1.702 * gate) * (cleave.clamp(acc.up, -limit, limit) + 1.0) + shift


def exactly(a: Any, b: Any, shift: Any) -> Any:
    gate, up = (a @ b).chunk(2, -1)
    gate = gate.clamp(max=0.5)
    return gate * torch.sigmoid(1.702 * gate) * (up.clamp(-0.5, 0.5) + 1) + shift


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(512, 768, 256), (17, 24, 256), (4096, 512, 1024)])
def test_gradients_of_gates(m: int, n: int, k: int, compiled: bool) -> None:
    shapes = (m, k), (k, 2 * n), (n,)
    tensors = [(torch.randn(shape, device="cuda") / k**0.25).bfloat16().requires_grad_() for shape in shapes]

    def run(a: Any, b: Any, shift: Any) -> Any:
        return cleave.torch.gemm(a, b, epilogue=limited(limit=0.5, shift=shift))

    torch.compiler.reset()
    d = (torch.compile(run, fullgraph=True) if compiled else run)(*tensors)
    doubles = [x.detach().double().requires_grad_() for x in tensors]
    wanted = exactly(*doubles)
    weight = torch.randn_like(d)
    made = torch.autograd.grad(d, tensors, weight), torch.autograd.grad(wanted, doubles, weight.double())
    for got, want in zip((d, *made[0]), (wanted, *made[1]), strict=True):
        assert (got.double() - want).norm() <= 2**-7 * want.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_swiglu_of_a_mixture(dtype: Any) -> None:
    moe, (rows, offs, grad) = layer(dtype).cuda(), operands(dtype, device="cuda")
    exact = exact_with_bounds(moe, rows, grad)
    for got, (value, bound) in zip(gradients(moe, rows, offs, grad), exact, strict=True):
        assert ((got.double() - value).abs() <= bound).all()


def test_swiglu_of_a_mixture_in_8_bits() -> None:
    moe = layer(recipe="blockwise", hidden=128, features=128).cuda()
    rows, offs, grad = operands(features=128, device="cuda")
    exact = exact_with_bounds(moe, rows, grad)
    made = (gradients(each, rows, offs, grad) for each in (moe, unfused(moe)))
    for got, other, (value, _) in zip(*made, exact, strict=True):
        error, usual = ((x.double() - value).norm() / value.norm() for x in (got, other))
        assert error < 0.1 and error < 1.05 * usual


def sorted_columns(x: Any) -> Any:
    """Columns in turn, as halves."""
    return torch.cat([x[..., 0::2], x[..., 1::2]], -1)


def by_k(rows: Any) -> Any:
    """b [..., K, N], contiguous along K, from [..., N, K]."""
    return rows.contiguous().mT


def both_ways(multiply: Any, b: Any, bias: Any = None) -> None:
    """Columns that alternate make the bits of those that are halves: the kernel is the same."""
    made = [
        multiply(b, "swiglu_interleaved", bias),
        multiply(by_k(sorted_columns(b).mT), "swiglu", None if bias is None else sorted_columns(bias)),
    ]
    for got, same in zip(*(x if isinstance(x, tuple) else (x,) for x in made), strict=True):
        assert torch.equal(got.view(torch.uint8), same.view(torch.uint8)) and bool(got.float().abs().sum() > 0)


@pytest.mark.parametrize("kernel", ["auto", "portable"])
@pytest.mark.parametrize("mode", ["auto", "none", "serial", "parallel", "stream_k"])
@pytest.mark.parametrize(("batch", "m", "n", "k"), [((), 300, 520, 256), ((3,), 16, 72, 128), ((), 4096, 768, 512)])
def test_columns_in_turn(batch: tuple[int, ...], m: int, n: int, k: int, mode: str, kernel: str) -> None:
    torch.manual_seed(0)
    options = {"device": "cuda", "dtype": torch.bfloat16}
    a, b, bias = torch.randn(*batch, m, k, **options), by_k(torch.randn(2 * n, k, **options)), torch.randn(2 * n).cuda()

    def multiply(b: Any, activation: str, bias: Any) -> Any:
        split = {} if mode == "auto" else {"split_k_mode": mode}
        return cleave.gemm(a, b, bias=bias, activation=activation, kernel=kernel, **split)

    both_ways(multiply, b, bias)
    sums = a.double() @ b.double() + bias.double()
    wanted = torch.nn.functional.silu(sums[..., 0::2]) * sums[..., 1::2]
    assert (multiply(b, "swiglu_interleaved", bias).double() - wanted).norm() <= 2**-7 * wanted.norm()


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize("granularity", ["row", "block_1x128"])
@pytest.mark.parametrize("grouped", [False, True])
def test_scaled_columns_in_turn(grouped: bool, granularity: str, found: bool) -> None:
    torch.manual_seed(0)
    groups, m, n, k = 3, 700, 256, 384
    q, scale_a = cleave.quantize(torch.randn(m, k, device="cuda"), "float8_e4m3fn", granularity)
    weights = torch.randn(groups, 2 * n, k, device="cuda")
    w, scale = map(torch.stack, zip(*(cleave.quantize(x, q.dtype, granularity) for x in weights), strict=True))
    offs = torch.tensor([100, 100, 650], dtype=torch.int32, device="cuda")
    options: dict[str, Any] = {"out_dtype": torch.bfloat16}
    if found:
        options = {"out_dtype": q.dtype, "out_scale": "block_1x128"}

    def multiply(b: Any, activation: str, scale_b: Any) -> Any:
        if granularity == "row":
            scale_b = scale_b.squeeze(-2)
        scale = scale_a.flatten() if granularity == "row" else scale_a
        if grouped:
            return cleave.grouped_gemm(
                q, b, offs, scale_a=scale, scale_b=scale_b, activation=activation, zero_rest=True, **options
            )
        return cleave.scaled_gemm(q, b[0], scale, scale_b[0], activation=activation, **options)

    both_ways(multiply, by_k(w), scale.mT.contiguous())


def test_gradients_of_columns_in_turn() -> None:
    torch.manual_seed(0)
    a = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    w = (torch.randn(2 * 384, 256, device="cuda") / 16).bfloat16().requires_grad_()

    @cleave.epilogue
    def in_turn(acc):
        return cleave.silu(acc.even) * acc.odd

    d = cleave.torch.gemm(a, w.mT, epilogue=in_turn)
    exact = [x.detach().double().requires_grad_() for x in (a, w)]
    sums = exact[0] @ exact[1].mT
    wanted = torch.nn.functional.silu(sums[:, 0::2]) * sums[:, 1::2]
    weight = torch.randn_like(d)
    made = torch.autograd.grad(d, (a, w), weight), torch.autograd.grad(wanted, exact, weight.double())
    for got, want in zip((d, *made[0]), (wanted, *made[1]), strict=True):
        assert (got.double() - want).norm() <= 2**-7 * want.norm()
