"""cleave.jax on the CPU: results, and jit, grad, vmap and shard_map of all three products."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from doc_snippets import ROOT, python_snippets

jax = pytest.importorskip("jax", minversion="0.10", reason="needs jax 0.10 or newer: pip install jax")
pytest.importorskip("cleave.jax", reason="built where jax is: make build", exc_type=ImportError)

import jax.numpy as jnp  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import cleave  # noqa: E402
import cleave.jax  # noqa: E402

M, N, K = 24, 16, 40
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": jax.nn.relu,
    "relu2": lambda x: jax.nn.relu(x) ** 2,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": jax.nn.gelu,
    "silu": jax.nn.silu,
}
SIZES = (5, 0, 1, 17)  # of groups; one element is no group's
G, TOTAL = len(SIZES), sum(SIZES) + 1
OFFS = numpy.cumsum(SIZES).astype(numpy.int32)
FORMS = {"m": ((TOTAL, K), (G, K, N)), "k": ((M, TOTAL), (TOTAL, N)), "n": ((G, M, K), (K, TOTAL))}

forms = pytest.mark.parametrize("form", FORMS)
majors = pytest.mark.parametrize("a_major, b_major", [("k", "n"), ("k", "k"), ("m", "n"), ("m", "k")])


def normal(*shape: int, seed: int = 0, dtype: Any = jnp.float32) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def close(made: Any, expected: Any, tolerance: float = 1e-4) -> None:
    jax.tree.map(
        lambda x, y: numpy.testing.assert_allclose(
            x.astype(jnp.float32), y.astype(jnp.float32), rtol=tolerance, atol=tolerance
        ),
        made,
        expected,
    )


def grouped(a: jax.Array, b: jax.Array) -> jax.Array:
    """In plain jax, by the operands' ranks."""
    ranges = list(zip([0, *OFFS[:-1]], OFFS, strict=True))
    if a.ndim == b.ndim:
        return jnp.stack([a[:, begin:end] @ b[begin:end] for begin, end in ranges])
    parts = [
        a[begin:end] @ b[g] if b.ndim == 3 else (a[g] @ b[:, begin:end]).T for g, (begin, end) in enumerate(ranges)
    ]
    columns = b.shape[-1] if b.ndim == 3 else a.shape[-2]
    d = jnp.concatenate([*parts, jnp.zeros((1, columns), a.dtype)])
    return d if b.ndim == 3 else d.T


def quantized(x: jax.Array, along: int) -> tuple[jax.Array, jax.Array]:
    scale = jnp.abs(x).max(along, keepdims=True) / 127
    return jnp.round(x / scale).astype(jnp.int8), scale


# --- gemm ---


@majors
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_gemm_has_the_bits_of_cleave_gemm(dtype: Any, a_major: str, b_major: str) -> None:
    a, b = normal(M, K, dtype=dtype), normal(K, N, seed=1, dtype=dtype)
    bias, c = normal(N, seed=2), normal(M, N, seed=3)
    options = {"alpha": 0.5, "beta": 2.0, "activation": "silu", "split_k_mode": "parallel", "split_k_slices": 2}
    d = jax.jit(lambda *x: cleave.jax.gemm(*x[:2], bias=x[2], c=x[3], a_major=a_major, b_major=b_major, **options))(
        a, b, bias, c
    )
    assert d.dtype == dtype and d.shape == (M, N)
    assert jnp.array_equal(d, cleave.gemm(a, b, bias=bias, c=c, **options))


def test_batches() -> None:
    a, b = normal(3, M, K), normal(3, K, N, seed=1)
    close(cleave.jax.gemm(a, b), a @ b)
    close(cleave.jax.gemm(a, b[0]), a @ b[0])
    close(cleave.jax.gemm(a[:1], b), a[:1] @ b)
    assert cleave.jax.gemm(a, b, out_dtype="bfloat16").dtype == jnp.bfloat16


def test_a_transposed_weight_is_read_where_it_is() -> None:
    x, w = normal(M, K), normal(N, K)

    def program(b_major: str) -> str:
        return jax.jit(lambda x, w: cleave.jax.gemm(x, w.T, b_major=b_major)).lower(x, w).compile().as_text()

    def moves(text: str) -> bool:
        return re.search(r"^ +%\S+ = f32\[(40,16|16,40)\]\S* (copy|transpose|fusion)\(", text, re.M) is not None

    assert not moves(program("k")) and moves(program("n"))


