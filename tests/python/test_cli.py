"""The `cleave` command: option values, the cases they span, and every command on the CPU."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math

import numpy as np
import pytest

import cleave
from cleave import cli
from cleave.cli import arrays, case, compile, explain, measure, values
from cleave.cli.console import Console, format_bytes, format_cell
from cleave.cli.errors import CommandError

SMALL = ["--m", "48", "--n", "40", "--k", "200"]


# Option values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128", [128]),
        ("128,256", [128, 256]),
        ("1024:4096:1024", [1024, 2048, 3072, 4096]),
        ("1:10:4", [1, 5, 9]),
        ("1024:8192:*2", [1024, 2048, 4096, 8192]),
        ("3:3:1", [3]),
        ("1,4:16:*2,1", [1, 4, 8, 16]),
    ],
)
def test_integers(text, expected):
    assert values.integers(0)(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "x", "1,", "1:2", "1:2:0", "2:1:1", "1:8:*1", "0:8:*2", "1:2:3:4", "-1", "1:99999:1"],
)
def test_integers_refuses(text):
    with pytest.raises(argparse.ArgumentTypeError):
        values.integers(0)(text)


def test_slices_and_words():
    assert values.slices("auto,2:8:*2") == [None, 2, 4, 8]
    assert values.words(values.DTYPES)("fp16,float16,bf16") == ["float16", "bfloat16"]
    with pytest.raises(argparse.ArgumentTypeError, match="'int8' is not one of float16"):
        values.words(values.DTYPES)("int8")
    with pytest.raises(argparse.ArgumentTypeError):
        values.slices("0")


def test_device():
    assert values.device("cuda") == "cuda:0"
    assert values.device("cuda:3") == "cuda:3"
    for text in ("gpu", "cuda:", "cuda:x", "cpu:0", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            values.device(text)


# Cases


def test_product_is_cartesian_and_does_not_repeat_unsplit_cases():
    cases = list(
        case.product(
            {
                "m": [1, 2],
                "n": [3],
                "k": [4],
                "split_k_mode": ["none", "serial"],
                "split_k_slices": [2, 4],
            }
        )
    )
    assert [(c.m, c.split_k_mode, c.split_k_slices) for c in cases] == [
        (1, "none", None), (1, "serial", 2), (1, "serial", 4),
        (2, "none", None), (2, "serial", 2), (2, "serial", 4),
    ]  # fmt: skip


def test_case_counts():
    gemm = case.GemmCase(2, 3, 5, batch=7, dtype="float16", out_dtype="float32", bias="row")
    assert gemm.flops == 2 * 2 * 3 * 5 * 7
    assert gemm.bytes == (7 * (2 * 5 + 5 * 3) + 3) * 2 + 7 * 2 * 3 * 4
    assert gemm.title == "7 of 2x3x5 float16 tn to float32 row bias"


# Operands, verification and timing


@pytest.mark.parametrize("layout", values.LAYOUTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_operands_have_the_layout(layout, batch):
    gemm = case.GemmCase(4, 6, 8, batch=batch, dtype="float32", layout=layout)
    operands = measure.make_operands(arrays.NumpyArrays(), gemm)
    lead = (batch,) if batch > 1 else ()
    assert operands.a.shape == (*lead, 4, 8)
    assert operands.b.shape == (*lead, 8, 6)
    assert (operands.a.strides[-1] == 4) == (layout[0] == "t")
    assert (operands.b.strides[-1] == 4) == (layout[1] == "t")
    assert np.isnan(operands.out).all()


@pytest.mark.parametrize("activation", values.ACTIVATIONS)
def test_reference_activations(activation):
    library = arrays.NumpyArrays()
    x = np.linspace(-4, 4, 33)
    scalar = {
        "none": lambda v: v,
        "relu": lambda v: max(v, 0.0),
        "gelu": lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))),
        "gelu_tanh": lambda v: (
            v * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
        ),
        "silu": lambda v: v / (1 + math.exp(-v)),
    }[activation]
    operands = measure.Operands(a=x[:, None], b=np.ones((1, 1)), bias=None, out=None)
    gemm = case.GemmCase(33, 1, 1, dtype="float32", activation=activation)
    expected = [[scalar(float(v))] for v in x]
    np.testing.assert_allclose(measure.reference(library, gemm, operands), expected, atol=1e-15)


def test_errors_are_relative_to_the_reference():
    errors = measure.compare(arrays.NumpyArrays(), np.array([1.0, 4.5]), np.array([1.0, 4.0]))
    assert errors.max_absolute == 0.5
    assert errors.max_relative == 0.125
    assert errors.rms_relative == pytest.approx(0.5 / math.sqrt(17))


def test_poison_and_wrong_elements_are_never_acceptable():
    library, gemm = arrays.NumpyArrays(), case.GemmCase(64, 64, 64, dtype="float16")
    operands = measure.make_operands(library, gemm)
    expected = measure.reference(library, gemm, operands)
    right = expected.astype(np.float16)
    assert measure.compare(library, right, expected).acceptable(gemm)
    for wrong in (math.nan, math.inf, 0.5):
        damaged = right.copy()
        damaged[63, 63] += wrong
        assert not measure.compare(library, damaged, expected).acceptable(gemm)


def test_interleaved_alternates_and_takes_medians():
    order = []

    class Graph:
        def __init__(self, name, times):
            self.name, self.times = name, iter(times)

        def sample(self):
            order.append(self.name)
            return next(self.times)

    # The first sample of each is a warm-up and does not count.
    medians = measure.interleaved([Graph("a", [99, 1, 5, 3]), Graph("b", [99, 2, 2, 8])], 3)
    assert medians == [3, 2]
    assert "".join(order) == "ababbaab"


def test_host_time_skips_the_warm_up_but_not_the_only_call():
    calls = []
    assert measure.host_microseconds(lambda: calls.append(1), 3) < 1e5
    assert len(calls) == 4
    measure.host_microseconds(lambda: calls.append(1), 3, budget_s=0.0)
    assert len(calls) == 5


def test_operand_sets_exceed_the_cache():
    assert measure.set_count(8_000_000) == 25
    assert measure.set_count(10**9) == 2
    assert measure.set_count(0) > 1


def test_select_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(arrays, "_importable", lambda name: False)
    with pytest.raises(CommandError, match="install torch"):
        arrays.select("cpu", {"bfloat16"})
    monkeypatch.setattr(cleave, "device_count", lambda: 1)
    with pytest.raises(CommandError, match="torch with CUDA or CuPy"):
        arrays.select("cuda:0", {"float16"})
    with pytest.raises(CommandError, match="there is no cuda:1: cleave sees 1 GPUs"):
        arrays.select("cuda:1", {"float16"})
    with pytest.raises(CommandError, match="planning target"):
        arrays.select("h100", {"float16"})


# Output


def test_plain_tables_align():
    stream = io.StringIO()
    Console(stream).table(("name", "n"), [("a", 1), ("long name", 1000), ("none", None)])
    assert stream.getvalue() == (
        "name          n\n---------  ----\na             1\nlong name  1000\nnone          -\n"
    )


def test_formats():
    assert [format_cell(v) for v in (None, True, 12, 12.3456, 123456.7, 0.000123, 0.0)] == [
        "-", "yes", "12", "12.35", "123457", "1.2e-04", "0.000",
    ]  # fmt: skip
    assert [format_bytes(n) for n in (0, 1023, 1536, 3 << 20, 5 << 30)] == [
        "0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.0 GiB",
    ]  # fmt: skip


# Commands


def run(capsys, *arguments):
    status = cli.main(list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["bogus"],
        ["profile", "gemm"],
        ["profile", "gemm", *SMALL, "--bogus"],
        ["profile", "gemm", *SMALL, "--dtype", "int8"],
        ["profile", "gemm", *SMALL, "--iterations", "0"],
        ["profile", "gemm", *SMALL, "--lay", "tn"],
        ["compile", "--all", "--arch", "sm_80"],
        ["compile", "--arch", "sm_70"],
        ["cache", "rm"],
    ],
)
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"cleave {cleave.__version__}\n"


def test_info(capsys):
    status, out, _ = run(capsys, "info")
    assert status == 0
    for word in ("GPUs", "NVRTC", "kernel cache", "CPU backend", "product on cpu"):
        assert word in out


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
        capsys, "profile", "gemm", "--m", "16", "--n", "16", "--k", "4", "--split-k-mode", "serial",
        "--split-k-slices", "5,1", "--device", "cpu", "--iterations", "1",
    )  # fmt: skip
    assert status == 1
    assert "split_k_slices" in out
    assert " yes" in out


def test_profile_detects_wrong_results(capsys, monkeypatch):
    monkeypatch.setattr(measure, "run", lambda plan, operands, stream: operands.out.fill(0))
    status, out, _ = run(capsys, "profile", "gemm", *SMALL, "--device", "cpu", "--iterations", "1")
    assert status == 1
    assert "WRONG RESULT" in out


def test_explain_without_a_gpu(capsys):
    status, out, _ = run(
        capsys, "explain", "gemm", "--m", "128", "--n", "128", "--k", "16384", "--device", "h100"
    )
    assert status == 0
    for word in ("kernel", "why", "roofline", "candidates"):
        assert word in out
    assert "\n*  " in out


def test_explain_library_errors_are_one_line(capsys):
    status, _, err = run(
        capsys, "explain", "gemm", *SMALL, "--device", "h100", "--split-k-mode", "serial",
        "--split-k-slices", "1000000",
    )  # fmt: skip
    assert status == 1
    assert err.startswith("cleave: ")
    assert err.count("\n") == 1


def test_explain_marks_the_plans_own_candidate():
    candidates = [
        {
            "kernel": "x",
            "split_k_mode": mode,
            "split_k_slices": 2,
            "predicted_us": us,
            "workspace_size": 0,
        }
        for mode, us in (("serial", 4.0), ("parallel", 5.0))
    ]

    class Plan:
        kernel_name, split_k_mode, split_k_slices = "x", "parallel", 2
        workspace_size, why, roofline_us = 0, "because", 2.0

    Plan.candidates = candidates
    stream = io.StringIO()
    explain._explain(Console(stream), case.GemmCase(1, 1, 1), Plan, "h100", limit=1)
    assert "5 us, 40% of the roofline" in stream.getvalue()
    (marked,) = [line for line in stream.getvalue().splitlines() if line.startswith("*")]
    assert "parallel" in marked


@pytest.mark.parametrize(("spill", "status"), [(0, 0), (16, 1)])
def test_compile_fails_on_spills(capsys, monkeypatch, spill, status):
    def compile_all(arch):
        return [
            {"name": "kernel", "arch": arch, "registers": 168, "spill_bytes": spill,
             "shared_bytes": 1024, "seconds": 0.1, "from_cache": False}
        ]  # fmt: skip

    monkeypatch.setattr(cleave, "compile_all", compile_all)
    got, out, _ = run(capsys, "compile", "--all")
    assert got == status
    assert all(arch in out for arch in compile.ARCHITECTURES)


def test_cache_lists_and_clears(capsys, monkeypatch):
    entry = {"key": "abc", "arch": "sm_90a", "bytes": 2048, "age_seconds": 7200.0}
    monkeypatch.setattr(cleave._core, "cache_list", lambda: [entry])
    monkeypatch.setattr(
        cleave, "cache_info", lambda: {"path": "/somewhere", "entries": 1, "bytes": 2048}
    )
    monkeypatch.setattr(cleave, "cache_clear", lambda: 1)
    status, out, _ = run(capsys, "cache", "ls")
    assert status == 0
    assert "2 h" in out
    assert "1 kernels, 2.0 KiB in /somewhere" in out
    assert run(capsys, "cache", "clear") == (0, "removed 1 kernels from /somewhere\n", "")


def test_tune_needs_a_gpu(capsys):
    status, _, err = run(capsys, "tune", "gemm", *SMALL, "--device", "cpu")
    assert status == 1
    assert "GPU" in err
