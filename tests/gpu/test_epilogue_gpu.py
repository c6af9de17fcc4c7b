"""Epilogue functions on the GPU: drawn ones in every split mode and kernel, against float64; fixed ones bit by bit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import epilogue_functions  # noqa: E402
import numpy as np  # noqa: E402
from epilogue_functions import Bounded, assert_close  # noqa: E402
from served import skip_unless_served  # noqa: E402

import cleave  # noqa: E402

MODES = ("none", "serial", "parallel", "cluster", "stream_k")
KERNELS = ("sm90", "portable")
# Smaller than a tile, ragged, odd, and several tiles.
SHAPES = ((8, 8, 64), (200, 264, 1032), (129, 77, 520), (384, 512, 512))


def options(kernel: str, mode: str) -> dict[str, Any]:
    return {"kernel": kernel, "split_k_mode": mode, "split_k_slices": None if mode == "none" else 3}


def normal(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def in_float64(x: torch.Tensor) -> np.ndarray:
    return x.double().cpu().numpy()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(20))
def test_drawn_functions(seed: int, mode: str, kernel: str) -> None:
    skip_unless_served(kernel, mode)
    random, generator = Random(seed), torch.Generator("cuda").manual_seed(seed)
    drawn = epilogue_functions.draw(random, ("float32", "bfloat16", "float16"))
    function = drawn.traced()
    for index, (m, n, k) in enumerate(SHAPES):
        if kernel == "sm90" and n % 8:
            n = n // 8 * 8
        batch = 2 if index == 1 else None
        lead = () if batch is None else (batch,)
        dtype = random.choice([torch.float16, torch.bfloat16])
        a = normal(generator, *lead, m, k, dtype=dtype) / 32
        b = normal(generator, *lead, n, k, dtype=dtype).mT
        sizes = {"scalar": (1, 1), "row": (1, n), "column": (m, 1), "matrix": (m, n)}
        inputs: dict[str, Any] = {}
        for name, shape in drawn.shapes.items():
            type_ = random.choice([torch.float32, torch.float16, torch.bfloat16])
            rows, columns = sizes[shape]
            x = normal(generator, *(lead if random.random() < 0.5 else ()), rows, columns, dtype=type_)
            if shape == "matrix" and random.random() < 0.3:
                x = x.mT.contiguous().mT
            inputs[name] = float(x) if x.numel() == 1 and random.random() < 0.5 else x
        exact = {
            name: Bounded(in_float64(x) if torch.is_tensor(x) else np.float64(x), np.zeros(()))
            for name, x in inputs.items()
        }
        magnitude = in_float64(a.double().abs() @ b.double().abs())
        sums = Bounded(in_float64(a.double() @ b.double()), (k + 4) * epilogue_functions.ROUNDOFF * magnitude)
        expected = drawn.exact(sums, exact)
        out_dtype = random.choice(["float32", "bfloat16", "float16"])
        made = cleave.gemm(a, b, epilogue=function(**inputs), out_dtype=out_dtype, **options(kernel, mode))
        outputs = made if len(drawn.outputs) > 1 else [made]
        for got, (name, type_name) in zip(outputs, drawn.outputs.items(), strict=True):
            assert got.dtype == getattr(torch, type_name or out_dtype)
            assert_close(in_float64(got), expected[name], type_name or out_dtype, drawn.text)


@cleave.epilogue
def biased_silu(acc, bias: cleave.row):
    return cleave.silu(acc + bias)


@cleave.epilogue
def biased_gelu_c(acc, bias: cleave.row, c: cleave.matrix):
    return cleave.gelu(acc + 0.5 * c + bias)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_functions_do_what_activations_do(kernel: str, mode: str, dtype: torch.dtype) -> None:
    """Whole numbers are summed exactly; the functions may be contracted to other multiply-adds."""
    skip_unless_served(kernel, mode)
    for m, n, k in SHAPES:
        n = n // 8 * 8
        a = torch.randint(-3, 4, (m, k), device="cuda").bfloat16()
        b = torch.randint(-3, 4, (n, k), device="cuda").bfloat16().mT
        bias, c = (torch.randint(-3, 4, (s, n), device="cuda").to(dtype) for s in (1, m))
        shared = {"alpha": 1 / 64, "out_dtype": dtype, **options(kernel, mode)}
        fixed = cleave.gemm(a, b, bias=bias, activation="silu", **shared)
        torch.testing.assert_close(cleave.gemm(a, b, epilogue=biased_silu(bias=bias), **shared), fixed)
        fixed = cleave.gemm(a, b, bias=bias, c=c, beta=0.5, activation="gelu", **shared)
        torch.testing.assert_close(cleave.gemm(a, b, epilogue=biased_gelu_c(bias=bias, c=c), **shared), fixed)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_beyond_an_operand_is_touched(mode: str) -> None:
    """Matrices with NaNs around them, outputs with canaries, of lines that end between two vectors."""
    skip_unless_served("auto", mode)
    m, n, k = 130, 202, 384
    a = torch.randint(-3, 4, (m, k), device="cuda").half()
    b = torch.randint(-3, 4, (n, k), device="cuda").half().mT

    @cleave.epilogue
    def residual(acc, r: cleave.matrix):
        return cleave.outputs(d=acc + r, pre=acc)

    for padding in (6, 7):
        frame = torch.full((m + 2, n + padding), float("nan"), device="cuda").half()
        r = frame[1:-1, :n]
        r.copy_(torch.randint(-9, 9, (m, n), device="cuda"))
        frames = [torch.full((m + 2, n + padding), 7.0, device="cuda").half() for _ in range(2)]
        outs = tuple(f[1:-1, :n] for f in frames)
        cleave.gemm(a, b, epilogue=residual(r=r), out=outs, **options("auto", mode))
        exact = a.double() @ b.double()
        assert torch.equal(outs[0], (exact + r.double()).half())
        assert torch.equal(outs[1], exact.half())
        for f in frames:
            assert (f[0] == 7).all() and (f[-1] == 7).all() and (f[:, n:] == 7).all()
        in_place = r.clone()
        cleave.gemm(a, b, epilogue=residual(r=in_place), out=(in_place, None), **options("auto", mode))
        assert torch.equal(in_place, outs[0])


def test_replays_read_arrays_anew() -> None:
    a, b = torch.eye(64, device="cuda").half(), torch.ones(64, 64, device="cuda").half()
    scale, factor = torch.ones((), device="cuda"), torch.ones(64, device="cuda")

    @cleave.epilogue
    def scaled(acc, s: cleave.scalar, f: cleave.row):
        return acc * s * f

    out = torch.empty_like(a)
    cleave.gemm(a, b, epilogue=scaled(s=scale, f=factor), out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cleave.gemm(a, b, epilogue=scaled(s=scale, f=factor), out=out)
    scale.fill_(3.0)
    factor.copy_(torch.arange(64))
    graph.replay()
    assert torch.equal(out, (3.0 * torch.arange(64, device="cuda")).half().expand(64, 64))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_gradients(mode: str, compiled: bool) -> None:
    """Inputs of every shape have some, where the derivative is the epilogue of the same product."""
    skip_unless_served("sm90", mode)
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    import cleave.torch

    @cleave.epilogue
    def weighted(acc, v: cleave.row, w: cleave.column, x: cleave.matrix):
        pre = cleave.gelu(acc * v + x)
        return cleave.outputs(d=pre * w, other=cleave.tanh(acc))

    m, n, k = 200, 264, 1032
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = (m, k), (k, n), (n,), (m,), (m, n)
    leaves = [normal(generator, *shape, dtype=torch.bfloat16).requires_grad_() for shape in shapes]
    with torch.no_grad():
        leaves[0] /= k**0.5
    split = {"split_k_mode": mode, "split_k_slices": None if mode == "none" else 3}

    def step(a: Any, b: Any, v: Any, w: Any, x: Any) -> Any:
        d, other = cleave.torch.gemm(a, b, epilogue=weighted(v=v, w=w, x=x), **split)
        return d.float().sum() + other.float().square().sum()

    torch.compiler.reset()
    grads = torch.autograd.grad((torch.compile(step, fullgraph=True) if compiled else step)(*leaves), leaves)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    acc = exact[0] @ exact[1]
    d = torch.nn.functional.gelu(acc * exact[2] + exact[4]) * exact[3].unsqueeze(1)
    loss = d.sum() + torch.tanh(acc).square().sum()
    for got, expected in zip(grads, torch.autograd.grad(loss, exact), strict=True):
        assert got.dtype == torch.bfloat16
        error = (got.double() - expected).norm() / expected.norm()
        assert error < 0.01


@cleave.epilogue
def limited_swiglu(acc, limit: cleave.scalar, shift: cleave.row):
    gate, up = cleave.minimum(acc.gate, limit), cleave.clamp(acc.up, -limit, limit)
    return cleave.outputs(d=gate * cleave.sigmoid(1.702 * gate) * (up + 1.0) + shift, up=up)


@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
@pytest.mark.parametrize("mode", ["none", "serial", "parallel", "stream_k"])
@pytest.mark.parametrize("grouped", [False, True])
def test_gates(grouped: bool, mode: str, kernel: str) -> None:
    skip_unless_served(kernel, mode)
    for m, n, k in ((8, 64, 64), (200, 264, 1032), (300, 77 if kernel == "auto" else 80, 520)):
        generator = torch.Generator("cuda").manual_seed(m)
        count = 3 if grouped else 1
        a = normal(generator, m, k, dtype=torch.bfloat16) / 16
        b = normal(generator, count, 2 * n, k, dtype=torch.bfloat16).mT
        shift = normal(generator, count, n)
        call = limited_swiglu(limit=1.0, shift=shift if grouped else shift[0])
        if grouped:
            offs = torch.tensor([m // 3, m // 3, m], dtype=torch.int32, device="cuda")
            made = cleave.grouped_gemm(a, b, offs, epilogue=call, out_dtype="float32", **options(kernel, mode))
            sums = torch.cat([a[: m // 3].double() @ b[0].double(), a[m // 3 :].double() @ b[2].double()])
            added = torch.cat([shift[:1].expand(m // 3, n), shift[2:].expand(m - m // 3, n)])
        else:
            made = cleave.gemm(a, b[0], epilogue=call, out_dtype="float32", **options(kernel, mode))
            sums, added = a.double() @ b[0].double(), shift
        gate, up = sums[:, :n].clamp(max=1.0), sums[:, n:].clamp(-1.0, 1.0)
        torch.testing.assert_close(made[1].double(), up, rtol=1e-4, atol=1e-4)
        expected = gate * torch.sigmoid(1.702 * gate) * (up + 1.0) + added.double()
        torch.testing.assert_close(made[0].double(), expected, rtol=1e-4, atol=1e-4)
