"""The `cleave` command: what it prints, and every command on the CPU."""

from __future__ import annotations

import csv
import io
import json
import struct

import pytest
from array_libraries import library_for

import cleave
from cleave import cli
from cleave.cli import compile, explain
from cleave.cli.console import Console, format_bytes, format_cell
from cleave.testing import case, conv, cubin, dense, grouped

SMALL = ["--m", "48", "--n", "40", "--k", "200"]
GROUPS = ["--sizes", "20,0,1,47", "--n", "40", "--k", "72"]
CONV = [
    "--images", "2", "--size", "9x7", "--channels", "8", "--filters", "16", "--filter-size", "3",
    "--stride", "2", "--padding", "1",
]  # fmt: skip


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
        ["profile", "gemm", *SMALL, "--dtype", "int4"],
        ["profile", "gemm", *SMALL, "--dtype", "int32"],
        ["profile", "gemm", *SMALL, "--scaling", "column"],
        ["profile", "gemm", *SMALL, "--use-fast-accum", "maybe"],
        ["profile", "gemm", *SMALL, "--iterations", "0"],
        ["profile", "gemm", *SMALL, "--lay", "tn"],
        ["compile", "--all", "--arch", "sm_80"],
        ["compile", "--arch", "sm_70"],
        ["compile", "--all", "gemm", *SMALL],
        ["compile", "gemm", "--dtype", "e4m3"],
        ["cache", "rm"],
        ["profile", "grouped", "--n", "8"],
        ["profile", "grouped", *GROUPS, "--sizes", "skewed"],
        ["profile", "grouped", *GROUPS, "--form", "backward"],
        ["profile", "grouped", *GROUPS, "--scaling", "tensor"],
        ["compile", "--all", "grouped", *GROUPS],
        ["profile", "conv", "--size", "8x8"],
        ["profile", "conv", *CONV, "--kind", "backward"],
        ["profile", "conv", *CONV, "--dtype", "e4m3"],
        ["profile", "conv", *CONV, "--activation", "swiglu"],
        ["profile", "conv", *CONV, "--division", "slow"],
        ["profile", "conv", *CONV, "--stride", "0"],
        ["compile", "--all", "conv", *CONV],
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
    status, out, _ = run(
        capsys, "profile", "grouped", *GROUPS, "--device", "cpu", "--iterations", "1"
    )
    assert status == 1
    assert "WRONG RESULT" in out


def test_explain_groups(capsys):
    status, out, _ = run(
        capsys, "explain", "grouped", *GROUPS, "--form", "forward,wgrad", "--device", "cpu"
    )
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


def test_explain_says_how_float32_is_multiplied(capsys):
    options = ("--dtype", "fp32", "--precision", "tf32,ieee", "--device", "h100")
    for operation, sizes in (("gemm", SMALL), ("grouped", GROUPS), ("conv", CONV)):
        status, out, _ = run(capsys, "explain", operation, *sizes, *options)
        assert status == 0
        fast, exact = out.split(" ieee")[0], out.split(" ieee", 1)[1]
        assert "rounded to tf32" in fast and "sm90" in fast
        assert "as they are" in exact and "sm90" not in exact


def test_explain_without_a_gpu(capsys):
    status, out, _ = run(
        capsys, "explain", "gemm", "--m", "128", "--n", "128", "--k", "16384", "--device", "h100"
    )
    assert status == 0
    for word in ("kernel", "why", "roofline", "candidates"):
        assert word in out
    assert "\n*  " in out


@pytest.mark.parametrize(
    ("arguments", "usage", "meant"),
    [
        (("explain", "gemm", *SMALL, "--split-k-slice", "4"), "explain gemm", "--split-k-slices"),
        (("explain", "gem"), "explain", "gemm"),
        (("profil", "gemm"), "", "profile"),
        (("cache", "lss"), "cache", "ls"),
    ],
)
def test_typing_mistakes(capsys, arguments, usage, meant):
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith(f"usage: cleave {usage}")
    assert error.rstrip().endswith(f"Did you mean {meant}?")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--k", "16k"), "'16k' is not an integer. Did you mean 16384?"),
        (("--dtype", "half"), "Did you mean float16?"),
        (("--dtype", "bfloat"), "Did you mean bfloat16?"),
        (("--device", "H100"), "Did you mean h100?"),
        (("--split-k-mode", "stream-k"), "Did you mean stream_k?"),
    ],
)
def test_mistaken_values(capsys, arguments, says):
    with pytest.raises(SystemExit):
        cli.main(["explain", "gemm", *SMALL, *arguments])
    assert capsys.readouterr().err.rstrip().endswith(says)


def test_what_is_missing_is_shown_by_example(capsys):
    with pytest.raises(SystemExit):
        cli.main(["profile", "gemm"])
    error = capsys.readouterr().err
    assert "are required: --m, --n, --k. For example: cleave profile gemm --m 128" in error


def test_explain_a_measured_choice(capsys):
    """Of the shipped table; the model alone would not have considered it."""
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


@pytest.mark.parametrize("device", ["cpu", "h100"])
def test_explain_convolutions(capsys, device):
    status, out, _ = run(
        capsys, "explain", "conv", *CONV, "--kind", "fprop,dgrad,wgrad", "--device", device
    )
    assert status == 0
    assert f"dgrad 2x9x7x8 16x3x3 stride 2 pad 1 float16 on {device}" in out
    for word in ("why", "moves", "computes"):
        assert out.count(f"  {word} ") == 3


