"""float32 as it is, or rounded to TF32: what is computed, refused, planned, and asked of torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import float32_errors
import numpy as np
import pytest
from gemm_reference import MODES

import cleave

PRECISIONS = ("tf32", "ieee")
M, N, K = 70, 50, 4000


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def assert_float32(result: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Within what float32 sums of a @ b explain, of which TF32 operands are far outside."""

    def error(of: np.ndarray) -> np.ndarray:
        return abs(of - exact) / float32_errors.bound(a.shape[-1], squares)

    x, y = a.astype(np.float64), b.astype(np.float64)
    exact, squares = x @ y, (x * x) @ (y * y)
    rounded = [float32_errors.to_tf32(operand).astype(np.float64) for operand in (a, b)]
    assert error(result).max() <= 1
    assert error(rounded[0] @ rounded[1]).max() > 8


# --- the CPU rounds no operand ---


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("mode", MODES)
def test_products_on_the_cpu(mode: str, precision: str) -> None:
    a, b = normal(M, K), normal(K, N, seed=1)
    result = cleave.gemm(a, b, precision=precision, split_k_mode=mode)
    assert_float32(result, a, b)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_groups_on_the_cpu(precision: str) -> None:
    x, w, dy = normal(90, K), normal(2, K, N, seed=1), normal(K, 60, seed=2)
    offs, halves = np.array([40, 90], np.int32), np.array([K // 2, K], np.int32)
    y = cleave.grouped_gemm(x, w, offs, precision=precision)
    assert_float32(y[:40], x[:40], w[0])
    assert_float32(y[40:], x[40:], w[1])
    dw = cleave.grouped_gemm_wgrad(dy, x.T.copy(), halves, precision=precision)
    assert_float32(dw[1], dy[K // 2 :].T.copy(), x.T[K // 2 :].copy())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_convolutions_on_the_cpu(precision: str) -> None:
    """Filters of one tap: products of pixels and filters."""
    pixels, filters = normal(2, 9, 7, 320), normal(48, 320, seed=1)
    images, weight = pixels.transpose(0, 3, 1, 2), filters.reshape(48, 1, 1, 320)
    weight = weight.transpose(0, 3, 1, 2)
    y = cleave.conv2d(images, weight, precision=precision)
    rows = np.ascontiguousarray(y.transpose(0, 2, 3, 1)).reshape(-1, 48)
    x = pixels.reshape(-1, 320)
    assert_float32(rows, x, filters.T.copy())
    dx = cleave.conv2d_dgrad(images.shape, weight, y, precision=precision)
    assert_float32(dx.transpose(0, 2, 3, 1).reshape(-1, 320), rows, filters)
    dw = cleave.conv2d_wgrad(images, weight.shape, y, precision=precision)
    assert_float32(dw.reshape(48, 320), rows.T.copy(), x)
    image = cleave.conv_transpose2d(y, weight, precision=precision)
    assert_float32(image.transpose(0, 2, 3, 1).reshape(-1, 320), rows, filters)


# --- refusals ---


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_other_operands_have_no_choice(dtype: str) -> None:
    a = np.ones((8, 8), dtype)
    with pytest.raises(ValueError, match=f"precision is ieee, but a is {dtype}.*Leave precision"):
        cleave.gemm(a, a, precision="ieee")
    assert cleave.gemm(a, a, precision="tf32") is not None


def test_an_unknown_precision() -> None:
    a = np.ones((8, 8), np.float32)
    with pytest.raises(ValueError, match=r'precision is "ieeee".*tf32, ieee.*mean "ieee"'):
        cleave.gemm(a, a, precision="ieeee")
    with pytest.raises(TypeError, match="precision must be a string, got float"):
        cleave.gemm(a, a, precision=32.0)


def test_the_hopper_kernel_has_tf32_alone() -> None:
    with pytest.raises(ValueError, match=r"kernel is sm90.*portable"):
        plan(precision="ieee", kernel="sm90")


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


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_planned(mode: str) -> None:
    made = plan(precision="ieee", split_k_mode=mode, batch=2, activation="gelu", bias="row")
    assert mode in ("auto", made.split_k_mode)


@pytest.mark.parametrize("grouping", ["m", "n", "k"])
def test_every_grouping_is_planned(grouping: str) -> None:
    made = plan(precision="ieee", grouping=grouping, batch=8)
    assert "precision = cleave::Precision::ieee" in made.kernel_source


@pytest.mark.parametrize("kind", ["fprop", "dgrad", "wgrad"])
def test_every_convolution_is_planned(kind: str) -> None:
    made = cleave.plan_conv_problem(
        4, (28, 28), 64, 64, 3, stride=2, padding=1, kind=kind, dtype="float32", device="h100",
        precision="ieee",
    )  # fmt: skip
    assert made.kernel_name.startswith("portable")
    assert "precision = cleave::Precision::ieee" in made.kernel_source


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
    for precision, words in (("tf32", "rounded to tf32"), ("ieee", "multiplied as they are")):
        folder = tmp_path / precision
        cleave.emit.cpp(plan(precision=precision), "product", folder, archs=["sm_80", "sm_90a"])
        config = (folder / "src" / "config.h").read_text()
        # Each kernel's, and the operation's where it is not the default.
        places = 2 if precision == "tf32" else 3
        assert config.count(f".precision = cleave::Precision::{precision}") == places
        assert words in (folder / "README.md").read_text()
        headers = {path.name for path in (folder / "kernels").rglob("*.h")}
        assert "fma.h" in headers


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


@pytest.mark.parametrize("precision", PRECISIONS)
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
