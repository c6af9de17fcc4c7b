"""cleave.grouped_gemm on the CPU backend against NumPy in float64, group by group: drawn problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gemm_reference
import numpy as np
from gemm_reference import spread
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies_groups import BOUNDS, Groups, groups
from strategies_matrices import CANARY, DTYPES, FLOATS, random_matrix

import cleave
from cleave._epilogue.activations import GATED

# What group g's scaled operands are multiplied by.
Factors = Callable[[int], tuple[np.ndarray, np.ndarray]]


@dataclass
class Form:
    """What is grouped, and the sizes of D, of which the grouped one counts all groups."""

    dimension: str
    masked: bool
    groups: Groups
    m: int
    n: int
    k: int
    b_columns: int  # 2 n under swiglu

    def of(self, g: int) -> dict[str, Any]:
        """Where group g's part of the operands and of D is."""
        cut = slice(*self.groups.ranges[g])
        everything = slice(None)
        a = {"m": cut, "n": g, "k": (everything, cut)}[self.dimension]
        b = {"m": g, "n": (everything, cut), "k": cut}[self.dimension]
        d = {"m": cut, "n": (everything, cut), "k": g}[self.dimension]
        return {"a": a, "b": b, "d": (g, slice(cut.stop - cut.start)) if self.masked else d}

    @property
    def d_shape(self) -> tuple[int, ...]:
        if self.masked:
            return (self.groups.count, self.m // self.groups.count, self.n)
        return (self.groups.count, self.m, self.n) if self.dimension == "k" else (self.m, self.n)

    def stacked(self, matrix: np.ndarray) -> np.ndarray:
        """One matrix for each group, if it is masked; a view."""
        if not self.masked:
            return matrix
        count = self.groups.count
        return matrix.reshape(count, self.m // count, matrix.shape[-1])


@st.composite
def forms(draw, swiglu: bool) -> Form:
    masked = draw(st.integers(0, 4)) == 0
    dimension = "m" if masked or swiglu else draw(st.sampled_from("mnk"))
    cut = draw(groups(("counts",) if masked else BOUNDS))
    sizes = st.one_of(st.integers(0, 9), st.integers(0, 70), st.sampled_from([64, 128, 129]))
    size = {name: draw(sizes) for name in "mnk"} | {dimension: cut.extent}
    if masked:
        size["m"] = cut.count * cut.keywords.pop("alignment")
    return Form(dimension, masked, cut, **size, b_columns=size["n"] * (2 if swiglu else 1))


def random_scales(rng, *shape: int) -> np.ndarray:
    return rng.uniform(-0.5, 2.0, shape).astype(np.float32)


@st.composite
def vectors_of_scales(draw, rng, form: Form) -> tuple[dict[str, np.ndarray], Factors]:
    count = form.groups.count
    by_group = {"a": form.dimension != "m", "b": form.dimension != "n"}
    lines = {"a": form.m, "b": form.b_columns}
    values, given = {}, {}
    for name, own in by_group.items():
        line = draw(st.sampled_from([lines[name], 1]))
        values[name] = random_scales(rng, *((count, line) if own else (line,)))
        shapes = [values[name].shape]
        if own:
            shapes.append((count, line, 1) if name == "a" else (count, 1, line))
        else:
            shapes.append((line, 1) if name == "a" else (1, line))
        if form.masked and name == "a" and line == form.m:
            shapes = [(count, line // count), (count, line // count, 1)]
        given[f"scale_{name}"] = values[name].reshape(draw(st.sampled_from(shapes)))

    def factors(g: int) -> tuple[np.ndarray, np.ndarray]:
        a, b = (values[name][g] if by_group[name] else values[name] for name in "ab")
        cut = slice(*form.groups.ranges[g])
        a = a[cut] if form.dimension == "m" and a.size > 1 else a
        b = b[cut] if form.dimension == "n" and b.size > 1 else b
        return a[:, None], b[None, :]

    return given, factors


@st.composite
def blocks_of_scales(draw, rng, form: Form) -> tuple[dict[str, np.ndarray], Factors]:
    count, ks = form.groups.count, -(-form.k // 128)
    rows = {"a": form.m, "b": form.b_columns}
    blocks = {name: draw(st.sampled_from([size, -(-size // 128)])) for name, size in rows.items()}
    cut_rows = {"m": "a", "n": "b"}.get(form.dimension)
    if cut_rows:
        blocks[cut_rows] = rows[cut_rows]
    lead = {name: (count,) if {"a": "n", "b": "m"}[name] == form.dimension else () for name in "ab"}
    a = random_scales(rng, *lead["a"], blocks["a"], ks)
    b = random_scales(rng, *lead["b"], ks, blocks["b"])
    spread_a = spread(a, form.m, form.k)
    spread_b = spread(b, form.k, form.b_columns)
    if form.masked:
        a = a.reshape(count, form.m // count, ks)

    def factors(g: int) -> tuple[np.ndarray, np.ndarray]:
        place = form.of(g)
        return spread_a[place["a"]], spread_b[place["b"]]

    return {"scale_a": a, "scale_b": b}, factors


@dataclass
class Problem:
    form: Form
    a: np.ndarray
    b: np.ndarray
    options: dict[str, Any]
    factors: Factors | None
    frame: np.ndarray | None  # the buffer that `out` is a view of

    def expected(self, g: int, c: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, dict]:
        """Group g's real operands and its epilogue."""
        place, form = self.form.of(g), self.form
        a, b = (x[place[name]].astype(np.float64) for x, name in ((self.a, "a"), (self.b, "b")))
        if self.factors:
            factor_a, factor_b = self.factors(g)
            a, b = a * factor_a, b * factor_b
        names = ("alpha", "beta", "activation")
        epilogue = {name: self.options[name] for name in names if name in self.options}
        if c is not None:
            epilogue["c"] = c[place["d"]].astype(np.float64)
        bias = self.options.get("bias")
        if bias is not None:
            cut = slice(*form.groups.ranges[g])
            length = form.m if form.dimension == "n" else form.b_columns
            if bias.ndim == 2 and bias.shape == (form.groups.count, length):
                bias = bias[g][:, None] if form.dimension == "n" else bias[g]
            elif form.dimension == "m" and bias.shape == (form.m, 1):
                bias = bias[cut]
            elif form.dimension == "n" and bias.shape[-1] == form.n:
                bias = bias[..., cut]
            epilogue["bias"] = bias.astype(np.float64)
        return a, b, epilogue


@st.composite
def problems(draw) -> Problem:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    swiglu = draw(st.integers(0, 3)) == 0
    form = draw(forms(swiglu))
    count = form.groups.count
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    lead_a, lead_b = (count if form.dimension == own else None for own in "nm")
    a = random_matrix(draw, rng, dtype, lead_a, form.m, form.k)[0]
    b = random_matrix(draw, rng, dtype, lead_b, form.k, form.b_columns)[0]
    options: dict[str, Any] = dict(form.groups.keywords)
    factors = None
    if np.dtype(DTYPES[dtype]).itemsize == 1:
        aligned = form.groups.keywords.get("alignment", 1) % 128 == 0
        may_have_blocks = form.dimension != "k" or aligned
        kinds = [vectors_of_scales, blocks_of_scales][: 2 if may_have_blocks else 1]
        given, factors = draw(draw(st.sampled_from(kinds))(rng, form))
        options |= given

    out_dtype = options["out_dtype"] = draw(st.sampled_from(FLOATS))
    frame = None
    if draw(st.booleans()):
        if form.masked or swiglu:
            columns = form.n + draw(st.integers(0, 2))
            frame = np.empty((*form.d_shape[:-1], columns), DTYPES[out_dtype])
            out = frame[..., : form.n]
        else:
            out, frame = random_matrix(draw, rng, out_dtype, *form.d_shape)
        frame[...] = CANARY
        options["out"] = out
    like = options.get("out", np.empty(form.d_shape, DTYPES[out_dtype]))
    c = draw(st.sampled_from(["no C", "C", "C is D", "unread C"])) if not swiglu else "no C"
    if c != "no C":
        options["c"] = np.empty_like(like)
        if c == "C is D" and frame is not None:
            options["c"] = like
        options["c"][...] = np.round(rng.standard_normal(form.d_shape) * 4)
        options["beta"] = draw(st.sampled_from([1.0, -0.5]))
        if c == "unread C":
            options["c"][...] = np.nan
            options["beta"] = 0.0
    across = (count, form.m if form.dimension == "n" else form.b_columns)
    shapes = [across, (form.b_columns,), (1, form.b_columns), (form.m, 1)]
    shape = draw(st.sampled_from([None, None, *shapes]))
    # A bias for each group has the same shape as one for all rows only where there is little of it.
    if shape is not None and (shape is across or shapes.count(shape) == 1):
        options["bias"] = rng.standard_normal(shape).astype(DTYPES[draw(st.sampled_from(FLOATS))])
    if draw(st.booleans()):
        options["alpha"] = draw(st.sampled_from([0.25, -2.0]))
    coarse = "scale_b" in options and options["scale_b"].shape[-1:] != (form.b_columns,)
    gates = GATED[:1] if coarse else GATED  # scales of 128 columns are of gates or of ups
    options["activation"] = draw(st.sampled_from(gates if swiglu else gemm_reference.ACTIVATIONS))
    if form.dimension != "k":
        options["zero_rest"] = draw(st.sampled_from([None, True, False]))
    options["check_offsets"] = draw(st.booleans())
    options["split_k_mode"] = mode = draw(st.sampled_from(gemm_reference.MODES))
    if mode != "none" and form.k > 0 and draw(st.booleans()):
        options["split_k_slices"] = draw(st.integers(1, min(form.k, 16)))
    return Problem(form, a, b, options, factors, frame)


@settings(max_examples=400)
@given(problems())
def test_against_numpy(problem: Problem) -> None:
    form, options = problem.form, problem.options
    a = form.stacked(problem.a)
    out, c = options.get("out"), options.get("c")
    before = None if out is None else np.array(out)
    c = None if c is None or options["beta"] == 0 else np.array(c)

    result = cleave.grouped_gemm(a, problem.b, **options)
    assert result.shape == form.d_shape
    if out is not None:
        assert result is out

    belongs = np.zeros(form.d_shape, bool)
    for g in range(form.groups.count):
        place = form.of(g)["d"]
        belongs[place] = True
        real_a, real_b, epilogue = problem.expected(g, c)
        gemm_reference.assert_close(result[place].astype(np.float64), options["out_dtype"], real_a, real_b, **epilogue)
    zeroed = options.get("zero_rest")
    if zeroed is None:
        zeroed = out is None
    if zeroed:
        assert (result[~belongs] == 0).all()
    elif out is not None:
        assert result[~belongs].tobytes() == before[~belongs].tobytes()

    if c is None:
        once = result[belongs].tobytes()
        assert cleave.grouped_gemm(a, problem.b, **options)[belongs].tobytes() == once
    if out is not None:
        out[...] = CANARY
        assert (problem.frame == CANARY).all()
