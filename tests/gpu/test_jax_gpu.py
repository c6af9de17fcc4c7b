"""cleave.jax on the GPU: results, gradients, vmap, programs of several calls, and shards on several GPUs."""

from __future__ import annotations

import os
from typing import Any

import numpy
import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch's tests are in the same processes

jax = pytest.importorskip("jax", minversion="0.10", reason="needs jax 0.10 or newer: pip install jax[cuda13]")
pytest.importorskip("cleave.jax", reason="built where jax is: make build", exc_type=ImportError)

import jax.numpy as jnp  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import cleave  # noqa: E402
import cleave.jax  # noqa: E402

M, N, K = 192, 136, 4096
SIZES = (50, 0, 1, 130)
OFFS = numpy.cumsum(SIZES).astype(numpy.int32)
majors = pytest.mark.parametrize("a_major, b_major", [("k", "n"), ("k", "k"), ("m", "n"), ("m", "k")])


@pytest.fixture(autouse=True)
def device() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("needs jax with CUDA: pip install jax[cuda13]")


def normal(*shape: int, seed: int = 0, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def close(made: Any, expected: Any) -> None:
    """Within 1 % of the norm: bfloat16's roundoff, and tf32's."""
    for x, y in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True):
        x, y = (numpy.asarray(each.astype(jnp.float32), numpy.float64) for each in (x, y))
        assert numpy.linalg.norm(x - y) <= 0.01 * numpy.linalg.norm(y)


