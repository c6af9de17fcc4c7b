"""float32 as it is, rounded to TF32, or in parts: what is computed, refused, planned, and asked of torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import float32_errors
import numpy as np
import pytest
from gemm_reference import MODES

import cleave

PRECISIONS = ("tf32", "ieee", "tf32x3", "bf16x3")
PARTS = PRECISIONS[2:]
M, N, K = 70, 50, 4000


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def assert_float32(result: np.ndarray, a: np.ndarray, b: np.ndarray, precision: str = "ieee") -> None:
    """Within what float32 sums of a @ b explain, of which TF32 operands are far outside.

    precision: of the CPU's products, which are exact where operands might be rounded to TF32.
    """

    def error(of: np.ndarray) -> np.ndarray:
        return abs(of - exact) / float32_errors.bound(a.shape[-1], squares, precision if precision in PARTS else "ieee")

    x, y = a.astype(np.float64), b.astype(np.float64)
    exact, squares = x @ y, (x * x) @ (y * y)
    rounded = [float32_errors.to_tf32(operand).astype(np.float64) for operand in (a, b)]
    assert error(result).max() <= 1
    assert error(rounded[0] @ rounded[1]).max() > 3


# --- the CPU rounds no operand, and has the same parts ---


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("mode", MODES)
def test_products_on_the_cpu(mode: str, precision: str) -> None:
    a, b = normal(M, K), normal(K, N, seed=1)
    result = cleave.gemm(a, b, precision=precision, split_k_mode=mode)
    assert_float32(result, a, b, precision)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_groups_on_the_cpu(precision: str) -> None:
    x, w, dy = normal(90, K), normal(2, K, N, seed=1), normal(K, 60, seed=2)
    offs, halves = np.array([40, 90], np.int32), np.array([K // 2, K], np.int32)
    y = cleave.grouped_gemm(x, w, offs, precision=precision)
    assert_float32(y[:40], x[:40], w[0], precision)
    assert_float32(y[40:], x[40:], w[1], precision)
    dw = cleave.grouped_gemm_wgrad(dy, x.T.copy(), halves, precision=precision)
    assert_float32(dw[1], dy[K // 2 :].T.copy(), x.T[K // 2 :].copy(), precision)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_convolutions_on_the_cpu(precision: str) -> None:
    """Filters of one tap: products of pixels and filters."""
    pixels, filters = normal(2, 9, 7, 320), normal(48, 320, seed=1)
    images, weight = pixels.transpose(0, 3, 1, 2), filters.reshape(48, 1, 1, 320)
    weight = weight.transpose(0, 3, 1, 2)
    y = cleave.conv2d(images, weight, precision=precision)
    rows = np.ascontiguousarray(y.transpose(0, 2, 3, 1)).reshape(-1, 48)
    x = pixels.reshape(-1, 320)
    assert_float32(rows, x, filters.T.copy(), precision)
    dx = cleave.conv2d_dgrad(images.shape, weight, y, precision=precision)
    assert_float32(dx.transpose(0, 2, 3, 1).reshape(-1, 320), rows, filters, precision)
    dw = cleave.conv2d_wgrad(images, weight.shape, y, precision=precision)
    assert_float32(dw.reshape(48, 320), rows.T.copy(), x, precision)
    image = cleave.conv_transpose2d(y, weight, precision=precision)
    assert_float32(image.transpose(0, 2, 3, 1).reshape(-1, 320), rows, filters, precision)


def bits(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32).view(np.float32)


@pytest.mark.parametrize("precision", PARTS)
def test_parts_are_used(precision: str) -> None:
    """More than one part of an operand's bits counts, and not all of them."""
    a, eye = normal(64, 64), np.eye(64, dtype=np.float32)
    made = cleave.gemm(a, eye, precision=precision)
    error = abs(made.astype(np.float64) - a) / abs(a)
    assert error.max() <= {"tf32x3": 2.0**-23, "bf16x3": 2.0**-17}[precision]
    assert precision == "tf32x3" or error.max() > 2.0**-19
    assert np.array_equal(cleave.gemm(eye, a, precision=precision), made)


