"""`cleave profile` on the CPU."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from array_libraries import library_for
from cli_calls import CONV, GROUPS, SMALL, run

from cleave.testing import conv, dense, grouped


def test_profile_writes_rows(capsys, tmp_path):
    csv_path, json_path = tmp_path / "rows.csv", tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "gemm", *SMALL, "--dtype", "fp16,fp32", "--layout", "tn,nt",
        "--activation", "gelu", "--bias", "column", "--split-k-mode", "none,serial",
        "--split-k-slices", "2,3", "--device", "cpu", "--iterations", "1",
        "--csv", str(csv_path), "--json", str(json_path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(json_path.read_text())
    assert len(rows) == 2 * 2 * 3
    assert all(row["verified"] for row in rows)
    assert all(row["us"] > 0 and row["tflops"] > 0 for row in rows)
    assert {row["chosen_mode"] for row in rows} == {"none", "serial"}
    with csv_path.open() as file:
        assert [row["layout"] for row in csv.DictReader(file)] == [row["layout"] for row in rows]


def test_profile_scaled(capsys, tmp_path):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "gemm", "--m", "48", "--n", "40", "--k", "300", "--dtype", "int8",
        "--scaling", "none,tensor,row,block_1x128,block_128x128", "--layout", "tn,nt",
        "--out-dtype", "fp32,i8", "--device", "cpu", "--iterations", "1", "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 5 * 2 * 2
    assert all(row["verified"] for row in rows)
    assert all(row["max_row_error"] < 0.02 for row in rows)


def test_profile_8_bit_floats(capsys, tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "gemm", "--m", "48", "--n", "40", "--k", "300", "--dtype", "e4m3,e5m2",
        "--scaling", "none,row,block_128x128", "--use-fast-accum", "no,yes", "--out-dtype",
        "bf16,e4m3", "--bias", "none,row", "--device", "cpu", "--iterations", "1", "--json",
        str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 2 * 3 * 2 * 2 * 2
    assert all(row["verified"] for row in rows)
    assert {row["use_fast_accum"] for row in rows} == {False, True}


FOUND = ["--out-scale", "block_1x128", "--scale-major", "k,mn", "--use-ue8m0", "no,yes"]


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_profile_found_scales(capsys, tmp_path, dtype):
    library_for(dtype)
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "gemm", "--m", "48", "--n", "200", "--k", "300", "--batch", "1,2", "--dtype",
        f"fp32,{dtype}", "--activation", "none,swiglu", "--out-dtype", dtype, *FOUND, "--device", "cpu",
        "--iterations", "1", "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 2 * 2 * 2 * 2 * 2
    assert all(row["verified"] for row in rows)
    assert out.count("out_scale block_1x128 mn-major ue8m0") == 8


def test_profile_found_scales_of_groups(capsys, tmp_path):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "grouped", "--sizes", "130,0,1,60", "--n", "200", "--k", "300", "--form",
        "forward,dgrad,wgrad", "--dtype", "fp16,i8", "--out-dtype", "int8", *FOUND, "--device", "cpu", "--iterations",
        "1", "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 3 * 2 * 2 * 2
    assert all(row["verified"] for row in rows)


@pytest.mark.parametrize("operation", ["gemm", "grouped"])
def test_profile_what_is_asked_of_kernels(capsys, operation):
    options = ("--deterministic", "yes,batch_invariant", "--kernel", "auto,sm90", "--device", "cpu")
    sizes = SMALL if operation == "gemm" else GROUPS
    status, out, _ = run(capsys, "profile", operation, *sizes, *options, "--iterations", "1")
    assert status == 1 and out.count(" yes") == 2
    assert out.count("kernel sm90, auto: kernel is sm90, but the device is the CPU") == 2


@pytest.mark.parametrize("operation", ["gemm", "grouped"])
def test_profile_packed_weights(capsys, tmp_path, operation):
    library_for("bfloat16")
    path = tmp_path / "rows.json"
    sizes = ("--m", "3,16") if operation == "gemm" else ("--sizes", "20,0,1,47")
    status, out, _ = run(
        capsys, "profile", operation, *sizes, "--n", "70", "--k", "256", "--weights", "none,int4,mxfp4",
        "--group-size", "32,auto", "--zeros", "no", "--bias", "none,row", "--device", "cpu", "--iterations", "1",
        "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == (2 if operation == "gemm" else 1) * (1 + 2 + 2) * 2
    assert all(row["verified"] for row in rows)
    assert {row["group_size"] for row in rows if row["weights"] == "none"} == {None}
    assert out.count("B int4 32") == out.count("B int4 128") > 0
    options = ("--weights", "nvfp4,int4", "--zeros", "yes", "--group-size", "16,rows", "--device", "cpu")
    status, out, _ = run(capsys, "profile", operation, *sizes, "--n", "70", "--k", "256", *options)
    assert status == 1 and "B int4 256 zeros" in out
    assert 'group_size is 16; in format "int4" it is' in out


def test_an_order_of_scales_is_of_found_ones_alone(capsys, tmp_path):
    path = tmp_path / "rows.json"
    options = ("--out-dtype", "int8", "--out-scale", "none,block_1x128", "--scale-major", "k,mn", "--device", "cpu")
    status, out, _ = run(capsys, "profile", "gemm", *SMALL, *options, "--iterations", "1", "--json", str(path))
    assert status == 0, out
    rows = [(row["out_scale"], row["scale_major"]) for row in json.loads(path.read_text())]
    assert rows == [(None, "k"), ("block_1x128", "k"), ("block_1x128", "mn")]


def test_found_scales_are_refused_by_name(capsys, tmp_path):
    status, out, _ = run(capsys, "profile", "gemm", *SMALL, "--out-scale", "block_1x128", "--device", "cpu")
    assert status == 1 and "out_scale is given, but d is float16" in out
    status, out, _ = run(capsys, "profile", "gemm", *SMALL, "--use-ue8m0", "yes", "--device", "cpu")
    assert status == 1 and "use_ue8m0" in out
    with pytest.raises(SystemExit):
        run(capsys, "profile", "conv", *CONV, "--out-scale", "block_1x128")
    assert "unrecognized arguments: --out-scale" in capsys.readouterr().err
    emitted = ("--device", "h100", "--name", "operation", "--sourcedir", str(tmp_path / "operation"))
    scales = ("--out-dtype", "int8", "--out-scale", "block_1x128")
    status, _, err = run(capsys, "emit", "cpp", "gemm", "--m", "64", "--n", "256", "--k", "512", *scales, *emitted)
    assert status == 1 and "out_scale, which emitted projects do not serve" in err


def test_profile_exact_integers(capsys, tmp_path):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "gemm", *SMALL, "--dtype", "i8", "--device", "cpu", "--iterations", "1",
        "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    (row,) = json.loads(path.read_text())
    assert row["max_relative_error"] == 0


def test_profile_to_standard_output_leaves_it_clean(capsys):
    status, out, err = run(
        capsys, "profile", "gemm", *SMALL, "--device", "cpu", "--iterations", "1", "--no-verify",
        "--json", "-",
    )  # fmt: skip
    assert status == 0
    (row,) = json.loads(out)
    assert row["verified"] is None
    assert row["kernel"] in err


def test_profile_reports_refused_combinations_and_goes_on(capsys):
    status, out, _ = run(
        capsys, "profile", "gemm", "--m", "16", "--n", "16", "--k", "4", "--split-k-mode",
        "cluster", "--split-k-slices", "17,1", "--device", "cpu", "--iterations", "1",
    )  # fmt: skip
    assert status == 1
    assert "split_k_slices" in out
    assert " yes" in out


def test_profile_detects_wrong_results(capsys, monkeypatch):
    monkeypatch.setattr(dense, "run", lambda plan, operands, stream: operands.out.fill(0))
    status, out, _ = run(capsys, "profile", "gemm", *SMALL, "--device", "cpu", "--iterations", "1")
    assert status == 1
    assert "WRONG RESULT" in out


def test_profile_groups(capsys, tmp_path):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "grouped", *GROUPS, "--form", "forward,dgrad,wgrad", "--dtype",
        "fp16,fp32", "--split-k-mode", "auto,serial", "--device", "cpu", "--iterations", "1",
        "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 3 * 2 * 2
    assert all(row["verified"] and row["us"] > 0 and row["tflops"] > 0 for row in rows)
    assert {tuple(row["sizes"]) for row in rows} == {(20, 0, 1, 47)}
    assert "wgrad 68x40x72 in 4 given groups float32 nt" in out


def test_profile_swiglu_groups(capsys):
    status, out, _ = run(
        capsys, "profile", "grouped", *GROUPS, "--activation", "swiglu", "--bias", "none,row",
        "--device", "cpu", "--iterations", "1",
    )  # fmt: skip
    assert status == 0, out
    assert out.count(" swiglu") == 2


def test_profile_spread_groups(capsys, tmp_path):
    path = tmp_path / "rows.csv"
    status, out, _ = run(
        capsys, "profile", "grouped", "--groups", "3,70", "--tokens", "100", "--sizes",
        "uniform,varied,zipf", "--n", "24", "--k", "40", "--bias", "none,row", "--activation",
        "silu", "--device", "cpu", "--iterations", "1", "--csv", str(path),
    )  # fmt: skip
    assert status == 0, out
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 2
    assert {row["groups"] for row in rows} == {"3", "70"}


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_profile_scaled_groups(capsys, tmp_path, dtype):
    library_for(dtype)
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "grouped", "--sizes", "130,0,1,60", "--n", "40", "--k", "300", "--form",
        "forward,dgrad,wgrad", "--dtype", dtype, "--scaling", "none,row,block_1x128", "--out-dtype",
        "fp32", "--device", "cpu", "--iterations", "1", "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 3 * 3
    assert all(row["verified"] for row in rows)


def test_sizes_that_contradict_are_refused(capsys):
    for option in ("--groups", "--tokens"):
        status, _, err = run(capsys, "profile", "grouped", *GROUPS, option, "5", "--device", "cpu")
        assert status == 1
        assert option in err
    status, out, _ = run(
        capsys, "profile", "grouped", *GROUPS, "--groups", "4", "--device", "cpu", "--iterations",
        "1",
    )  # fmt: skip
    assert status == 0, out


def test_profile_detects_a_wrong_group(capsys, monkeypatch):
    def leave_one_out(plan, operands, stream):
        operands.out[...] = 0

    monkeypatch.setattr(grouped, "run", leave_one_out)
    status, out, _ = run(capsys, "profile", "grouped", *GROUPS, "--device", "cpu", "--iterations", "1")
    assert status == 1
    assert "WRONG RESULT" in out


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_profile_convolutions(capsys, tmp_path, dtype):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--kind", "fprop,dgrad,wgrad", "--groups", "1,2",
        "--dilation", "1,2", "--division", "auto,plain", "--dtype", dtype, "--device", "cpu",
        "--iterations", "1", "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 3 * 2 * 2 * 2
    assert all(row["verified"] and row["us"] > 0 and row["tflops"] > 0 for row in rows)
    assert f"dgrad 2x9x7x8 16x3x3 stride 2 pad 1 dilation 2 in 2 groups {dtype}" in out


@pytest.mark.parametrize("size", ["17", "5x6x7"])
def test_profile_lines_and_volumes(capsys, tmp_path, size):
    path = tmp_path / "rows.csv"
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--size", size, "--kind", "fprop,dgrad,wgrad",
        "--split-k-mode", "auto,serial,parallel", "--device", "cpu", "--iterations", "1", "--csv",
        str(path),
    )  # fmt: skip
    assert status == 0, out
    with path.open() as file:
        assert [row["verified"] for row in csv.DictReader(file)] == ["True"] * 9


def test_profile_convolutions_with_everything(capsys):
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--padding", "1,0-1x2,2x1-0", "--stride", "1,2x3",
        "--kind", "fprop,dgrad", "--bias", "none,row", "--activation", "none,silu", "--out-dtype",
        "fp32", "--device", "cpu", "--iterations", "1",
    )  # fmt: skip
    assert status == 0, out
    assert out.count(" yes") == 3 * 2 * 2 * 2 * 2


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_profile_scaled_convolutions(capsys, tmp_path, dtype):
    library_for("bfloat16" if dtype == "int8" else dtype)  # of results, where nothing else is asked for
    path = tmp_path / "rows.json"
    fast = "no" if dtype == "int8" else "no,yes"
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--groups", "1,2", "--dtype", dtype, "--scaling", "none,tensor,row",
        "--bias", "none,row", "--activation", "none,silu", "--out-dtype", f"fp32,{dtype}", "--use-fast-accum", fast,
        "--device", "cpu", "--iterations", "1", "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == 2 * 3 * 2 * 2 * 2 * (1 if dtype == "int8" else 2)
    assert all(row["verified"] for row in rows)
    assert f"in 2 groups {dtype} scales row to {dtype} bias silu" in out


def test_profile_refuses_scaled_gradients(capsys):
    library_for("bfloat16")
    options = ("--dtype", "i8", "--scaling", "row", "--kind", "dgrad,wgrad", "--device", "cpu")
    status, out, _ = run(capsys, "profile", "conv", *CONV, *options)
    assert status == 1 and out.count("grad_output is int8; it must be float16") == 2


@pytest.mark.parametrize(
    "options",
    [
        ["gemm", *SMALL, "--scaling", "tensor,row,block_1x128,block_128x128"],
        ["grouped", *GROUPS, "--form", "forward,dgrad,wgrad", "--scaling", "row,block_1x128"],
        ["conv", *CONV, "--scaling", "tensor,row"],
    ],
    ids=lambda it: it[0],
)
def test_profile_refuses_scales_of_floats(capsys, options):
    status, out, _ = run(capsys, "profile", *options, "--dtype", "fp16", "--device", "cpu")
    assert status == 1
    assert all("scales are for 8-bit operands" in line for line in out.splitlines())


def test_scales_of_convolutions_count(capsys, monkeypatch):
    def without_scales(plan, operands, stream):
        scales = {"scale_a": operands.scales["scale_a"], "scale_b": np.ones_like(operands.scales["scale_b"])}
        plan.run(*operands.inputs.values(), out=operands.out, **scales)

    monkeypatch.setattr(conv, "run", without_scales)
    options = ("--dtype", "i8", "--scaling", "row", "--out-dtype", "fp32", "--device", "cpu", "--iterations", "1")
    status, out, _ = run(capsys, "profile", "conv", *CONV, *options)
    assert status == 1 and "WRONG RESULT" in out


def test_profile_integer_convolutions_are_exact(capsys, tmp_path):
    path = tmp_path / "rows.json"
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--dtype", "i8", "--device", "cpu", "--iterations", "1",
        "--json", str(path),
    )  # fmt: skip
    assert status == 0, out
    (row,) = json.loads(path.read_text())
    assert (row["max_relative_error"], row["max_row_error"]) == (0, 0)


def test_profile_reports_refused_convolutions_and_goes_on(capsys):
    status, out, _ = run(
        capsys, "profile", "conv", *CONV, "--padding", "0,1", "--filter-size", "8", "--device",
        "cpu", "--iterations", "1",
    )  # fmt: skip
    assert status == 1
    assert "size zero" in out
    assert " yes" in out
    status, _, err = run(capsys, "profile", "conv", *CONV, "--stride", "1x2x3", "--device", "cpu")
    assert status == 1
    assert "stride has 3 values" in err


def test_profile_detects_a_wrong_convolution(capsys, monkeypatch):
    monkeypatch.setattr(conv, "run", lambda plan, operands, stream: operands.out.fill(0))
    status, out, _ = run(capsys, "profile", "conv", *CONV, "--device", "cpu", "--iterations", "1")
    assert status == 1
    assert "WRONG RESULT" in out