def plain(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


@majors
@pytest.mark.parametrize("mode", ["auto", "none", "parallel", "cluster", "stream_k", "serial"])
def test_gemm(mode: str, a_major: str, b_major: str) -> None:
    a, b, bias = normal(M, K), normal(K, N, seed=1), normal(N, seed=2)
    options = {"split_k_mode": mode, "activation": "silu", "a_major": a_major, "b_major": b_major}
    product = jax.jit(lambda a, b, bias: cleave.jax.gemm(a / 64, b, bias=bias, **options))
    made = product(a, b, bias)
    close(made, jax.nn.silu(plain(a / 64, b) + bias))
    for _ in range(3):
        assert jnp.array_equal(product(a, b, bias), made)


@majors
def test_gradients(a_major: str, b_major: str) -> None:
    a, b = normal(M, K) / 64, normal(K, N, seed=1)

    def ours(a: jax.Array, b: jax.Array) -> jax.Array:
        d = cleave.jax.gemm(a, b, activation="gelu_tanh", out_dtype="float32", a_major=a_major, b_major=b_major)
        return (d**2).sum()

    made = jax.jit(jax.grad(ours, (0, 1)))(a, b)
    close(made, jax.grad(lambda a, b: (jax.nn.gelu(plain(a, b)) ** 2).sum(), (0, 1))(a, b))


def test_vmap() -> None:
    a, b = normal(3, M, K), normal(3, K, N, seed=1)
    for axes, given in (((0, None), (a, b[0])), ((None, 0), (a[0], b)), ((0, 0), (a, b))):
        close(jax.jit(jax.vmap(cleave.jax.gemm, axes))(*given), jax.vmap(plain, axes)(*given))


def test_calls_that_depend_on_each_other() -> None:
    """Forty in a scan, and forty in a row: whatever XLA makes a command buffer of."""
    w = normal(512, 512) / 512**0.5
    x = normal(M, 512, seed=1)

    def step(x: jax.Array, _: Any) -> tuple[jax.Array, None]:
        return jnp.tanh(cleave.jax.gemm(x, w, split_k_mode="parallel", split_k_slices=4)).astype(x.dtype), None

    @jax.jit
    def in_a_row(x: jax.Array) -> jax.Array:
        for _ in range(40):
            x, _ = step(x, None)
        return x

    scanned = jax.jit(lambda x: jax.lax.scan(step, x, length=40)[0])
    for _ in range(3):
        assert jnp.array_equal(in_a_row(x), scanned(x))
    for _ in range(40):
        x, _ = step(x, None)
    close(scanned(normal(M, 512, seed=1)), x)


def test_scaled_gemm() -> None:
    q, p = (jnp.round(10 * normal(*shape, dtype=jnp.float32)).astype(jnp.int8) for shape in ((M, K), (N, K)))
    scale_a, scale_b = 1 + jnp.arange(M, dtype=jnp.float32)[:, None] / M, jnp.full((1, N), 0.5)
    d = jax.jit(lambda q, p, *scales: cleave.jax.scaled_gemm(q, p.T, *scales))(q, p, scale_a, scale_b)
    close(d, plain(q.astype(jnp.float32), p.T.astype(jnp.float32)) * scale_a * scale_b)
    exact = cleave.jax.scaled_gemm(q, p.T, None, None)
    assert jnp.array_equal(exact, jnp.matmul(q, p.T, preferred_element_type=jnp.int32))
    floats = q.astype(jnp.float8_e4m3fn), p.astype(jnp.float8_e4m3fn)
    made = cleave.jax.scaled_gemm(floats[0], floats[1].T, scale_a, scale_b, use_fast_accum=True)
    close(made, plain(floats[0].astype(jnp.float32), floats[1].T.astype(jnp.float32)) * scale_a * scale_b)


@majors
def test_groups_and_their_gradients(a_major: str, b_major: str) -> None:
    rows = sum(SIZES) + 3
    a, b = normal(rows, K) / 64, normal(len(SIZES), K, N, seed=1)

    def ours(a: jax.Array, b: jax.Array, offs: jax.Array) -> jax.Array:
        return cleave.jax.grouped_gemm(a, b, offs, out_dtype="float32", a_major=a_major, b_major=b_major)

    def of_plain(a: jax.Array, b: jax.Array, offs: jax.Array) -> jax.Array:
        bounds = zip([0, *OFFS[:-1]], OFFS, strict=True)
        return jnp.concatenate([*(plain(a[i:j], b[g]) for g, (i, j) in enumerate(bounds)), jnp.zeros((3, N))])

    for function in (lambda f: f, lambda f: jax.grad(lambda *x: (f(*x) ** 2).sum(), (0, 1))):
        close(jax.jit(function(ours))(a, b, jnp.asarray(OFFS)), function(of_plain)(a, b, OFFS))


# --- several GPUs ---


def mesh_of(axis: str) -> Any:
    if len(jax.devices()) < 2:
        pytest.skip("needs two GPUs")
    return jax.make_mesh((2,), (axis,), devices=jax.devices()[:2], axis_types=(jax.sharding.AxisType.Auto,))


@pytest.mark.parametrize("mode", ["auto", "parallel", "cluster", "stream_k", "serial"])
def test_shards_of_k(mode: str) -> None:
    """Each GPU's product of its part of K, their sum, and gradients through both; the bits are the same each time."""
    a, b = normal(M, K) / 64, normal(K, N, seed=1)

    def of_shards(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.psum(cleave.jax.gemm(a, b, split_k_mode=mode, out_dtype="float32"), "k")

    over = jax.jit(jax.shard_map(of_shards, mesh=mesh_of("k"), in_specs=(P(None, "k"), P("k")), out_specs=P()))
    made = over(a, b)
    close(made, plain(a, b))
    for _ in range(3):
        assert jnp.array_equal(over(a, b), made)
    gradients = jax.jit(jax.grad(lambda a, b: (over(a, b) ** 2).sum(), (0, 1)))(a, b)
    close(gradients, jax.grad(lambda a, b: (plain(a, b) ** 2).sum(), (0, 1))(a, b))


def test_shards_of_rows_share_a_weight() -> None:
    """Tokens in parts beside a weight that both GPUs have, whose gradient is the sum of theirs."""
    a, b = normal(M, K) / 64, normal(K, N, seed=1)
    over = jax.shard_map(cleave.jax.gemm, mesh=mesh_of("rows"), in_specs=(P("rows"), P()), out_specs=P("rows"))
    close(jax.jit(over)(a, b), plain(a, b))
    made = jax.jit(jax.grad(lambda a, b: (over(a, b).astype(jnp.float32) ** 2).sum(), (0, 1)))(a, b)
    close(made, jax.grad(lambda a, b: (plain(a, b) ** 2).sum(), (0, 1))(a, b))


def test_shards_of_experts_and_of_scaled_rows() -> None:
    rows = sum(SIZES)
    a, b = normal(rows, K) / 64, normal(len(SIZES), K, N, seed=1)
    by_columns = jax.shard_map(
        lambda a, b: cleave.jax.grouped_gemm(a, b, jnp.asarray(OFFS), out_dtype="float32"),
        mesh=mesh_of("n"), in_specs=(P(), P(None, None, "n")), out_specs=P(None, "n"),
    )  # fmt: skip
    bounds = zip([0, *OFFS[:-1]], OFFS, strict=True)
    close(jax.jit(by_columns)(a, b), jnp.concatenate([plain(a[i:j], b[g]) for g, (i, j) in enumerate(bounds)]))
    q, p = (jnp.round(10 * normal(*shape, dtype=jnp.float32)).astype(jnp.int8) for shape in ((M, K), (N, K)))
    scale_a, scale_b = 1 + jnp.arange(M, dtype=jnp.float32)[:, None] / M, jnp.full((1, N), 0.5)
    by_rows = jax.shard_map(
        cleave.jax.scaled_gemm,
        mesh=mesh_of("m"), in_specs=(P("m"), P(), P("m"), P()), out_specs=P("m"),
    )  # fmt: skip
    made = jax.jit(by_rows)(q, p.T, scale_a, scale_b)
    assert jnp.array_equal(made, jax.jit(cleave.jax.scaled_gemm)(q, p.T, scale_a, scale_b))