@pytest.mark.parametrize(
    ("activation", "a_major", "b_major"),
    [*((name, "k", "n") for name in ACTIVATIONS), ("none", "m", "n"), ("silu", "k", "k"), ("none", "m", "k")],
)
def test_gradients_of_gemm(activation: str, a_major: str, b_major: str) -> None:
    arrays = normal(M, K) / 4, normal(K, N, seed=1) / 4, normal(N, seed=2), normal(M, N, seed=3)
    weight = normal(M, N, seed=4)

    def ours(a: jax.Array, b: jax.Array, bias: jax.Array, c: jax.Array) -> jax.Array:
        options = {"alpha": 0.5, "beta": 3.0, "activation": activation, "a_major": a_major, "b_major": b_major}
        return (cleave.jax.gemm(a, b, bias=bias, c=c, **options) * weight).sum()

    def plain(a: jax.Array, b: jax.Array, bias: jax.Array, c: jax.Array) -> jax.Array:
        return (ACTIVATIONS[activation](0.5 * a @ b + 3 * c + bias) * weight).sum()

    close(jax.jit(jax.grad(ours, (0, 1, 2, 3)))(*arrays), jax.grad(plain, (0, 1, 2, 3))(*arrays), 1e-3)


@pytest.mark.parametrize("interleaved", [False, True])
def test_gradients_through_swiglu(interleaved: bool) -> None:
    a, b = normal(M, K) / 4, normal(K, 2 * N, seed=1) / 4

    def plain(a: jax.Array, b: jax.Array) -> jax.Array:
        sums = a @ b
        gate, up = (sums[:, 0::2], sums[:, 1::2]) if interleaved else jnp.split(sums, 2, -1)
        return (jax.nn.silu(gate) * up).sum()

    activation = "swiglu_interleaved" if interleaved else "swiglu"
    made = jax.grad(lambda a, b: cleave.jax.gemm(a, b, activation=activation).sum(), (0, 1))(a, b)
    close(made, jax.grad(plain, (0, 1))(a, b), 1e-3)


def test_a_gradient_makes_no_sums_again_where_the_result_says_enough() -> None:
    def calls(activation: str) -> int:
        program = jax.value_and_grad(lambda a, b: cleave.jax.gemm(a, b, activation=activation).sum(), (0, 1))
        return jax.jit(program).lower(normal(M, K), normal(K, N)).compile().as_text().count('="cleave_product"')

    assert (calls("none"), calls("relu"), calls("silu")) == (3, 3, 4)


@pytest.mark.parametrize(
    ("of_a", "of_b", "of_bias"),
    [
        ((3, M, K), (K, N), (1, N)),
        ((M, K), (3, K, N), (M, 1)),
        ((3, M, K), (1, K, N), (N,)),
        ((1, M, K), (3, K, N), (N,)),
    ],
)
def test_gradients_of_what_serves_a_batch(
    of_a: tuple[int, ...], of_b: tuple[int, ...], of_bias: tuple[int, ...]
) -> None:
    arrays = normal(*of_a), normal(*of_b, seed=1), normal(*of_bias, seed=2)
    weight = normal(3, M, N, seed=3)
    made = jax.grad(lambda a, b, bias: (cleave.jax.gemm(a, b, bias=bias) * weight).sum(), (0, 1, 2))(*arrays)
    close(made, jax.grad(lambda a, b, bias: ((a @ b + bias) * weight).sum(), (0, 1, 2))(*arrays), 1e-3)


def test_second_derivatives() -> None:
    a, b, v = normal(M, K) / 4, normal(K, N, seed=1) / 4, normal(M, K, seed=2)

    def along(product: Callable[..., jax.Array]) -> jax.Array:
        first = jax.grad(lambda a: jnp.tanh(product(a, b)).sum())
        return jax.grad(lambda a: (first(a) * v).sum())(a)

    close(along(cleave.jax.gemm), along(jnp.matmul), 1e-3)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 2), (0, 2)], ids=str)
