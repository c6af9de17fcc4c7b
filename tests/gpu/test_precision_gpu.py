"""float32 multiplied as it is: exact where sums are, else within what float32 sums explain."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import conv_cases as conv  # noqa: E402
import float32_errors  # noqa: E402
import test_grouped_gpu as grouped  # noqa: E402
from one_tap import one_tap  # noqa: E402
from products import Product  # noqa: E402
from served import skip_unless_served  # noqa: E402
from test_gemm_gpu import LAYOUTS, MODES, SHAPES, split  # noqa: E402

import cleave  # noqa: E402
from cleave.compat import torch as compat_torch  # noqa: E402

IEEE = {"precision": "ieee"}


# --- whole numbers: the same kernel page as tf32's, with another multiplication ---


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_modes_and_layouts(mode: str, layout: str) -> None:
    skip_unless_served("portable", mode)
    for m, n, k in SHAPES:
        for padding in (8, 7):  # copied by 16 bytes, and by 4
            product = Product(
                m, n, k, dtype="float32", layout=layout, padding=padding,
                options=IEEE | split(mode),
            )  # fmt: skip
            product.run()
            product.check()


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("c", [None, "bfloat16", "D"])
def test_epilogues(activation: str, c: str | None) -> None:
    for mode in ("none", "parallel"):
        product = Product(
            136, 200, 456, batch=3, dtype="float32", alpha=0.5, c=c, bias="row",
            activation=activation, options=IEEE | split(mode),
        )  # fmt: skip
        product.run()
        product.check()


@pytest.mark.parametrize("form", "mnk")
def test_groups(form: str) -> None:
    for majors in ((True, True), (True, False), (False, True), (False, False)):
        groups = grouped.Groups(grouped.SIZES["ragged"], slack=5)
        grouped.run(form, groups, 72, 130, 200, "float32", majors=majors, **IEEE)
    for mode in ("parallel", "stream_k"):
        groups = grouped.Groups(grouped.SIZES["skewed"])
        grouped.run(form, groups, 200, 264, 1040, "float32", **IEEE, **split(mode))


def test_swiglu() -> None:
    groups = grouped.Groups(grouped.SIZES["ragged"])
    for majors in ((True, False), (False, True)):
        grouped.run("m", groups, 136, 264, 128, "float32", majors=majors, activation="swiglu", **IEEE)


@pytest.mark.parametrize("kind", conv.KINDS)
@pytest.mark.parametrize("name", conv.CASES)
def test_convolutions(name: str, kind: str) -> None:
    for mode in ("none", "parallel"):
        conv.Case(kind, conv.CASES[name], "float32", options=IEEE | split(mode)).check()


# --- random numbers, whose last bits count ---


def assert_float32(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    x, y = a.double(), b.double()
    bound = float32_errors.bound(a.shape[-1], (x * x) @ (y * y))
    error = (result.double() - x @ y).abs() / bound
    assert error.max() <= 1, f"{error.max()} of what float32 sums explain"


@pytest.mark.parametrize("mode", MODES)
def test_error_against_float64(mode: str) -> None:
    skip_unless_served("portable", mode)
    for m, n, k in ((128, 128, 16384), (1024, 512, 1000)):
        a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda").mT
        exact = cleave.gemm(a, b, **IEEE, **split(mode))
        assert_float32(exact, a, b)
        assert torch.equal(cleave.gemm(a, b, **IEEE, **split(mode)), exact)
        with pytest.raises(AssertionError, match="of what float32 sums explain"):
            assert_float32(cleave.gemm(a, b, **split(mode)), a, b)


def test_every_bit_of_an_operand_counts() -> None:
    a = torch.randn(64, 64, device="cuda")
    assert torch.equal(cleave.gemm(a, torch.eye(64, device="cuda"), **IEEE), a)
    assert not torch.equal(cleave.gemm(a, torch.eye(64, device="cuda")), a)


@pytest.mark.parametrize("kind", conv.KINDS)
def test_error_of_convolutions(kind: str) -> None:
    assert_float32(*one_tap(kind, **IEEE))


# --- torch's switch ---


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_switch(name: str, allowed: bool) -> None:
        backend = torch.backends.cudnn if name == "conv" else torch.backends.cuda.matmul
        monkeypatch.setattr(backend, "allow_tf32", allowed)

    return set_switch


def test_grouped_mm_is_as_close_to_torch_as_torch_asks() -> None:
    """By default float32, as torch's: the tolerance is that of torch.testing."""
    a, b = torch.randn(64, 64, device="cuda"), torch.randn(4, 64, 32, device="cuda")
    offs = torch.tensor([16, 16, 40, 64], device="cuda", dtype=torch.int32)
    want = torch.cat([a[:16] @ b[0], a[16:40] @ b[2], a[40:] @ b[3]])
    torch.testing.assert_close(compat_torch.grouped_mm(a, b, offs=offs), want)


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_operators_follow_torchs_switch(precision: str, switch: Any) -> None:
    import cleave.torch

    ops, wanted = torch.ops.cleave, {"precision": precision}
    switch("matmul", precision == "tf32")
    switch("conv", precision == "tf32")
    a, b = torch.randn(64, 512, device="cuda"), torch.randn(512, 96, device="cuda")
    assert torch.equal(ops.gemm(a, b), cleave.gemm(a, b, **wanted))
    offs = torch.tensor([20, 64], device="cuda", dtype=torch.int32)
    both = torch.stack([b, b])
    assert torch.equal(ops.grouped_gemm(a, both, offs), cleave.grouped_gemm(a, both, offs, **wanted))
    assert torch.equal(compat_torch.grouped_mm(a, both, offs=offs), cleave.grouped_gemm(a, both, offs, **wanted))
    order = {"memory_format": torch.channels_last}
    x = torch.randn(2, 64, 14, 14, device="cuda").to(**order)
    w = torch.randn(96, 64, 3, 3, device="cuda").to(**order)
    assert torch.equal(ops.conv(x, w, padding=[1]), cleave.conv2d(x, w, padding=1, **wanted))


def test_the_switch_is_read_when_compiled_code_runs(switch: Any) -> None:
    import cleave.torch

    compiled = torch.compile(lambda a, b: torch.ops.cleave.gemm(a, b), fullgraph=True)
    a, b = torch.randn(64, 512, device="cuda"), torch.randn(512, 96, device="cuda")
    for precision in ("ieee", "tf32", "ieee"):
        switch("matmul", precision == "tf32")
        assert torch.equal(compiled(a, b), cleave.gemm(a, b, precision=precision))
