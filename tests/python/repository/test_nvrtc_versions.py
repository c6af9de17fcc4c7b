"""NVRTCs other than the tests' own make the same of a kernel (tools/nvrtc_versions.py, docs/support.md)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from doc_snippets import ROOT

from cleave import _core
from cleave.testing import nvrtc
from tools import nvrtc_versions
from tools.nvrtc_versions import Comparison, Kernel

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
NEWEST = nvrtc.COMPARED[-1]

# Where configurations were read when kernels ran, these had 2 to 16 times as many instructions.
PRODUCTS = [
    {"dtype": "bfloat16"},
    {"dtype": "bfloat16", "activation": "swiglu"},
    {"dtype": "float32", "bias": "row", "activation": "gelu"},
    {"dtype": "int8", "out_dtype": "int32"},
]
COMPILE = """
import json, sys, cleave
from cleave import _core
from cleave.testing import cubin
for problem in json.loads(sys.argv[1]):
    made = _core.compile_plan(cleave.plan_problem(m=512, n=512, k=512, device="h100", **problem))
    counts = cubin.count(made["cubin"])
    assert b"_ZTAX" not in made["cubin"], f"{problem}: an object of the template's parameter is read when it runs"
    print(json.dumps([counts.instructions, made["registers"], made["spill_bytes"]]))
"""


def compiled_with(library: str) -> list[Kernel]:
    command = [sys.executable, "-c", COMPILE, json.dumps(PRODUCTS)]
    environment = {**os.environ, "CLEAVE_NVRTC": library}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [Kernel(*json.loads(line)) for line in done.stdout.splitlines()]


def test_the_newest_makes_kernels_of_the_same_size() -> None:
    newest = nvrtc_versions.library(NEWEST)
    if newest is None:
        pytest.skip("tools/nvrtc_versions.py --fetch-newest has not been run")
    own = _core.nvrtc_info()
    assert own["version"] == nvrtc.REFERENCE
    for problem, known, new in zip(PRODUCTS, compiled_with(own["path"]), compiled_with(str(newest)), strict=True):
        assert new.instructions <= 1.1 * known.instructions, problem
        assert new.registers <= 1.1 * known.registers, problem
        assert new.spills == 0, problem


def test_the_extras_install_what_was_compared() -> None:
    def bounds(versions: list[str]) -> str:
        major, minor = map(int, versions[-1].split("."))
        return f">={versions[0]},<{major}.{minor + 1}"

    of_13 = [version for version in nvrtc.COMPARED if version.startswith("13.")]
    of_12 = [version for version in nvrtc.COMPARED if version.startswith("12.")]
    assert EXTRAS["nvrtc"] == ["nvidia-cuda-nvrtc" + bounds(of_13)]
    assert EXTRAS["nvrtc12"] == ["nvidia-cuda-nvrtc-cu12" + bounds(of_12)]
    assert [name for name in EXTRAS["test"] if "nvrtc" in name] == [nvrtc.wheel(nvrtc.REFERENCE)]


def test_the_page_has_a_row_for_each_version() -> None:
    page = (ROOT / "docs" / "support.md").read_text("utf-8")
    assert tuple(re.findall(r"^\| (1\d\.\d+) \|", page, re.M)) == nvrtc.COMPARED
    assert f"| NVRTC | {nvrtc.COMPARED[0]}," in page


def test_info_says_whether_a_version_was_compared() -> None:
    assert "compared with" in nvrtc.remark(NEWEST)
    assert nvrtc.remark("12.0").startswith("not compared") and NEWEST in nvrtc.remark("12.0")


def test_digests_are_read() -> None:
    line = "sm_90a 20 05 06 07 1600 168 8 4\n"
    refused = "sm_90a 40 refused NVRTC refused a kernel: error 1 2 3 4\n"
    assert nvrtc_versions.parse(line + refused) == {"sm_90a 20": Kernel(100, 168, 12), "sm_90a 40": None}


def test_kernels_are_compared_one_by_one() -> None:
    reference = {"a": Kernel(100, 100, 0), "b": Kernel(300, 100, 8), "c": Kernel(100, 100, 0)}
    other = {"a": Kernel(150, 111, 4), "b": Kernel(250, 100, 8), "c": None}
    assert nvrtc_versions.compare(reference, reference) == Comparison(3, 0, 1.0, 1.0, 0, 0, 0)
    found = nvrtc_versions.compare(reference, other)
    assert found == Comparison(3, 1, 1.0, 1.5, many_instructions=1, many_registers=1, more_spills=1)
    assert not found.holds
    assert nvrtc_versions.troubles(reference, other) == ["c is refused", "a keeps 4 bytes in local memory"]
