"""`cleave explain`, with and without a GPU."""

from __future__ import annotations

import io
import re

import pytest
from cli_calls import CONV, EPILOGUES, GROUPS, SMALL, run

from cleave.cli import explain
from cleave.cli.console import Console, format_bytes
from cleave.testing import case


def test_explain_groups(capsys):
    status, out, _ = run(capsys, "explain", "grouped", *GROUPS, "--form", "forward,wgrad", "--device", "cpu")
    assert status == 0
    assert "forward 68x40x72 in 4 given groups float16 tn on cpu" in out
    for word in ("why", "moves", "computes"):
        assert out.count(f"  {word} ") == 2


def test_explain_groups_without_a_gpu(capsys):
    status, out, _ = run(
        capsys, "explain", "grouped", "--groups", "64", "--n", "1408", "--k", "2048", "--dtype",
        "e4m3", "--scaling", "block_1x128", "--form", "forward,dgrad,wgrad", "--device", "h100",
    )  # fmt: skip
    assert status == 0
    assert out.count("scales block_1x128 on h100") == 3
    assert out.count("of the roofline") == 3


def test_an_h200_has_more_bandwidth(capsys):
    """Its own bytes a second, and what was measured on it."""
    rooflines = {}
    for device in ("h100", "h200"):
        status, out, _ = run(capsys, "explain", "gemm", "--m", "16", "--n", "8192", "--k", "8192", "--device", device)
        assert status == 0 and f" on {device}" in out
        rooflines[device] = float(out.split("roofline ")[1].split()[0])
    assert rooflines["h100"] / rooflines["h200"] == pytest.approx(4917 / 3350, rel=0.01)


def test_explain_says_how_float32_is_multiplied(capsys):
    options = ("--dtype", "fp32", "--precision", "tf32,ieee", "--device", "h100")
    for operation, sizes in (("gemm", SMALL), ("grouped", GROUPS), ("conv", CONV)):
        status, out, _ = run(capsys, "explain", operation, *sizes, *options)
        assert status == 0
        fast, exact = out.split(" ieee")[0], out.split(" ieee", 1)[1]
        assert "rounded to tf32" in fast and "sm90" in fast
        assert "as they are" in exact and "sm90" not in exact


def test_explain_what_is_asked_of_kernels(capsys):
    options = ("--deterministic", "yes,batch_invariant", "--kernel", "auto,portable", "--device", "h100")
    sizes = ("--n", "1024", "--k", "4096")
    for command in (("gemm", "--m", "64", *sizes), ("grouped", "--groups", "4", *sizes)):
        status, out, _ = run(capsys, "explain", *command, *options)
        assert status == 0
        assert out.count("as for every M (batch_invariant)") == out.count("batch-invariant") == 2
        assert out.count("kernel portable on h100") == len(re.findall(r"kernel +portable \d", out)) == 2


def test_explain_without_a_gpu(capsys):
    status, out, _ = run(capsys, "explain", "gemm", "--m", "128", "--n", "128", "--k", "16384", "--device", "h100")
    assert status == 0
    for word in ("kernel", "why", "roofline", "candidates"):
        assert word in out
    assert "\n*  " in out


def test_explain_a_measured_choice(capsys):
    """A choice of the shipped table; the model alone would not have considered it."""
    status, out, _ = run(
        capsys, "explain", "gemm", "--m", "128", "--n", "128", "--k", "16384", "--device", "h100",
        "--dtype", "float16", "--layout", "tn",
    )  # fmt: skip
    assert status == 0
    assert "measured to be the fastest for this size" in out
    assert "of the roofline" in out
    assert "\n*  " in out


@pytest.mark.parametrize("scaling", ["tensor", "row", "block_1x128", "block_128x128"])
def test_explain_scaled(capsys, scaling):
    status, out, _ = run(
        capsys, "explain", "gemm", *SMALL, "--dtype", "e4m3", "--scaling", scaling, "--device",
        "cpu",
    )  # fmt: skip
    assert status == 0
    assert f"48x40x200 float8_e4m3fn tn scales {scaling} on cpu" in out


