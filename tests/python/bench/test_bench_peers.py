"""Peers: what they serve, and that they compute it."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import pytest
from bench_rows import (
    suite_of,
)
from bench_stand_ins import (
    SMALL,
    TorchStandIn,
    grouped_cases,
)

from bench import contest, peers
from bench.operations.products import conv, gemm, grouped
from cleave.testing import arrays
from cleave.testing.case import GemmCase

DENSE_PEERS = {
    "cublas", "cublas_int8", "cublas_int8_eager", "cublas_tensorwise", "torch_blockwise",
    "torch_rowwise",
}  # fmt: skip


def test_peers_serve_what_they_can():
    found = {peer.name: peer for peer in peers.load(peers.names())[0]}
    if "cublas" not in found:
        pytest.skip("needs torch")
    dense = GemmCase(64, 64, 64)
    row_scaled = GemmCase(64, 64, 64, dtype="float8_e4m3fn", scaling="row", use_fast_accum=True)
    blocks = replace(row_scaled, scaling="block_128x128")
    integers = replace(row_scaled, dtype="int8", use_fast_accum=False)
    serving = {
        name: [case for case in (dense, row_scaled, blocks, integers) if peer.serves(case)]
        for name, peer in found.items()
        if name in DENSE_PEERS
    }
    assert serving == {
        "cublas": [dense],
        "cublas_int8": [integers],
        "cublas_int8_eager": [integers],
        "cublas_tensorwise": [row_scaled, blocks],
        "torch_blockwise": [blocks],
        "torch_rowwise": [row_scaled],
    }
    assert found["cublas_tensorwise"].serves(row_scaled) == replace(row_scaled, scaling="tensor")
    assert found["cublas_int8"].serves(integers) == GemmCase(64, 64, 64, dtype="int8")
    for peer in serving:
        assert not found[peer].serves(replace(serving[peer][0], activation="relu"))


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("cublas", GemmCase(64, 32, 128)),
        ("cublas_int8", GemmCase(64, 32, 128, dtype="int8", scaling="row")),
        ("cublas_int8_eager", GemmCase(64, 32, 128, dtype="int8", scaling="row")),
        ("torch_rowwise", GemmCase(64, 32, 128, dtype="float8_e4m3fn", scaling="row")),
        ("cublas_tensorwise", GemmCase(64, 32, 128, dtype="float8_e4m3fn", scaling="row")),
    ],
)
def test_peers_compute(name, case):
    pytest.importorskip("torch")
    library = arrays.TorchArrays("cpu")
    (peer,), _ = peers.load([name])
    served = peer.serves(case)
    operands = gemm.make_operands(library, served)
    calls = peer.calls(served, operands)
    try:
        next(iter(calls.values()))()
    except (RuntimeError, ValueError) as refusal:
        pytest.skip(peers.reason(refusal))
    assert gemm.errors(library, served, operands).acceptable
    for call in list(calls.values())[1:]:
        assert call().dtype == operands.out.dtype


def test_grouped_peers_serve_what_they_can():
    pytest.importorskip("torch")
    names = ["torch_grouped", "torch_grouped_rowwise", "cleave_bfloat16", "cleave_uniform"]
    found = {peer.name: peer for peer in peers.load(names)[0]}
    plain, rows, blocks = (
        grouped_cases(**options)
        for options in (
            {},
            {"dtype": "float8_e4m3fn", "scaling": "row", "sizes": "uniform"},
            {"dtype": "float8_e4m3fn", "scaling": "block_1x128", "sizes": "zipf"},
        )
    )
    every = [*plain, *rows, *blocks]
    serving = {name: [case for case in every if peer.serves(case)] for name, peer in found.items()}
    assert serving == {
        "torch_grouped": plain,
        "torch_grouped_rowwise": rows,
        "cleave_bfloat16": [*rows, *blocks],
        "cleave_uniform": [*plain, *blocks],
    }
    assert found["cleave_bfloat16"].serves(blocks[2]) == replace(plain[2], sizes="zipf")
    assert not found["torch_grouped"].serves(replace(plain[0], alignment=128))
    apart, full = (replace(rows[2], alignment=16, sizes=sizes, groups=2) for sizes in ((17, 16), (16, 32)))
    assert found["torch_grouped_rowwise"].serves(full) and not found["torch_grouped_rowwise"].serves(apart)


class RecordedDeepGemm(types.ModuleType):
    """Its signatures, and float64 products of what it is given."""

    def get_mn_major_tma_aligned_tensor(self, scale):
        return scale

    def m_grouped_bf16_gemm_nt_contiguous(self, a, b, out, groups):
        for group in range(len(b)):
            rows = groups == group
            out[rows] = (a[rows].double() @ b[group].double().T).to(out.dtype)

    def m_grouped_fp8_gemm_nt_contiguous(self, a, b, out, groups):
        (a, scale_a), (b, scale_b) = a, b
        a = a.double() * scale_a.repeat_interleave(128, 1)[:, : a.shape[1]]
        scale_b = scale_b.repeat_interleave(128, 1).repeat_interleave(128, 2)
        b = b.double() * scale_b[:, : b.shape[1], : b.shape[2]]
        self.m_grouped_bf16_gemm_nt_contiguous(a, b, out, groups)

    def k_grouped_bf16_gemm_tn_contiguous(self, a, b, d, ks_cpu, grouped_layout, c):
        assert c is d and grouped_layout.tolist() == ks_cpu and not any(k % 128 for k in ks_cpu)
        for own, of_a, of_b in zip(d, a.split(ks_cpu), b.split(ks_cpu), strict=True):
            own += (of_a.double().T @ of_b.double()).to(d.dtype)

    def k_grouped_fp8_gemm_nt_contiguous(self, a, b, d, ks_cpu, grouped_layout, c):
        def whole(values, scales):
            rows = len(scales)
            parts = values.double().split([rows * k for k in ks_cpu])
            return (torch.cat([x.view(rows, -1) for x in parts], 1) * scales.repeat_interleave(128, 1)).T

        torch = sys.modules["torch"]
        self.k_grouped_bf16_gemm_tn_contiguous(whole(*a), whole(*b), d, ks_cpu, grouped_layout, c)


@pytest.mark.parametrize(
    "options",
    [{}, {"dtype": "float8_e4m3fn", "scaling": "block_128x128"}],
    ids=["bfloat16", "float8_e4m3fn"],
)
def test_deepgemm_computes_padded_groups(short, monkeypatch, options):
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "deep_gemm", RecordedDeepGemm("deep_gemm"))
    monkeypatch.delitem(sys.modules, "bench.peers.deepgemm_grouped", raising=False)
    found, missing = peers.load(["deepgemm_grouped"])
    assert not missing
    case = grouped.Case(3, 600, 64, 160, **options)
    (made,) = contest.against_peers(TorchStandIn("cpu"), case, suite_of("peers", operation=grouped), found, 7)
    theirs = made["peers"]["deepgemm_grouped"]
    assert "aligned to 128" in theirs["case"]
    assert 0 < theirs["row_error"] < 0.02
    few = replace(case, tokens=150)
    assert found[0].serves(few) is None  # more rows between groups than in them
    monkeypatch.delitem(sys.modules, "bench.peers.deepgemm_grouped")


def test_cudnn_serves_what_it_can():
    pytest.importorskip("torch")
    (peer,), _ = peers.load(["cudnn"])
    volume = conv.Case(2, (4, 9, 8), 8, 16, 3, 2, 1, groups=2, dtype="bfloat16", kind="wgrad")
    assert all(peer.serves(case) is case for case in (*SMALL, volume))
    case = SMALL[0]
    for other in (
        replace(case, bias="row"),
        replace(case, dtype="int8"),
        replace(case, out_dtype="float32"),
        replace(case, padding=((0, 1), 1)),
        conv.Case(2, (9,), 8, 16, 3),
    ):
        assert peer.serves(other) is None


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"dilation": 2, "groups": 2, "dtype": "float32"},
        {"dtype": "float32", "size": (5, 6, 7)},  # of bfloat16, processors without such instructions round sums
    ],
    ids=["plain", "groups", "volume"],
)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.kind)
def test_cudnn_computes(case, options):
    pytest.importorskip("torch")
    one_per_axis = {"filter_size": 3, "stride": 2, "padding": 1, "dilation": 1}
    case = replace(case, **one_per_axis | options)
    library = arrays.TorchArrays("cpu")
    (peer,), _ = peers.load(["cudnn"])
    operands = conv.make_operands(library, case)
    given = operands.out
    (call,) = peer.calls(case, operands).values()
    call()
    assert operands.out is not given
    assert conv.errors(library, case, operands).acceptable


@pytest.mark.parametrize("options", [{}, {"dtype": "float8_e4m3fn", "scaling": "block_1x128"}], ids=["bf16", "fp8"])
def test_deepgemm_adds_weight_gradients(monkeypatch, options):
    """What ours make of the same operands, twice."""
    pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "deep_gemm", RecordedDeepGemm("deep_gemm"))
    monkeypatch.delitem(sys.modules, "bench.peers.deepgemm_k_grouped", raising=False)
    (peer,), missing = peers.load(["deepgemm_k_grouped"])
    case = grouped.Case(3, 600, 128, 256, form="wgrad", out_dtype="float32", accumulate=True, **options)
    served, library = peer.serves(case), arrays.TorchArrays("cpu")
    assert not missing and "aligned to 128" in served.title and "accumulated" in served.title
    for left_out in ({"accumulate": False}, {"tokens": 150}, {"n": 160}, {"k": 320}):
        assert peer.serves(replace(case, **left_out)) is None
    operands = grouped.make_operands(library, served)
    (call,) = peer.calls(served, operands).values()
    (ours,), _ = grouped.ours(library, served, [operands])
    for made in (call, ours):
        operands.out.zero_()
        made()
        assert grouped.errors(library, served, operands).acceptable
        once = operands.out.clone()
        made()
        assert (operands.out - 2 * once).abs().max() <= 1e-5 * once.abs().max()
    monkeypatch.delitem(sys.modules, "bench.peers.deepgemm_k_grouped")