@pytest.mark.parametrize("precision", PARTS)
@pytest.mark.parametrize("side", ["a", "b"])
def test_what_is_not_finite_stays_what_it_is(side: str, precision: str) -> None:
    """An infinity times a number whose low part is 0, or has the other sign, is no NaN; what is beside it is right."""
    inf, nan = np.inf, np.nan
    others = np.array([1, 1.9999, 1.0001, -1.9999, -1.0001, 3e-39, 1e38, -3], np.float32)
    wide = normal(8, 64)
    wide[0, 5], wide[1, 6], wide[2, 7] = inf, -inf, nan
    wide[3, 5], wide[3, 6] = inf, inf
    for column in others:
        narrow = normal(64, 4, seed=1)
        narrow[5:8] = column
        made = (
            cleave.gemm(wide, narrow, precision=precision)
            if side == "a"
            else cleave.gemm(narrow.T.copy(), wide.T.copy(), precision=precision).T
        )
        sign = np.sign(column)
        assert (made[0] == inf * sign).all() and (made[1] == -inf * sign).all()
        assert np.isnan(made[2]).all() and (made[3] == inf * sign).all()
        exact = wide[4:].astype(np.float64) @ narrow.astype(np.float64)
        assert np.allclose(made[4:], exact, rtol=1e-3, atol=1e-3 * max(1, abs(column)))
    zero = np.zeros((64, 4), np.float32)
    made = cleave.gemm(wide, zero, precision=precision)
    assert np.isnan(made[:4]).all() and (made[4:] == 0).all(), "an infinity times 0 is none"


@pytest.mark.parametrize("precision", PARTS)
def test_the_largest_and_the_smallest(precision: str) -> None:
    """What rounds to an infinity counts as one; subnormal numbers have parts down to the last bit of the type."""
    one = np.ones((1, 1), np.float32)

    def times_one(x: np.ndarray) -> np.ndarray:
        return cleave.gemm(x.reshape(-1, 1), one, precision=precision).ravel()

    last = {"tf32x3": 0x7F7FEFFF, "bf16x3": 0x7F7F7FFF}[precision]
    kept = bits(last, last - 1)
    assert np.allclose(times_one(kept), kept, rtol=2e-5)
    assert (times_one(bits(last + 1, 0x7F7FFFFF)) == np.inf).all()
    assert (times_one(-bits(last + 1, 0x7F7FFFFF)) == -np.inf).all()
    least = {"tf32x3": 2.0**-136, "bf16x3": 2.0**-133}[precision]
    small = np.random.default_rng(0).integers(0, 0x00FFFFFF, 1000, np.uint32).view(np.float32)
    error = abs(times_one(small).astype(np.float64) - small)
    assert (error <= least / 2).all()
    assert error.max() > 0
    assert np.signbit(times_one(bits(0x80000000))).sum() == 0


# --- refusals ---


@pytest.mark.parametrize("precision", PRECISIONS[1:])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_other_operands_have_no_choice(dtype: str, precision: str) -> None:
    a = np.ones((8, 8), dtype)
    with pytest.raises(ValueError, match=f"precision is {precision}, but a is {dtype}.*Leave precision"):
        cleave.gemm(a, a, precision=precision)
    assert cleave.gemm(a, a, precision="tf32") is not None


def test_an_unknown_precision() -> None:
    a = np.ones((8, 8), np.float32)
    with pytest.raises(ValueError, match=r'precision is "ieeee".*tf32, ieee, tf32x3, bf16x3.*mean "ieee"'):
        cleave.gemm(a, a, precision="ieeee")
    with pytest.raises(TypeError, match="precision must be a string, got float"):
        cleave.gemm(a, a, precision=32.0)


@pytest.mark.parametrize("precision", PRECISIONS[1:])
def test_the_hopper_kernel_has_tf32_alone(precision: str) -> None:
    with pytest.raises(ValueError, match=rf"precision is {precision}, but kernel is sm90.*portable"):
        plan(precision=precision, kernel="sm90")


