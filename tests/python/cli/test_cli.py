"""The `cleave` command: what it prints, what it refuses, and its small commands."""

from __future__ import annotations

import io

import pytest
from cli_calls import CONV, GROUPS, SMALL, run

import cleave
from cleave import cli
from cleave.cli.console import Console, format_bytes, format_cell


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
        ["profile", "conv", *CONV, "--scaling", "block_1x128"],
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
    assert "Broken" not in out


@pytest.mark.parametrize("command", ["info", "doctor"])
def test_the_exit_status_says_that_something_is_broken(capsys, monkeypatch, command):
    found = cleave.cache_info() | {"problem": "others may write it"}
    monkeypatch.setattr(cleave, "cache_info", lambda: found)
    pack = {"path": "/a.pack", "kernels": 0, "problem": "not a pack"}
    monkeypatch.setattr(cleave._core, "pack_list", lambda: [pack])
    status, out, _ = run(capsys, command)
    assert status == 1
    assert out.splitlines()[-1] == "Broken: keeping compiled kernels, kernel pack /a.pack"


def test_what_is_only_absent_is_not_broken(capsys, monkeypatch):
    def no_nvrtc():
        raise cleave.CudaError("no NVRTC")

    monkeypatch.setattr(cleave, "device_count", lambda: 0)
    monkeypatch.setattr(cleave._core, "nvrtc_info", no_nvrtc)
    status, out, _ = run(capsys, "doctor")
    assert status == 0
    (row,) = [line for line in out.splitlines() if "compiling kernels" in line]
    assert " no " in row and "no NVRTC" in row


@pytest.mark.parametrize(
    ("arguments", "usage", "meant"),
    [
        (("explain", "gemm", *SMALL, "--split-k-slice", "4"), "explain gemm", "--split-k-slices"),
        (("explain", "gem"), "explain", "gemm"),
        (("profil", "gemm"), "", "profile"),
        (("cache", "lss"), "cache", "ls"),
        (("tune", "grop"), "tune", "grouped"),
    ],
)
def test_typing_mistakes(capsys, arguments, usage, meant):
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith(f"usage: cleave {usage}")
    assert error.rstrip().endswith(f"Did you mean {meant}?")


@pytest.mark.parametrize("operation", ["route", "router_logits", "lora"])
@pytest.mark.parametrize("command", [("tune",), ("compile",), ("emit", "cpp")], ids=" ".join)
def test_what_has_one_kernel_is_no_wrong_name(capsys, command, operation):
    with pytest.raises(SystemExit):
        cli.main([*command, operation, "--rank", "8"])
    error = capsys.readouterr().err.rstrip()
    assert error.endswith(
        f"{operation} has one kernel for each shape: nothing to {command[0]}; profile and explain have it"
    )


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


def test_cache_lists_and_clears(capsys, monkeypatch):
    entry = {"key": "abc", "arch": "sm_90a", "bytes": 2048, "age_seconds": 7200.0, "current": True}
    monkeypatch.setattr(cleave._core, "cache_list", lambda: [entry, {**entry, "current": False}])
    monkeypatch.setattr(cleave, "cache_info", lambda: {"path": "/somewhere", "entries": 2, "bytes": 4096})
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
