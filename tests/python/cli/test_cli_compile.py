"""`cleave compile`, and how it counts instructions."""

from __future__ import annotations

import struct

import pytest
from cli_calls import CONV, run

import cleave
from cleave.cli import compile
from cleave.testing import cubin


@pytest.fixture
def sources(monkeypatch):
    """What is given to the compiler, which is not there."""
    sources = []

    def compile_plan(plan):
        sources.append(plan.kernel_source)
        return compiled("sm_90a")

    monkeypatch.setattr(cleave._core, "compile_plan", compile_plan)
    return sources


def test_compile_of_convolutions_has_a_kernel_for_each_way_to_divide(capsys, sources):
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


def test_compile_of_products_takes_each_kernel_once(capsys, sources):
    status, out, _ = run(
        capsys, "compile", "gemm", "--m", "4096", "--n", "4096", "--k", "4096,8192,16384",
        "--dtype", "e4m3,i8", "--scaling", "row", "--split-k-mode", "none", "--device", "h100",
    )  # fmt: skip
    assert status == 0
    assert 2 <= len(sources) == len(set(sources)) < 6
    assert f"{len(sources)} kernels, 0 with spills" in out


def test_a_static_b_has_a_kernel_of_its_own(capsys, sources):
    sizes = ("--m", "4096", "--n", "4096", "--k", "4096", "--dtype", "e4m3", "--scaling", "row")
    status, _, _ = run(capsys, "compile", "gemm", *sizes, "--static-b", "no,yes", "--device", "h100")
    assert status == 0
    early = [source for source in sources if "static_b = true" in source]
    assert len(set(sources)) == 2 and len(early) == 1


def test_compile_of_groups_takes_one_kernel_for_any_sizes(capsys, sources):
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
