"""torch.ops.cleave's convolutions on CPU tensors: results, gradients, errors, compiled.

`test_torch_ops.py` has what all operators share: fakes, opcheck, one graph.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import remedies

torch = pytest.importorskip("torch", minversion="2.10")

from torch_convolutions import CASES, channels_last, integers, is_packed, reference  # noqa: E402

import cleave.torch  # noqa: E402, F401
from cleave.testing.activations import ELEMENTWISE, activate  # noqa: E402
from cleave.testing.arrays import TorchArrays  # noqa: E402

ops = torch.ops.cleave
functional = torch.nn.functional

cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


# --- results: of whole numbers, which are exact ---


@cases
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_all_three_are_exact(case: tuple[Any, ...], dtype: torch.dtype) -> None:
    x_size, w_size, *geometry = case
    x, w = integers(*x_size).double().requires_grad_(), integers(*w_size).double().requires_grad_()
    y = reference(x, w, case)
    dy = integers(*y.shape).double()
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    given = [channels_last(t.detach()).to(dtype) for t in (x, w, dy)]
    for found, exact in (
        (ops.conv(given[0], given[1], None, *geometry), y),
        (ops.conv_dgrad(x_size, *given[1:], *geometry), dx),
        (ops.conv_wgrad(given[0], w_size, given[2], *geometry), dw),
    ):
        assert found.dtype == dtype and is_packed(found)
        assert torch.equal(found, exact.to(dtype))


@cases
def test_c_bias_and_activation(case: tuple[Any, ...]) -> None:
    x_size, w_size, *geometry = case
    x, w = integers(*x_size), integers(*w_size)
    y = reference(x.double().requires_grad_(), w.double(), case)
    bias, c = integers(y.shape[1], 1).flatten(), integers(*y.shape)
    column = bias.view(-1, *[1] * (y.dim() - 2))
    options = {"alpha": 0.5, "beta": 2.0, "activation": "relu"}
    expected = (0.5 * y + 2 * c + column).relu()
    found = ops.conv.full(x, w, bias, *geometry, c, out_dtype=torch.float32, **options)
    assert torch.equal(found.double(), expected)

    dy, c = integers(*y.shape), integers(*x_size)
    bias = integers(x_size[1], 1).flatten()
    column = bias.view(-1, *[1] * (y.dim() - 2))
    leaf = x.double().requires_grad_()
    (dx,) = torch.autograd.grad(reference(leaf, w.double(), case), leaf, dy.double())
    out = torch.full_like(x, 7.0)
    ops.conv_dgrad(x_size, w, dy, *geometry, bias, c, **options, out=out)
    assert torch.equal(out.double(), (0.5 * dx + 2 * c + column).relu())


@pytest.mark.parametrize("mode", ["none", "serial", "parallel", "stream_k"])
def test_split_k(mode: str) -> None:
    case = CASES["strided"]
    x_size, w_size, *geometry = case
    x, w = integers(*x_size), integers(*w_size)
    y = ops.conv(x, w, None, *geometry)
    options = {"split_k_mode": mode} | ({"split_k_slices": 2} if mode in ("serial", "parallel") else {})
    assert torch.equal(ops.conv.full(x, w, None, *geometry, **options), y)
    dy = integers(*y.shape)
    for name, arguments in (("conv_dgrad", (x_size, w, dy)), ("conv_wgrad", (x, w_size, dy))):
        op = getattr(ops, name)
        assert torch.equal(op.full(*arguments, *geometry, **options), op(*arguments, *geometry))


def test_weight_gradients_add_up() -> None:
    """Into what is there, in float32."""
    x, dy = integers(2, 8, 9, 7, dtype=torch.bfloat16), integers(2, 6, 9, 7, dtype=torch.bfloat16)
    size = (6, 8, 3, 3)
    total = channels_last(torch.zeros(size))
    for _ in range(2):
        ops.conv_wgrad(x, size, dy, 1, 1, c=total, out=total)
    once = ops.conv_wgrad.full(x, size, dy, 1, 1, out_dtype=torch.float32)
    assert torch.equal(total, 2 * once)


def test_int8() -> None:
    x, w = (torch.randint(-128, 128, size).to(torch.int8) for size in ((2, 9, 7, 16), (6, 3, 3, 16)))
    x, w = x.movedim(-1, 1), w.movedim(-1, 1)
    expected = functional.conv2d(x.double(), w.double(), stride=2, padding=1)
    y = ops.conv(x, w, None, 2, 1)
    assert y.dtype == torch.int32 and torch.equal(y.double(), expected)
    y = ops.conv.full(x, w, None, 2, 1, out_dtype=torch.float32)
    assert torch.equal(y.double(), expected)


def test_slices_of_channels_are_read_where_they_are() -> None:
    wide = integers(2, 24, 9, 7)
    w, dy = integers(6, 8, 3, 3), integers(2, 16, 5, 4)
    x, slice_of_dy = wide[:, 8:16], dy[:, 4:10]
    packed = ops.conv(channels_last(x.clone()), w, None, 2, 1)
    assert torch.equal(ops.conv(x, w, None, 2, 1), packed)
    copied = channels_last(slice_of_dy.clone())
    for name, arguments in (
        ("conv_dgrad", (x.shape, w, slice_of_dy)),
        ("conv_wgrad", (x, w.shape, slice_of_dy)),
    ):
        op = getattr(ops, name)
        assert torch.equal(op(*arguments, 2, 1), op(*arguments[:2], copied, 2, 1))
    out = torch.zeros_like(wide)
    ops.conv_dgrad(x.shape, w, slice_of_dy, 2, 1, out=out[:, 8:16])
    assert torch.equal(out[:, 8:16], ops.conv_dgrad(x.shape, w, slice_of_dy, 2, 1))
    assert not out[:, :8].any() and not out[:, 16:].any()


def test_other_orders_of_memory_are_refused() -> None:
    x, w, dy = integers(2, 8, 9, 7), integers(6, 8, 3, 3), integers(2, 6, 7, 5)
    for call in (
        lambda: ops.conv(x.contiguous(), w),
        lambda: ops.conv(x, w.contiguous()),
        lambda: ops.conv_dgrad(x.shape, w, dy.contiguous()),
        lambda: ops.conv_wgrad(x, w.shape, dy.contiguous()),
        lambda: ops.conv(x, w, out=torch.zeros(2, 6, 7, 5)),
    ):
        with pytest.raises(RuntimeError, match="channels_last") as caught:
            call()
        remedies.check(str(caught.value), ops.conv)


def test_errors() -> None:
    x, w, dy = integers(2, 8, 9, 7), integers(6, 8, 3, 3), integers(2, 6, 7, 5)
    refused = [
        (lambda: ops.conv(x, w.double()), "weight is float64"),
        (lambda: ops.conv(x, w.half()), "input is float32 and weight is float16"),
        (lambda: ops.conv(x[0], w), "input has 3 dimensions"),
        (lambda: ops.conv(x, w, None, 0), "the stride along the height is 0"),
        (lambda: ops.conv(x, w, None, 1, -1), "the padding before the image along the"),
        (lambda: ops.conv(x, w, None, 1, 0, 0), "the dilation along the height is 0"),
        (lambda: ops.conv(x, w, None, (1, 2, 3)), "stride has 3 numbers, but there are 2"),
        (lambda: ops.conv(x, w, None, 1, (1, 2, 3)), "padding has 3 numbers, but there are"),
        (lambda: ops.conv(x, w, None, 1, 0, 1, 3), "with groups = 3"),
        (lambda: ops.conv(x, w, None, 1, 0, 5), "the output is of size zero"),
        (lambda: ops.conv(x, w, torch.ones(5)), "bias is (5,)"),
        (lambda: ops.conv(x, w, c=x), "c is (2, 8, 9, 7)"),
        (lambda: ops.conv_dgrad((2, 8, 9), w, dy), "input_size has 3 numbers"),
        (lambda: ops.conv_dgrad((2, 8, 11, 7), w, dy), "grad_output is (2, 6, 7, 5)"),
        (lambda: ops.conv_dgrad((2, 8, 1543, 1029), integers(6, 8, 1, 1), dy, 257), "at most 65536"),
        (lambda: ops.conv_wgrad(x, (6, 8, 3), dy), "has 4 dimensions; it must have 3"),
        (lambda: ops.conv_wgrad(x, (6, 8, 3, 3), x), "grad_output is (2, 8, 9, 7)"),
    ]
    for call, message in refused:
        with pytest.raises(RuntimeError, match=re.escape(message)):
            call()


# --- gradients ---


@cases
@pytest.mark.parametrize("activation", ELEMENTWISE)
def test_gradients(case: tuple[Any, ...], activation: str) -> None:
    x_size, w_size, *geometry = case
    leaves = [torch.randn(size, dtype=torch.float64) for size in (x_size, w_size, w_size[:1])]
    wanted = [leaf.requires_grad_() for leaf in leaves]
    given = [leaf.detach().float() for leaf in leaves]
    given = [channels_last(t) if t.dim() > 1 else t for t in given]
    y = reference(wanted[0], wanted[1], case)
    wanted.append(torch.randn(y.shape, dtype=torch.float64).requires_grad_())
    given.append(channels_last(wanted[3].detach().float()))
    given = [t.requires_grad_() for t in given]
    bias = wanted[2].view(-1, *[1] * (y.dim() - 2))
    expected = activate(TorchArrays("cpu"), activation, 0.5 * y + 2 * wanted[3] + bias)
    found = ops.conv.full(*given[:3], *geometry, given[3], alpha=0.5, beta=2.0, activation=activation)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-4)
    weights = torch.randn(y.shape)  # not channels_last, as gradients may come
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    for t, u in zip(given, wanted, strict=True):
        torch.testing.assert_close(t.grad.double(), u.grad, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("case", [CASES[name] for name in CASES if name != "no images"])
def test_gradients_of_gradients(case: tuple[Any, ...]) -> None:
    x_size, w_size, *geometry = case
    x, w = (channels_last(torch.randn(size)).requires_grad_() for size in (x_size, w_size))

    def second(convolve: Any, x: torch.Tensor, w: torch.Tensor) -> Any:
        first = torch.autograd.grad((convolve(x, w) ** 3).sum(), (x, w), create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in first), (x, w))

    found = second(lambda x, w: ops.conv(x, w, None, *geometry), x, w)
    double = [t.detach().double().requires_grad_() for t in (x, w)]
    expected = second(lambda x, w: reference(x, w, case), *double)
    for t, u in zip(found, expected, strict=True):
        scale = max(float(u.abs().max()) if u.numel() else 0.0, 1.0)
        torch.testing.assert_close(t.double(), u, rtol=0, atol=1e-4 * scale)


def test_gradients_of_a_transposed_convolution() -> None:
    wanted = [torch.randn(size, dtype=torch.float64) for size in ((2, 6, 5, 4), (6, 8, 3, 3), (8,))]
    given = [t.float() for t in wanted]
    given = [channels_last(t) if t.dim() > 1 else t for t in given]
    for t in (*wanted, *given):
        t.requires_grad_()
    y = functional.conv_transpose2d(*wanted, stride=2, padding=1, output_padding=1).relu()
    weights = torch.randn(y.shape)
    (y * weights).sum().backward()
    x, w, bias = given
    found = ops.conv_dgrad.full(y.shape, w, x, 2, 1, 1, 1, bias, activation="relu")
    (found * weights).sum().backward()
    for t, u in zip(given, wanted, strict=True):
        torch.testing.assert_close(t.grad.double(), u.grad, rtol=0, atol=1e-4)


def test_only_asked_for_gradients_are_made() -> None:
    x, w = integers(2, 8, 16, 16), integers(6, 8, 1, 1).requires_grad_()
    # The gradient of x cannot be made: there are more than 64 residue classes.
    ops.conv(x, w, None, 16).sum().backward()
    assert w.grad is not None and x.grad is None


def test_gradients_have_the_dtypes_of_their_operands() -> None:
    x = integers(2, 8, 9, 7, dtype=torch.bfloat16).requires_grad_()
    w = integers(6, 8, 3, 3, dtype=torch.bfloat16).requires_grad_()
    bias = torch.zeros(6, requires_grad=True)
    ops.conv.full(x, w, bias, out_dtype=torch.float32).sum().backward()
    for t in (x, w, bias):
        assert t.grad.dtype == t.dtype
    assert torch.equal(bias.grad, torch.full((6,), 2.0 * 7 * 5))


def test_int8_has_no_gradient() -> None:
    bias = torch.zeros(6, requires_grad=True)
    x, w = integers(2, 16, 9, 7, dtype=torch.int8), integers(6, 16, 3, 3, dtype=torch.int8)
    with pytest.raises(RuntimeError, match=r"conv is given torch\.int8"):
        ops.conv.full(x, w, bias, out_dtype=torch.float32)


# --- compiled ---


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_training(dynamic: bool) -> None:
    def loss(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        hidden = ops.conv.full(x, w, bias, 2, 1, activation="gelu")
        return (ops.conv_dgrad(x.shape, w, hidden, 2, 1) ** 2).mean()

    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic)
    w = channels_last(torch.randn(6, 8, 3, 3)).requires_grad_()
    bias = torch.randn(6, requires_grad=True)
    for images, size in ((2, 9), (3, 12)) if dynamic else ((2, 9),):
        x = channels_last(torch.randn(images, 8, size, size))
        expected = torch.autograd.grad(loss(x, w, bias), (w, bias))
        found = torch.autograd.grad(compiled(x, w, bias), (w, bias))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_export() -> None:
    class Convolution(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.ops.cleave.conv(x, w, None, 2, 1)

    x, w = integers(2, 8, 9, 7), integers(6, 8, 3, 3)
    program = torch.export.export(Convolution(), (x, w))
    assert torch.equal(program.module()(x, w), ops.conv(x, w, None, 2, 1))