def test_vmap_of_gemm(axes: tuple[int | None, int | None]) -> None:
    a, b = (
        normal(*shape) if axis is None else jnp.moveaxis(normal(3, *shape), 0, axis)
        for shape, axis in zip(((M, K), (K, N)), axes, strict=True)
    )
    mapped = jax.vmap(cleave.jax.gemm, axes)
    close(mapped(a, b), jax.vmap(jnp.matmul, axes)(a, b))
    text = str(jax.make_jaxpr(mapped)(a, b))
    assert "cleave_product" in text and "scan" not in text and "while" not in text


def test_vmap_of_everything_else() -> None:
    """Batches, bias and c, gradients, and vmap in vmap."""
    a, b, bias, c = normal(3, M, K), normal(K, N, seed=1), normal(3, N, seed=2), normal(M, N, seed=3)

    def ours(a: jax.Array, bias: jax.Array) -> jax.Array:
        return cleave.jax.gemm(a, b, bias=bias, c=c, activation="relu")

    def plain(a: jax.Array, bias: jax.Array) -> jax.Array:
        return jax.nn.relu(a @ b + bias + c)

    for axes in ((0, 0), (0, None)):
        given = a, bias if axes[1] == 0 else bias[0]
        close(jax.vmap(ours, axes)(*given), jax.vmap(plain, axes)(*given))
        of_sums = [jax.grad(lambda a, bias, f=f: f(a, bias).sum(), (0, 1)) for f in (ours, plain)]
        close(*(jax.vmap(of_sum, axes)(*given) for of_sum in of_sums), 1e-3)
    twice = jax.vmap(jax.vmap(cleave.jax.gemm, (0, None)), (None, 0))
    bs = normal(2, K, N)
    close(twice(a, bs), jax.vmap(jax.vmap(jnp.matmul, (0, None)), (None, 0))(a, bs))
    of_c = jax.vmap(lambda c: cleave.jax.gemm(a[0], b, c=c))(jnp.stack([c, 2 * c]))
    close(of_c, a[0] @ b + jnp.stack([c, 2 * c]))
    batches = normal(2, 3, M, K)
    close(jax.vmap(cleave.jax.gemm, (0, None))(batches, b), batches @ b)


@pytest.mark.parametrize("batch, m, n, k", [(0, M, N, K), (3, 0, N, K), (3, M, 0, K), (3, M, N, 0)])
def test_vmap_and_gradients_of_nothing(batch: int, m: int, n: int, k: int) -> None:
    a, b = normal(batch, m, k), normal(k, n)
    for product in (jax.vmap(cleave.jax.gemm, (0, None)), cleave.jax.gemm):
        close(product(a, b), a @ b)
        of_sums = [jax.grad(lambda *xs, f=f: f(*xs).sum(), (0, 1)) for f in (product, jnp.matmul)]
        close(*(of_sum(a, b) for of_sum in of_sums), 1e-3)


# --- scaled_gemm ---


def test_scaled_gemm() -> None:
    x, w = normal(M, K), normal(N, K, seed=1)
    (q, scale), (p, scale_p) = quantized(x, 1), quantized(w, 1)
    d = jax.jit(lambda *arrays: cleave.jax.scaled_gemm(arrays[0], arrays[1].T, arrays[2], arrays[3].T))(
        q, p, scale, scale_p
    )
    assert d.dtype == jnp.bfloat16
    assert jnp.array_equal(d, cleave.scaled_gemm(q, numpy.asarray(p).T, scale, scale_p.T))
    exact = cleave.jax.scaled_gemm(q, p.T, None, None)
    assert exact.dtype == jnp.int32 and jnp.array_equal(exact, q.astype(jnp.int32) @ p.T.astype(jnp.int32))


def test_scaled_gemm_of_floats_of_8_bits_under_vmap() -> None:
    """Beside scales of its own each, and beside one a for all."""
    q, w = (normal(*shape, dtype=jnp.float8_e4m3fn) for shape in ((3, M, K), (K, N)))
    scale, two, bias = 1 + jnp.abs(normal(3, M)), jnp.full(1, 2.0), normal(N, seed=2)
    options = {"bias": bias, "out_dtype": "float32"}

    def ours(q: jax.Array, scale: jax.Array) -> jax.Array:
        return cleave.jax.scaled_gemm(q, w, scale, two, **options)

    for made, qs in ((jax.vmap(ours)(q, scale), q), (jax.vmap(ours, (None, 0))(q[0], scale), [q[0]] * 3)):
        each = [cleave.scaled_gemm(q, w, s, two, **options) for q, s in zip(qs, scale, strict=True)]
        assert jnp.array_equal(made, jnp.stack(each))