def test_compile_of_convolutions_has_a_kernel_for_each_way_to_divide(capsys, monkeypatch):
    sources = []

    def compile_plan(plan):
        sources.append(plan.kernel_source)
        return compiled("sm_90a")

    monkeypatch.setattr(cleave._core, "compile_plan", compile_plan, raising=False)
    status, out, _ = run(
        capsys, "compile", "conv", *CONV, "--kind", "dgrad", "--division", "fast,plain", "--kernel",
        "portable", "--device", "h100",
    )  # fmt: skip
    assert status == 0
    assert len(set(sources)) == 2
    assert "2 kernels, 0 with spills" in out


# What nvdisasm calls NOP, EXIT, IADD3 and two forms of MUFU.RCP.
NOP, EXIT, ADD, RECIPROCAL, RECIPROCAL_OF_UNIFORM = 0x7918, 0x794D, 0x7210, 0x7308, 0x7D08


def elf(**sections):
    """A 64-bit ELF file with these instructions (16 bytes each, the opcode first)."""
    contents = {"": b"", "names": b""}
    for name, opcodes in sections.items():
        code = b"".join(struct.pack("<QQ", opcode, 0) for opcode in opcodes)
        contents[name.replace("_", ".", 2)] = code
    names = b"\0".join(name.encode() for name in contents) + b"\0"
    contents["names"] = names
    body, headers = b"", b""
    for name, content in contents.items():
        at = names.index(name.encode() + b"\0") if name else len(names) - 1
        headers += struct.pack("<IIQQQQIIQQ", at, 1, 0, 0, 64 + len(body), len(content), 0, 0, 0, 0)
        body += content
    header = struct.pack("<16sHHIQQQ", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, 64 + len(body))
    header += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, len(contents), 1)
    return header + body + headers


def test_instructions_are_counted():
    file = elf(
        _text_one=[ADD, RECIPROCAL, EXIT, NOP, NOP],
        _text_two=[RECIPROCAL_OF_UNIFORM, ADD, ADD, EXIT],
        _data_three=[ADD] * 9,
    )
    assert cubin.count(file) == cubin.CodeCounts(instructions=7, reciprocals=2)
    with pytest.raises(ValueError, match="ELF"):
        cubin.count(b"text")


def compiled(arch, spill=0):
    return {
        "name": "kernel", "arch": arch, "registers": 168, "spill_bytes": spill,
        "shared_bytes": 1024, "seconds": 0.1, "from_cache": False, "cubin": elf(_text_k=[EXIT]),
    }  # fmt: skip


def test_compile_of_products_takes_each_kernel_once(capsys, monkeypatch):
    sources = []

    def compile_plan(plan):
        sources.append(plan.kernel_source)
        return compiled("sm_90a")

    monkeypatch.setattr(cleave._core, "compile_plan", compile_plan, raising=False)
    status, out, _ = run(
        capsys, "compile", "gemm", "--m", "4096", "--n", "4096", "--k", "4096,8192,16384",
        "--dtype", "e4m3,i8", "--scaling", "row", "--split-k-mode", "none", "--device", "h100",
    )  # fmt: skip
    assert status == 0
    assert 2 <= len(sources) == len(set(sources)) < 6
    assert f"{len(sources)} kernels, 0 with spills" in out


def test_compile_of_groups_takes_one_kernel_for_any_sizes(capsys, monkeypatch):
    sources = []

    def compile_plan(plan):
        sources.append(plan.kernel_source)
        return compiled("sm_90a")

    monkeypatch.setattr(cleave._core, "compile_plan", compile_plan, raising=False)
    status, out, _ = run(
        capsys, "compile", "grouped", "--groups", "64", "--n", "1408", "--k", "2048", "--sizes",
        "uniform,varied,zipf", "--device", "h100",
    )  # fmt: skip
    assert status == 0
    assert len(sources) == 1
    assert "1 kernels, 0 with spills" in out


@pytest.mark.parametrize(("spill", "status"), [(0, 0), (16, 1)])
def test_compile_fails_on_spills(capsys, monkeypatch, spill, status):
    monkeypatch.setattr(cleave, "compile_all", lambda arch: [compiled(arch, spill)])
    got, out, _ = run(capsys, "compile", "--all")
    assert got == status
    assert all(arch in out for arch in compile.ARCHITECTURES)


def test_cache_lists_and_clears(capsys, monkeypatch):
    entry = {"key": "abc", "arch": "sm_90a", "bytes": 2048, "age_seconds": 7200.0, "current": True}
    monkeypatch.setattr(cleave._core, "cache_list", lambda: [entry, {**entry, "current": False}])
    monkeypatch.setattr(
        cleave, "cache_info", lambda: {"path": "/somewhere", "entries": 2, "bytes": 4096}
    )
    monkeypatch.setattr(cleave, "cache_clear", lambda: 1)
    status, out, _ = run(capsys, "cache", "ls")
    assert status == 0
    assert "2 h" in out
    assert "2 kernels, 4.0 KiB in /somewhere" in out
    assert "1 of them by other versions" in out
    assert run(capsys, "cache", "clear") == (0, "removed 1 kernels from /somewhere\n", "")


def test_tune_needs_a_gpu(capsys):
    status, _, err = run(capsys, "tune", "gemm", *SMALL, "--device", "cpu")
    assert status == 1
    assert "GPU" in err
