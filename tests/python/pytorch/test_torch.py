"""torch tensors on the CPU backend."""

from __future__ import annotations

from collections.abc import Callable

import gemm_reference
import numpy as np
import pytest

import cleave

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad  # noqa: E402

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_matches_float64(dtype: str, layout: str, batch: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    m, n, k = 37, 29, 83

    def make(rows: int, cols: int, transposed: bool) -> torch.Tensor:
        shape = (*batch, cols, rows) if transposed else (*batch, rows, cols)
        tensor = torch.randn(shape).to(DTYPES[dtype])
        return tensor.mT if transposed else tensor

    a, b = make(m, k, layout[0] == "t"), make(k, n, layout[1] == "t")
    bias, c = torch.randn(n), make(m, n, False)
    result = cleave.gemm(a, b, c=c, bias=bias, alpha=0.5, beta=2.0, activation="gelu")
    assert type(result) is torch.Tensor and result.dtype == DTYPES[dtype] and result.is_contiguous()
    gemm_reference.assert_close(
        result.double().numpy(), dtype, a.double().numpy(), b.double().numpy(),
        c=c.double().numpy(), bias=bias.double().numpy(), alpha=0.5, beta=2.0, activation="gelu",
    )  # fmt: skip


def test_out_dtype() -> None:
    a = torch.ones(2, 3, dtype=torch.bfloat16)
    for dtype in (torch.float32, "float32", np.float32, cleave.DataType.f32):
        assert cleave.gemm(a, a.mT, out_dtype=dtype).dtype == torch.float32


def test_frameworks_mix() -> None:
    a, b = torch.ones(2, 3), np.ones((3, 4), np.float32)
    assert type(cleave.gemm(a, b)) is torch.Tensor
    assert type(cleave.gemm(b.T, a.T)) is np.ndarray


def test_parameters_give_plain_tensors() -> None:
    weight = torch.nn.Parameter(torch.ones(3, 4))
    with torch.no_grad():
        assert type(cleave.gemm(torch.ones(2, 3), weight)) is torch.Tensor
    with torch.inference_mode():
        assert cleave.gemm(torch.ones(2, 3), weight)[0, 0] == 3


def test_operands_that_require_grad_are_refused() -> None:
    with pytest.raises(ValueError, match=r"b requires grad.*b\.detach\(\)"):
        cleave.gemm(torch.ones(2, 3), torch.ones(3, 4, requires_grad=True))


def test_operands_with_tangents_are_refused() -> None:
    a, b = torch.ones(2, 3), torch.ones(3, 4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, a)
        with pytest.raises(ValueError, match=r"a has a tangent.*torch\.ops\.cleave"):
            cleave.gemm(dual, b)
        assert cleave.gemm(forward_ad.unpack_dual(dual).primal, b)[0, 0] == 3
    assert cleave.gemm(dual, b)[0, 0] == 3  # where tangents end


@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "out"])
def test_lazily_negated_views_are_refused(name):
    """Their sign is a bit that no address shows: `z.conj().imag` has z.imag's data."""
    ones = {"a": (4, 4), "b": (4, 4), "c": (4, 4), "bias": (4,), "out": (4, 4)}
    arrays = {key: torch.ones(size) for key, size in ones.items()}
    arrays[name] = torch.ones(ones[name], dtype=torch.complex64).conj().imag
    a, b = arrays.pop("a"), arrays.pop("b")
    with pytest.raises(ValueError, match=rf"{name} is a lazily negated view.*resolve_neg"):
        cleave.gemm(a, b, beta=1.0, **arrays)
    arrays = {"a": a, "b": b} | arrays
    arrays[name] = arrays[name].resolve_neg()
    cleave.gemm(arrays.pop("a"), arrays.pop("b"), beta=1.0, **arrays)


@pytest.mark.parametrize(
    "view",
    [lambda x: x.T, lambda x: x[1:, 2:], lambda x: x[:, :1], lambda x: x[:1, :1], lambda x: x[0, :, None]],
)
def test_lazily_negated_views_are_refused_in_any_order(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Where a dimension has one element, its stride says nothing of the other parts' places."""
    a = view(torch.ones(4, 4, dtype=torch.complex64).conj().imag)
    with pytest.raises(ValueError, match="a is a lazily negated view"):
        cleave.gemm(a, torch.ones(a.shape[1], 3))


def test_tensors_without_memory_are_refused() -> None:
    b = torch.ones(3, 4)
    with pytest.raises(TypeError, match="a cannot be read as a dense array"):
        cleave.gemm(torch.ones(2, 3, device="meta"), b)
    with pytest.raises(TypeError, match="a cannot be read as a dense array"):
        cleave.gemm(torch.ones(2, 3).to_sparse(), b)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2, 3)
    with pytest.raises(ValueError, match="a has a shape but no data"):
        cleave.gemm(fake, b)


def test_vmapped_tensors_are_refused() -> None:
    with pytest.raises(TypeError, match="a cannot be read as a dense array"):
        torch.vmap(lambda a: cleave.gemm(a, torch.ones(3, 4)))(torch.ones(5, 2, 3))


def test_columns_of_one_buffer() -> None:
    qkv = torch.randn(10, 96)
    q, k = qkv[:, :32], qkv[:, 32:64]
    out = qkv[:, 64:74]
    expected = q.double() @ k.double().mT
    cleave.gemm(q, k.mT, out=out)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("a_type", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_8_bit_floats(a_type: torch.dtype, out_dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(37, 130).to(a_type), torch.randn(29, 130).to(torch.float8_e4m3fn)
    scale_a, scale_b = torch.rand(37, 1), torch.rand(1, 2).T.expand(2, 29)
    blocks = scale_a.expand(37, 2)
    for scales in ((scale_a, scale_b[:1]), (blocks, scale_b)):
        d = cleave.scaled_gemm(a, b.T, *scales, out_dtype=out_dtype)
        assert type(d) is torch.Tensor and d.dtype == out_dtype and d.is_contiguous()
        of_b = scales[1].repeat_interleave(128 if len(scales[1]) == 2 else 130, 0)[:130]
        gemm_reference.assert_close(
            d.double().numpy(),
            str(out_dtype).removeprefix("torch."),
            (a.double() * scale_a).numpy(),
            (b.double().T * of_b).numpy(),
        )
        out = torch.empty_like(d)
        assert cleave.scaled_gemm(a, b.T, *scales, out=out) is out
        assert torch.equal(out.view(torch.uint8), d.view(torch.uint8))


def test_scales_that_require_grad_are_refused() -> None:
    a, one = torch.ones(2, 2, dtype=torch.int8), torch.ones(1)
    with pytest.raises(ValueError, match=r"scale_b requires grad.*scale_b\.detach\(\)"):
        cleave.scaled_gemm(a, a, one, torch.ones(1, requires_grad=True))
