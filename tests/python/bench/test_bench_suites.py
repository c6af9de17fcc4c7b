"""The benchmark's suites: what they ask for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bench import peers, suites
from bench.operations import expert_offsets
from bench.operations.products import conv, gemm
from cleave.testing import dtypes


@pytest.mark.parametrize("name", suites.names())
def test_suites_load(name):
    suite = suites.load(name)
    quick = suites.load(name, quick=True)
    assert suite.name == name
    assert suite.cases
    assert len(suite.cases) == len(set(suite.cases))
    assert len({case.title for case in suite.cases}) == len(suite.cases)
    assert 0 < len(quick.cases) <= len(suite.cases)
    assert set(quick.cases) <= set(suite.cases)
    assert set(suite.peers) <= set(peers.names())
    assert set(suite.best_of) <= set(suite.peers)
    assert all(group.title for group in suite.groups)
    assert all(len(group.headline) == 2 for group in suite.groups) == (suite.kind == "host")
    for case in suite.cases:
        assert case.bytes > 0
        if suite.operation is not expert_offsets:
            assert case.dtype in dtypes.DTYPES
        if suite.operation is conv:
            assert min(case.outputs) > 0
        if suite.operation is gemm:
            assert case.layout == "tn"


def shapes(name):
    return {(case.m, case.n, case.k) for case in suites.load(name).cases}


LAYERS = {
    (2112, 7168), (576, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168),
    (7168, 2048),
}  # fmt: skip


def layers(*tokens):
    return {(m, n, k) for m in tokens for n, k in LAYERS}


def squares(*sizes):
    return {(size, size, size) for size in sizes}


def test_the_suites_are_the_baselines_tables():
    every = squares(1024, 2048, 4096, 8192) | layers(1, 16, 64, 128, 4096)
    assert shapes("dense") == every
    assert shapes("fp8_row") == squares(4096, 8192) | layers(16, 64, 128, 4096)
    assert shapes("fp8_block") == squares(4096, 8192) | layers(1, 64, 128, 4096)
    assert len(shapes("int8")) == 7
    large_k = suites.load("large_k").cases
    assert len(large_k) == 7
    assert all(case.k >= 16 * max(case.m, case.n) for case in large_k)
    modes = suites.load("split_k_modes")
    assert modes.cases == large_k
    assert {mode for mode, _ in modes.splits} == {
        "none",
        "serial",
        "parallel",
        "cluster",
        "stream_k",
    }


def test_the_grouped_suites_are_the_baselines_tables():
    def grouped_shapes(name):
        return {(c.groups, c.tokens, c.n, c.k) for c in suites.load(name).cases}

    spreads = ((4, 8192), (8, 4096), (32, 256), (64, 64), (128, 16))
    layers = ((4096, 7168), (7168, 2048))
    every = {(groups, groups * mean, n, k) for groups, mean in spreads for n, k in layers}
    for name in ("grouped_fwd", "grouped_wgrad", "grouped_fp8_fwd", "grouped_fp8_wgrad"):
        assert grouped_shapes(name) == every
        assert {case.sizes for case in suites.load(name).cases} == {"varied"}
    assert (64, 4096, 1408, 2048) in grouped_shapes("grouped_loop")
    assert len(grouped_shapes("grouped_loop")) == 6
    skew = suites.load("grouped_skew").cases
    assert {(case.groups, case.form) for case in skew} == {
        (groups, form) for groups in (64, 256) for form in ("forward", "wgrad")
    }
    assert {case.sizes for case in skew} == {"zipf"}


def test_the_conv_suites_are_the_baselines_table():
    suite_of_kind = {"fprop": ["conv_fprop"], "dgrad": ["conv_dgrad", "conv_dgrad_unit"]}
    suite_of_kind["wgrad"] = ["conv_wgrad"]
    layers = {}
    for kind, names in suite_of_kind.items():
        cases = [case for name in names for case in suites.load(name).cases]
        assert {(case.kind, case.dtype) for case in cases} == {(kind, "float16")}
        layers[kind] = {replace(case, kind="fprop") for case in cases}
        assert len(layers[kind]) == 13
    assert layers["fprop"] == layers["dgrad"] == layers["wgrad"]
    strides = [case.stride for case in suites.load("conv_dgrad").cases]
    assert strides == [(2, 2)] * 10
    assert all(case.stride == (1, 1) for case in suites.load("conv_dgrad_unit").cases)


def test_the_division_suite_is_wide():
    cases = suites.load("division").cases
    assert len(cases) == len(set(cases)) >= 120
    assert {case.kind for case in cases} == {"dgrad"}
    for kernel in ("sm90", "portable"):
        networks = {replace(case, kernel=kernel) for case in suites.load("conv_dgrad").cases}
        assert networks < set(cases)
    assert {case.stride for case in cases} >= {(n, n) for n in (1, 2, 3, 4, 8)} | {(2, 1), (1, 2)}
    assert {case.filter_size for case in cases} >= {(n, n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 11)}
    assert {case.dilation[0] for case in cases} == {1, 2, 3}
    assert any(before != after for case in cases for before, after in case.padding)
    # One launch each: at most 64 classes.
    assert all(math.prod(case.stride) <= 64 for case in cases)


def test_the_scaled_suites_ask_for_what_the_peers_compute():
    assert all(c.use_fast_accum and c.scaling == "row" for c in suites.load("fp8_row").cases)
    assert {c.scaling for c in suites.load("fp8_block").cases} == {"block_128x128"}
    assert {c.result_dtype for c in suites.load("int8").cases} == {"bfloat16"}


def test_match_leaves_the_cases_with_the_text():
    found = suites.load("dense", match="64x2112")
    assert [case.title for case in found.cases] == ["64x2112x7168 bfloat16 tn"]
    assert suites.load("dense", match="no such").cases == []


def test_unknown_suites_are_refused():
    with pytest.raises(ValueError, match="no suite 'nothing'; there are batch_invariant, "):
        suites.load("nothing")
    made = {"name": "s", "kind": "odd", "title": "", "operation": "gemm", "groups": []}
    with pytest.raises(ValueError, match="kind 'odd' is not one of peers"):
        suites.parse(made)
    with pytest.raises(ValueError, match="operation 'sort' is not one of gemm, quantize, grouped"):
        suites.parse(made | {"kind": "host", "operation": "sort"})