def test_explain_library_errors_are_one_line(capsys):
    status, _, err = run(
        capsys, "explain", "gemm", *SMALL, "--device", "h100", "--split-k-mode", "cluster",
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


@pytest.mark.parametrize("device", ["cpu", "h100"])
def test_explain_convolutions(capsys, device):
    status, out, _ = run(capsys, "explain", "conv", *CONV, "--kind", "fprop,dgrad,wgrad", "--device", device)
    assert status == 0
    assert f"dgrad 2x9x7x8 16x3x3 stride 2 pad 1 float16 on {device}" in out
    for word in ("why", "moves", "computes"):
        assert out.count(f"  {word} ") == 3


@pytest.mark.parametrize("device", ["h100", "cpu"])
def test_explain_an_epilogue_function(capsys, device):
    sizes = ("--m", "4096", "--n", "4096", "--k", "1024", "--dtype", "bf16", "--device", device, "--candidates", "1")
    status, out, _ = run(capsys, "explain", "gemm", *sizes, "--epilogue", f"{EPILOGUES}:gelu_residual")
    assert status == 0
    assert "epilogue gelu_residual" in out and "  residual matrix" in out and "  pre:float16 = %1" in out
    assert "64.0 MiB more to move than the 48.0 MiB" in out  # a matrix in, another one out
    if device == "h100":
        assert re.search(r"registers +\d+ a thread", out)
        assert re.search(r" tiles, for which registers do not suffice: .*sm90 256x", out)
    status, out, _ = run(capsys, "explain", "gemm", *sizes, "--epilogue", f"{EPILOGUES}:doubled")
    assert "1 an element of D" in out and "no tile" in out.split("rules out")[1] and "a second launch" not in out
    status, out, _ = run(capsys, "explain", "gemm", *sizes, "--epilogue", f"{EPILOGUES}:normed")
    assert "norm = sum column %0" in out and "a second launch, which joins what tiles leave" in out


@pytest.mark.parametrize("device", ["h100", "cpu"])
@pytest.mark.parametrize(
    ("case", "more"),
    [
        # A matrix in and another out, as D of float16; a row of float32.
        (["grouped", *GROUPS], 2 * 2 * 68 * 40 + 4 * 40),
        (["grouped", *GROUPS, "--form", "wgrad"], 2 * 2 * 4 * 40 * 72 + 4 * 72),
        (["conv", *CONV, "--groups", "2"], 2 * 2 * (2 * 5 * 4) * 16 + 4 * 16),
        (["conv", *CONV, "--groups", "2", "--kind", "dgrad"], 2 * 2 * (2 * 9 * 7) * 8 + 4 * 8),
        (["conv", *CONV, "--groups", "2", "--kind", "wgrad"], 2 * 2 * 16 * (3 * 3 * 4) + 4 * (3 * 3 * 4)),
    ],
    ids=("groups", "groups-wgrad", "fprop", "dgrad", "wgrad"),
)
def test_explain_an_epilogue_function_of_groups_and_convolutions(capsys, case, more, device):
    status, out, err = run(capsys, "explain", *case, "--epilogue", f"{EPILOGUES}:gelu_residual", "--device", device)
    assert status == 0, err
    assert "epilogue gelu_residual" in out
    assert f" {format_bytes(more)} more to move than the " in out


def test_explain_refuses_what_is_no_function(capsys, tmp_path):
    for function in (f"{EPILOGUES}:cleave", f"{tmp_path}/nothing.py:doubled", "doubled"):
        with pytest.raises(SystemExit):
            run(capsys, "explain", "gemm", *SMALL, "--epilogue", function)
        assert "argument --epilogue" in capsys.readouterr().err