# --- plans of GPUs ---


def plan(**options: Any) -> cleave.GemmPlan:
    return cleave.plan_problem(256, 384, 4096, dtype="float32", device="h100", **options)


def test_a_plan_says_what_it_multiplies() -> None:
    fast, exact = plan(), plan(precision="ieee")
    assert fast.kernel_name.startswith("sm90") and "rounded to tf32" in fast.why
    assert "precision = cleave::Precision::tf32" in fast.kernel_source
    assert exact.kernel_name.startswith("portable") and "as they are" in exact.why
    assert "precision = cleave::Precision::ieee" in exact.kernel_source
    assert exact.roofline_us > 2 * fast.roofline_us
    assert all(one["kernel"].startswith("portable") for one in exact.candidates)


@pytest.mark.parametrize("precision", PARTS)
def test_a_plan_says_that_it_multiplies_parts(precision: str) -> None:
    made, exact = plan(precision=precision), plan(precision="ieee")
    assert made.kernel_name.startswith("portable") and f"two parts each (precision {precision})" in made.why
    assert f"precision = cleave::Precision::{precision}" in made.kernel_source
    assert plan().roofline_us <= made.roofline_us < exact.roofline_us


@pytest.mark.parametrize("precision", PRECISIONS[1:])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_planned(mode: str, precision: str) -> None:
    made = plan(precision=precision, split_k_mode=mode, batch=2, activation="gelu", bias="row")
    assert mode in ("auto", made.split_k_mode)


@pytest.mark.parametrize("precision", PRECISIONS[1:])
@pytest.mark.parametrize("grouping", ["m", "n", "k"])
def test_every_grouping_is_planned(grouping: str, precision: str) -> None:
    made = plan(precision=precision, grouping=grouping, batch=8)
    assert f"precision = cleave::Precision::{precision}" in made.kernel_source


@pytest.mark.parametrize("precision", PRECISIONS[1:])
@pytest.mark.parametrize("kind", ["fprop", "dgrad", "wgrad"])
def test_every_convolution_is_planned(kind: str, precision: str) -> None:
    made = cleave.plan_conv_problem(
        4, (28, 28), 64, 64, 3, stride=2, padding=1, kind=kind, dtype="float32", device="h100",
        precision=precision,
    )  # fmt: skip
    assert made.kernel_name.startswith("portable")
    assert f"precision = cleave::Precision::{precision}" in made.kernel_source


def test_a_plan_keeps_its_precision() -> None:
    a, b = normal(M, K), normal(K, N, seed=1)
    made = cleave.plan_gemm(a, b, precision="ieee")
    assert_float32(made.run(a, b), a, b)


def test_the_vocabulary_of_cutlass() -> None:
    a, b = normal(M, K), normal(K, N, seed=1)
    op = cleave.op.Gemm(element="float32")
    assert_float32(op.run(a, b, precision="ieee").D, a, b)
    op.construct(a, b, precision="ieee")
    with pytest.raises(ValueError, match="precision"):
        op.run(a, b, precision="fast")


def test_an_emitted_operation_keeps_its_precision(tmp_path: Any) -> None:
    for precision, words in (
        ("tf32", "rounded to tf32"),
        ("ieee", "multiplied as they are"),
        ("bf16x3", "multiplied in two parts each (bf16x3)"),
    ):
        folder = tmp_path / precision
        cleave.emit.cpp(plan(precision=precision), "product", folder, archs=["sm_80", "sm_90a"])
        config = (folder / "src" / "config.h").read_text()
        # Each kernel's, and the operation's where it is not the default.
        places = 2 if precision == "tf32" else 3
        assert config.count(f".precision = cleave::Precision::{precision}") == places
        assert words in (folder / "README.md").read_text()
        headers = {path.name for path in (folder / "kernels").rglob("*.h")}
        assert {"fma.h", "parts.h"} <= headers