def test_scaled_gemm_has_no_gradients() -> None:
    q, scale = quantized(normal(M, K), 1)

    def of(scale: jax.Array, factor: float) -> jax.Array:
        return cleave.jax.scaled_gemm(q, q.T, scale, scale.T, out_dtype="float32").sum() * factor

    with pytest.raises(TypeError, match=r"have no gradients; wrap quantisation and product in one jax\.custom_vjp"):
        jax.grad(of)(scale, 1.0)
    close(jax.grad(lambda factor: of(jax.lax.stop_gradient(scale), factor))(1.0), of(scale, 1.0))


# --- grouped_gemm ---


@forms
@majors
def test_grouped_gemm(form: str, a_major: str, b_major: str) -> None:
    a, b = (normal(*shape, seed=i) for i, shape in enumerate(FORMS[form]))
    d = jax.jit(lambda a, b: cleave.jax.grouped_gemm(a, b, OFFS, a_major=a_major, b_major=b_major))(a, b)
    close(d, grouped(a, b))
    assert jnp.array_equal(d, cleave.grouped_gemm(a, b, OFFS))


@forms
@majors
def test_gradients_of_grouped_gemm(form: str, a_major: str, b_major: str) -> None:
    a, b = (normal(*shape, seed=i) for i, shape in enumerate(FORMS[form]))
    weight = normal(*grouped(a, b).shape, seed=2)

    def ours(a: jax.Array, b: jax.Array) -> jax.Array:
        d = cleave.jax.grouped_gemm(a, b, OFFS, alpha=0.5, a_major=a_major, b_major=b_major)
        return (d * weight).sum()

    made = jax.jit(jax.grad(ours, (0, 1)))(a, b)
    close(made, jax.grad(lambda a, b: 0.5 * (grouped(a, b) * weight).sum(), (0, 1))(a, b), 1e-3)


@pytest.mark.parametrize("by_group", [True, False])
def test_gradients_of_experts(by_group: bool) -> None:
    """With an activation and a bias; rows that are no group's have none."""
    a, b = (normal(*shape, seed=i) / 4 for i, shape in enumerate(FORMS["m"]))
    bias = normal(*((G, N) if by_group else (N,)), seed=2)
    rows = numpy.repeat(numpy.arange(G), SIZES)

    def ours(a: jax.Array, b: jax.Array, bias: jax.Array) -> jax.Array:
        return (cleave.jax.grouped_gemm(a, b, OFFS, bias=bias, activation="silu") ** 2).sum()

    def plain(a: jax.Array, b: jax.Array, bias: jax.Array) -> jax.Array:
        added = bias[rows] if by_group else bias
        return (jax.nn.silu(grouped(a, b)[:-1] + added) ** 2).sum()

    close(jax.grad(ours, (0, 1, 2))(a, b, bias), jax.grad(plain, (0, 1, 2))(a, b, bias), 1e-3)


def test_vmap_of_grouped_gemm() -> None:
    a, b = normal(2, *FORMS["m"][0]), normal(*FORMS["m"][1], seed=1)
    close(jax.vmap(lambda a: cleave.jax.grouped_gemm(a, b, OFFS))(a), jnp.stack([grouped(each, b) for each in a]))


# --- several devices ---

several_devices = pytest.mark.skipif(
    len(jax.devices("cpu")) < 4, reason="needs XLA_FLAGS=--xla_force_host_platform_device_count=4"
)


def mesh_of(**axes: int) -> Any:
    kinds = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.make_mesh((*axes.values(),), (*axes,), devices=jax.devices("cpu")[:4], axis_types=kinds)


