"""torch.ops.cleave.grouped_gemm on CPU tensors: results, gradients, compiled."""

from __future__ import annotations

import re
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import grouped_reference  # noqa: E402
from grouped_reference import bounds_of  # noqa: E402

from cleave.testing.activations import ELEMENTWISE  # noqa: E402
from cleave.testing.group_sizes import ranges_of  # noqa: E402

ops = torch.ops.cleave

SIZES = (5, 0, 1, 17)  # of 4 groups; the grouped dimension has 27 elements, the last 4 no group's
RANGES = ranges_of(SIZES)
TOTAL = 27
G, M, N, K = len(SIZES), 6, 9, 7

# The operands of each form: of M, of K, of N.
FORMS = {
    "m": ((TOTAL, K), (G, K, N)),
    "k": ((M, TOTAL), (TOTAL, N)),
    "n": ((G, M, K), (K, TOTAL)),
}
forms = pytest.mark.parametrize("form", FORMS)
kinds = pytest.mark.parametrize("kind", ["offs", "indptr", "starts"])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def integers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randint(-5, 6, shape).to(dtype)


def column_major(x: torch.Tensor) -> torch.Tensor:
    return x.mT.contiguous().mT


def call(a: torch.Tensor, b: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    """offs is a keyword here, as the other bounds are."""
    return ops.grouped_gemm(a, b, options.pop("offs", None), *arguments, **options)


# --- results: of whole numbers, which are exact ---


@forms
@kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_every_form(form: str, kind: str, dtype: torch.dtype, index: torch.dtype) -> None:
    a, b = (integers(*shape, dtype=dtype) for shape in FORMS[form])
    expected = grouped_reference.product(a.double(), b.double(), RANGES)
    for x in (a, column_major(a)):
        for y in (b, column_major(b)):
            d = call(x, y, **bounds_of(RANGES, kind, index))
            assert d.dtype == dtype and d.is_contiguous()
            assert torch.equal(d.double(), expected.to(dtype).double())


def test_aligned_groups() -> None:
    ranges = ranges_of(SIZES, spacing=8)
    a, b = integers(64, K), integers(G, K, N)
    d = call(a, b, **bounds_of(ranges, "offs"), alignment=8)
    assert torch.equal(d.double(), grouped_reference.product(a.double(), b.double(), ranges))


def test_masked_groups() -> None:
    counts, rows = torch.tensor(SIZES, dtype=torch.int32), 20
    a, b = integers(G, rows, K), integers(G, K, N)
    ranges = [(rows * g, rows * g + size) for g, size in enumerate(SIZES)]
    expected = grouped_reference.product(a.flatten(0, 1).double(), b.double(), ranges)
    d = ops.grouped_gemm(a, b, counts=counts)
    assert torch.equal(d.double(), expected.view(G, rows, N))
    out = torch.full_like(d, 7.0)
    ops.grouped_gemm(a, b, counts=counts, out=out)
    for group, size in enumerate(SIZES):
        assert torch.equal(out[group, :size], d[group, :size]) and (out[group, size:] == 7).all()


def test_batches() -> None:
    a, b = integers(G, M, K), integers(G, K, N)
    assert torch.equal(ops.grouped_gemm(a, b), a @ b)


@pytest.mark.parametrize("zero_rest", [None, False, True])
def test_rows_of_no_group(zero_rest: bool | None) -> None:
    a, b, offs = integers(TOTAL, K), integers(G, K, N), bounds_of(RANGES, "offs")["offs"]
    out = torch.full((TOTAL, N), 7.0)
    ops.grouped_gemm(a, b, offs, zero_rest=zero_rest, out=out)
    end = RANGES[-1][1]
    expected = grouped_reference.product(a.double(), b.double(), RANGES)
    assert torch.equal(out[:end].double(), expected[:end])
    assert (out[end:] == (0 if zero_rest else 7)).all()


def test_everything_else() -> None:
    a, b, c = integers(TOTAL, K), integers(G, K, N), integers(TOTAL, N)
    bias = integers(G, 1, N)
    options = {"alpha": 0.5, "beta": 2.0, "activation": "relu"}
    expected = grouped_reference.product(*(x.double() for x in (a, b)), RANGES, bias.double(), c.double(), **options)
    d = ops.grouped_gemm(
        a, b, bounds_of(RANGES, "offs")["offs"], bias.squeeze(1), torch.float16, c=c,
        split_k_mode="serial", split_k_slices=2, **options,
    )  # fmt: skip
    assert torch.equal(d.double(), expected)


def test_swiglu() -> None:
    a, b, bias = torch.randn(TOTAL, K), torch.randn(G, K, 2 * N), torch.randn(G, 1, 2 * N)
    expected = grouped_reference.product(*(x.double() for x in (a, b)), RANGES, bias.double(), activation="swiglu")
    d = call(a, b, bias.squeeze(1), **bounds_of(RANGES, "offs"), activation="swiglu")
    torch.testing.assert_close(d.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_scales_of_rows_and_columns(dtype: torch.dtype) -> None:
    a, b = integers(TOTAL, 32, dtype=dtype), integers(G, 32, N, dtype=dtype)
    scale_a, scale_b = 2.0 ** torch.randint(-2, 3, (TOTAL,)), 2.0 ** torch.randint(-2, 3, (G, N))
    expected = grouped_reference.product(a.double() * scale_a[:, None], b.double() * scale_b[:, None], RANGES)
    offs = bounds_of(RANGES, "offs")["offs"]
    d = ops.grouped_gemm(a, b, offs, None, torch.float32, scale_a, scale_b)
    assert torch.equal(d.double(), expected)
    d = ops.grouped_gemm(a, b, offs, scale_a=scale_a, scale_b=scale_b)
    assert torch.equal(d, expected.bfloat16())


def test_scales_of_blocks() -> None:
    """A weight gradient's: groups begin at multiples of 128, and so do the scales along K."""
    ranges = ranges_of((130, 0, 3), spacing=128)
    a = integers(M, 512, dtype=torch.float8_e4m3fn)
    b = integers(512, N, dtype=torch.float8_e4m3fn)
    scale_a, scale_b = 2.0 ** torch.randint(-2, 3, (M, 4)), 2.0 ** torch.randint(-2, 3, (4, N))
    expected = grouped_reference.product(
        a.double() * scale_a.repeat_interleave(128, 1),
        b.double() * scale_b.repeat_interleave(128, 0),
        ranges,
    )
    bounds = bounds_of(ranges, "offs")
    d = ops.grouped_gemm(a, b, **bounds, alignment=128, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.float32)
    assert torch.equal(d.double(), expected)


def test_weight_gradient_of_quantised_tokens() -> None:
    """The layout that docs/moe.md describes, from what makes it."""
    ranges = ranges_of((200, 0, 1, 99))
    offs = bounds_of(ranges, "offs")["offs"]
    x, dy = torch.randn(320, K), torch.randn(320, N)
    *_, a, scale_a, ends = ops.quantize_grouped(dy, offs, torch.float8_e4m3fn)
    *_, b, scale_b, _ = ops.quantize_grouped(x, offs, torch.float8_e4m3fn)
    options = {"alignment": 128, "out_dtype": torch.float32}
    dw = ops.grouped_gemm(a, b.mT, ends, scale_a=scale_a, scale_b=scale_b.mT, **options)
    expected = grouped_reference.product(dy.double().mT, x.double(), ranges)
    assert (dw[1] == 0).all()
    for found, exact in zip(dw.double(), expected, strict=True):
        assert (found - exact).norm() <= 0.06 * exact.norm()  # two roundings by 2^-4 at most


def test_main_grad_is_added_to() -> None:
    dy, x = integers(TOTAL, N, dtype=torch.bfloat16), integers(TOTAL, K, dtype=torch.bfloat16)
    main = integers(G, N, K)
    expected = main.double() + grouped_reference.product(dy.double().mT, x.double(), RANGES)
    ops.grouped_gemm(dy.mT, x, bounds_of(RANGES, "offs")["offs"], c=main, out=main)
    assert torch.equal(main.double(), expected)


def test_wrong_offsets_touch_nothing_else() -> None:
    a, b = integers(TOTAL, K), integers(G, K, N)
    frame = torch.full((TOTAL + 2, N), 7.0)
    for ends in ([3, -5, 99, 2**31 - 1], [-1, -1, -1, -1], [99, 0, 99, 0]):
        ops.grouped_gemm(a, b, torch.tensor(ends, dtype=torch.int32), out=frame[1:-1])
        assert (frame[0] == 7).all() and (frame[-1] == 7).all()


def test_errors_name_the_argument() -> None:
    a, b = torch.ones(TOTAL, K), torch.ones(G, K, N)
    offs = torch.zeros(G, dtype=torch.int32)
    refused = [
        (lambda: ops.grouped_gemm(a, b), "offs is missing"),
        (lambda: ops.grouped_gemm(a, b, offs[1:]), "b is (4, 7, 9), but 3 groups are described"),
        (lambda: ops.grouped_gemm(a, b, offs.float()), "offs is float32"),
        (lambda: ops.grouped_gemm(a, b, offs, indptr=offs), "indptr"),
        (lambda: ops.grouped_gemm(a, b, starts=offs), "sizes"),
        (lambda: ops.grouped_gemm(a, b, offs, alignment=0), "alignment"),
        (lambda: ops.grouped_gemm(a, b, offs, torch.ones(G, N + 1)), "bias is (4, 10)"),
        (lambda: ops.grouped_gemm(a, b, offs, activation="tanh"), 'activation is "tanh"'),
        (lambda: ops.grouped_gemm(a.t(), a, offs, zero_rest=True), "zero_rest"),
        (lambda: ops.grouped_gemm(a, b.mT, offs), "a's columns (7)"),
        (lambda: ops.grouped_gemm(a, b, offs, out=a), "out is (27, 7)"),
    ]
    for function, message in refused:
        with pytest.raises(RuntimeError, match=re.escape(message)):
            function()


# --- gradients ---


def given_and_wanted(*shapes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """float32 operands, and the same in float64."""
    wanted = [torch.randn(shape).double().requires_grad_() for shape in shapes]
    return [x.detach().float().requires_grad_() for x in wanted], wanted


def check_gradients(d: Any, given: list[Any], expected: Any, wanted: list[Any]) -> None:
    weights = torch.randn(expected.shape)
    found = torch.autograd.grad((d * weights).sum(), given)
    for x, y in zip(found, torch.autograd.grad((expected * weights).sum(), wanted), strict=True):
        torch.testing.assert_close(x.double(), y, rtol=1e-4, atol=1e-4)


@forms
@kinds
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients(form: str, kind: str, transposed: bool) -> None:
    given, wanted = given_and_wanted(*FORMS[form])
    if transposed:
        given = [column_major(x.detach()).requires_grad_() for x in given]
    d = call(*given, **bounds_of(RANGES, kind), alpha=0.5)
    check_gradients(d, given, grouped_reference.product(*wanted, RANGES, alpha=0.5), wanted)


def test_gradients_of_aligned_groups() -> None:
    ranges = ranges_of(SIZES, spacing=8)
    given, wanted = given_and_wanted((64, K), (G, K, N), (G, N))
    a, b, bias = given
    d = call(a, b, bias, **bounds_of(ranges, "offs"), alignment=8)
    expected = grouped_reference.product(wanted[0], wanted[1], ranges, wanted[2][:, None])
    check_gradients(d, given, expected, wanted)


def test_gradients_of_masked_groups() -> None:
    rows = 20
    given, wanted = given_and_wanted((G, rows, K), (G, K, N), (G, N))
    ranges = [(rows * g, rows * g + size) for g, size in enumerate(SIZES)]
    a, b, bias = wanted
    expected = grouped_reference.product(a.flatten(0, 1), b, ranges, bias[:, None])
    a, b, bias = given
    d = ops.grouped_gemm(a, b, None, bias, counts=torch.tensor(SIZES, dtype=torch.int32))
    check_gradients(d, given, expected.view(G, rows, N), wanted)


def test_gradients_of_batches() -> None:
    given, wanted = given_and_wanted((G, M, K), (G, K, N))
    check_gradients(ops.grouped_gemm(*given), given, torch.matmul(*wanted), wanted)


@pytest.mark.parametrize("activation", (*ELEMENTWISE, "swiglu"))
def test_gradients_of_activations(activation: str) -> None:
    columns = 2 * N if activation == "swiglu" else N
    given, wanted = given_and_wanted((TOTAL, K), (G, K, columns), (G, columns))
    a, b, bias = wanted
    expected = grouped_reference.product(a, b, RANGES, bias[:, None], activation=activation)
    a, b, bias = given
    d = call(a, b, bias, **bounds_of(RANGES, "offs"), activation=activation)
    check_gradients(d, given, expected, wanted)


# (form, the bias, the same as one [groups,] rows, columns)
BIASES = [
    ("m", (G, N), (G, 1, N)),
    ("m", (N,), (N,)),
    ("m", (1, N), (1, N)),
    ("n", (G, M), (G, M, 1)),
    ("n", (M, 1), (M, 1)),
    ("k", (G, N), (G, 1, N)),
    ("k", (N,), (N,)),
    ("k", (M, 1), (M, 1)),
]


@pytest.mark.parametrize("form, shape, full", BIASES)
def test_gradients_of_biases(form: str, shape: tuple[int, ...], full: tuple[int, ...]) -> None:
    given, wanted = given_and_wanted(*FORMS[form], shape)
    a, b, bias = given
    d = call(a, b, bias, **bounds_of(RANGES, "offs"))
    expected = grouped_reference.product(*wanted[:2], RANGES, wanted[2].view(full))
    check_gradients(d, given, expected, wanted)


def test_gradients_of_biases_along_groups() -> None:
    """One value for each row of all groups, or for each column."""
    given, wanted = given_and_wanted(*FORMS["m"], (TOTAL, 1))
    mask = (torch.arange(TOTAL) < RANGES[-1][1])[:, None]
    offs = bounds_of(RANGES, "offs")["offs"]
    expected = grouped_reference.product(*wanted[:2], RANGES) + wanted[2] * mask
    check_gradients(ops.grouped_gemm(given[0], given[1], offs, given[2]), given, expected, wanted)
    given, wanted = given_and_wanted(*FORMS["n"], (TOTAL,))
    expected = grouped_reference.product(*wanted[:2], RANGES) + wanted[2] * mask.squeeze(1)
    check_gradients(ops.grouped_gemm(given[0], given[1], offs, given[2]), given, expected, wanted)


def test_gradients_have_the_dtypes_and_layouts_of_their_operands() -> None:
    a = torch.randn(TOTAL, K, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(G, N, K, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.randn(G, N, requires_grad=True)
    inputs = (a, weight.mT, bias)
    d = call(*inputs, torch.float32, **bounds_of(RANGES, "offs"))
    for x, gradient in zip(inputs, torch.autograd.grad(d.sum(), inputs), strict=True):
        assert gradient.dtype == x.dtype and gradient.stride() == x.stride()


def test_what_belongs_to_no_group_has_no_gradient() -> None:
    """Even of values that would spoil sums."""
    a = torch.randn(TOTAL, K)
    a[RANGES[-1][1] :] = float("nan")
    a.requires_grad_()
    b, bias = torch.randn(G, K, N, requires_grad=True), torch.randn(G, N, requires_grad=True)
    d = call(a, b, bias, **bounds_of(RANGES, "offs"))
    weights = torch.randn(d.shape)
    weights[RANGES[-1][1] :] = float("inf")
    d.backward(weights)
    assert (d[RANGES[-1][1] :] == 0).all() and (a.grad[RANGES[-1][1] :] == 0).all()
    for x in (b, bias):
        assert x.grad.isfinite().all() and (x.grad[1] == 0).all()  # the empty group's, too


def test_second_derivatives() -> None:
    given, wanted = given_and_wanted(*FORMS["m"])

    def second(product: Any, a: Any, b: Any) -> torch.Tensor:
        (first,) = torch.autograd.grad((product(a, b) ** 3).sum(), a, create_graph=True)
        return torch.autograd.grad((first**2).sum(), b)[0]

    found = second(lambda a, b: call(a, b, **bounds_of(RANGES, "offs")), *given)
    expected = second(lambda a, b: grouped_reference.product(a, b, RANGES), *wanted)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-2)


def test_what_has_no_gradient_says_so() -> None:
    a = torch.ones(2, 16).to(torch.float8_e4m3fn).requires_grad_()
    offs = torch.tensor([2], dtype=torch.int32)
    with pytest.raises(RuntimeError, match="products of 8-bit operands have no gradient"):
        ops.grouped_gemm(a, a.t()[None], offs)
    c = torch.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"c requires grad.*c\.detach\(\)"):
        ops.grouped_gemm(c, c[None], offs, c=c)


# --- compiled ---


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_training(dynamic: bool) -> None:
    """Tokens and offsets change from call to call."""
    torch.compiler.reset()

    def loss(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, offs: Any) -> torch.Tensor:
        hidden = ops.grouped_gemm(x, w.mT, offs, bias)
        return (ops.grouped_gemm(torch.nn.functional.silu(hidden), w, offs) ** 2).mean()

    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic)
    w, bias = torch.randn(3, N, K, requires_grad=True), torch.randn(3, N, requires_grad=True)
    for tokens, ends in ((11, [2, 2, 9]), (11, [0, 5, 11]), *([(8, [8, 8, 8])] if dynamic else [])):
        x, offs = torch.randn(tokens, K), torch.tensor(ends, dtype=torch.int32)
        expected = torch.autograd.grad(loss(x, w, bias, offs), (w, bias))
        found = torch.autograd.grad(compiled(x, w, bias, offs), (w, bias))
        for y, z in zip(found, expected, strict=True):
            torch.testing.assert_close(y, z, rtol=1e-4, atol=1e-5)