# --- torch's switch ---


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The switches that were read: "matmul" and "conv"."""
    pytest.importorskip("torch", minversion="2.10")
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    from cleave import _torch_precision

    read: list[str] = []
    found = _torch_precision._read

    def noted(backend: str, op: str) -> str:
        read.append(op)
        return found(backend, op)

    monkeypatch.setattr(_torch_precision, "_read", noted)
    yield read


def test_torchs_operators_ask_torch_at_every_call(looks: list[str]) -> None:
    import torch

    ops = torch.ops.cleave
    a = torch.randn(8, 8)
    offs = torch.tensor([8], dtype=torch.int32)
    order = {"memory_format": torch.channels_last}
    image, weight = torch.randn(1, 8, 4, 4).to(**order), torch.randn(8, 8, 1, 1).to(**order)
    for _ in range(2):
        ops.gemm(a, a)
        ops.grouped_gemm(a, a[None], offs)
        ops.conv(image, weight)
    assert looks == 2 * ["matmul", "matmul", "conv"]
    ops.gemm(a.half(), a.half())
    ops.scaled_gemm(a.to(torch.int8), a.to(torch.int8), None, None)
    assert len(looks) == 6  # others have no choice


def test_backward_asks_too(looks: list[str]) -> None:
    import torch

    a, b = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    torch.ops.cleave.gemm(a, b).sum().backward()
    assert looks == 3 * ["matmul"]


def test_torchs_switch_is_read_however_it_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", minversion="2.10")
    from cleave._torch_precision import allows_tf32

    torch.set_float32_matmul_precision("highest")  # the default, which other tests change
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert not allows_tf32() and allows_tf32(convolution=True)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert allows_tf32() and not allows_tf32(convolution=True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    torch.set_float32_matmul_precision("high")
    assert allows_tf32()
    torch.set_float32_matmul_precision("highest")
    assert not allows_tf32() and allows_tf32(convolution=True)
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert allows_tf32()
        torch.backends.cuda.matmul.fp32_precision = "none"
        assert not allows_tf32()


def test_a_context_asks_for_more_than_torch_can(looks: list[str]) -> None:
    import torch

    a, b = (torch.randn(8, 40, requires_grad=True) for _ in range(2))

    def both() -> list[torch.Tensor]:
        d = torch.ops.cleave.gemm(a, b.mT)
        return [d.detach(), *torch.autograd.grad(d.sum(), (a, b))]

    def alone() -> list[torch.Tensor]:
        return [cleave.gemm(a.detach(), b.detach().mT, precision="bf16x3")]

    with cleave.torch.float32_precision("bf16x3"):
        asked = both()
        with cleave.torch.float32_precision(None):
            free = both()
        with pytest.raises(RuntimeError, match="left"), cleave.torch.float32_precision("tf32x3"):
            raise RuntimeError("left")
        assert torch.equal(both()[0], asked[0])
    assert looks == 3 * ["matmul"], "of the stretch that follows torch"
    assert torch.equal(asked[0], alone()[0]) and not torch.equal(free[0], asked[0])
    assert torch.equal(both()[0], free[0])
    for one, other in zip(asked, free, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r'precision is "bf16x9".*tf32, ieee, tf32x3, bf16x3'):
        cleave.torch.float32_precision("bf16x9").__enter__()


@pytest.mark.parametrize("precision", PRECISIONS[:2])
def test_compat_torch_follows_it(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from cleave import _core
    from cleave.compat import torch as compat_torch

    asked = []
    multiply = _core.grouped_gemm

    def recorded(*arguments: Any, **options: Any) -> Any:
        asked.append(options["precision"])
        return multiply(*arguments, **options)

    monkeypatch.setattr(_core, "grouped_gemm", recorded)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", precision == "tf32")
    a, b = torch.randn(8, 8), torch.randn(2, 8, 8)
    offs = torch.tensor([3, 8], dtype=torch.int32)
    compat_torch.grouped_mm(a, b, offs=offs)
    compat_torch._grouped_mm(a, b, offs)
    compat_torch.grouped_mm(a.half(), b.half(), offs=offs)
    assert asked == [precision, precision, "tf32"]