@several_devices
@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map(check_vma: bool) -> None:
    """A sum over shards of K, tokens in parts beside a weight that all have, and gradients through both."""
    mesh = mesh_of(rows=2, k=2)
    a, b = normal(M, K), normal(K, N, seed=1)

    def of_shards(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.psum(cleave.jax.gemm(a, b), "k")

    over = jax.shard_map(
        of_shards, mesh=mesh, in_specs=(P("rows", "k"), P("k")), out_specs=P("rows"), check_vma=check_vma
    )
    close(jax.jit(over)(a, b), a @ b)
    made = jax.jit(jax.grad(lambda a, b: jnp.tanh(over(a, b)).sum(), (0, 1)))(a, b)
    close(made, jax.grad(lambda a, b: jnp.tanh(a @ b).sum(), (0, 1))(a, b), 1e-3)


@several_devices
def test_shard_map_of_groups_and_scales() -> None:
    mesh = mesh_of(n=4)
    a, b = (normal(*shape, seed=i) for i, shape in enumerate(FORMS["m"]))
    by_columns = jax.shard_map(
        lambda a, b: cleave.jax.grouped_gemm(a, b, jnp.asarray(OFFS)),
        mesh=mesh, in_specs=(P(), P(None, None, "n")), out_specs=P(None, "n"),
    )  # fmt: skip
    close(jax.jit(by_columns)(a, b), grouped(a, b))
    made = jax.grad(lambda a, b: (by_columns(a, b) ** 2).sum(), (0, 1))(a, b)
    close(made, jax.grad(lambda a, b: (grouped(a, b) ** 2).sum(), (0, 1))(a, b), 1e-3)
    (q, scale), (p, scale_p) = quantized(normal(M, K), 1), quantized(normal(K, N, seed=1), 0)
    scaled = jax.shard_map(cleave.jax.scaled_gemm, mesh=mesh, in_specs=(P("n"), P(), P("n"), P()), out_specs=P("n"))
    close(scaled(q, p, scale, scale_p), cleave.jax.scaled_gemm(q, p, scale, scale_p))


# --- errors ---


def test_what_does_not_fit_is_refused_while_it_is_traced() -> None:
    a = normal(M, K)
    for call, message in (
        (lambda: cleave.jax.gemm(a, a), "a's columns must be as many as b's rows"),
        (lambda: cleave.jax.gemm(a[0], a.T), "both must be matrices, or batches of them"),
        (lambda: cleave.jax.gemm(normal(2, M, K), normal(3, K, N)), "batches must be of one size, or of 1"),
        (lambda: cleave.jax.gemm(a, a.T, b_major="m"), "b_major is 'm'; it must be 'k' or 'n'"),
        (lambda: cleave.jax.gemm(a, a.T, split_k_slices=0), "split_k_slices is 0; it must be 1 or more"),
        (lambda: cleave.jax.gemm(a, a.T, activation="gelo"), 'must be one of none, relu, .* Did you mean "gelu"'),
        (lambda: cleave.jax.grouped_gemm(a, a.T[None], OFFS), "groups as many as offs has ends"),
        (lambda: cleave.jax.grouped_gemm(a, a, OFFS[0]), r"offs is \[G\]"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_what_cleave_refuses_is_said_in_its_words() -> None:
    a = normal(M, K)
    for options, message in (
        ({"bias": normal(N + 1)}, "bias is"),
        ({"c": normal(M, N + 1)}, "c is"),
    ):
        with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=message):
            cleave.jax.gemm(a, normal(K, N), **options).block_until_ready()


def test_arguments_that_are_no_arrays() -> None:
    a, b = normal(M, K), normal(K, N)
    assert cleave.jax.gemm(a, b, out_dtype="bf16").dtype == jnp.bfloat16
    for call, message in (
        (lambda: cleave.jax.gemm(a, b, out_dtype="bfloat61"), "out_dtype is bfloat61.* Did you mean 'bfloat16'"),
        (lambda: cleave.jax.gemm(a, b, **{"activaton": "relu"}), "Did you mean 'activation'"),
        (lambda: jax.jit(lambda x: cleave.jax.gemm(a, b, alpha=x))(2.0), "alpha is traced by jax; .* multiply the res"),
        (lambda: jax.jit(lambda x: cleave.jax.gemm(a, b, c=a @ b, beta=x))(2.0), "beta is traced by jax"),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_the_page_of_the_documentation_runs() -> None:
    program: dict[str, Any] = {}
    for source in python_snippets(ROOT / "docs" / "jax.md"):
        exec(compile(source, "docs/jax.md", "exec"), program)
    x, w, z, h = (program[name].astype(jnp.float32) for name in ("x", "w", "z", "h"))
    close(program["y"], jax.nn.silu(x @ w.T), 0.05)
    close(z, x @ w.T, 0.01)
    close(program["y8"], x @ w.T, 0.2)
    assert program["dw"].shape == w.shape and h.shape == (64, 256)
