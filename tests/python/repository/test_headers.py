"""The public C++ headers: each compiles alone, says what it needs where that is missing, and they
are all that a program needs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from doc_snippets import ROOT

HEADERS = sorted((ROOT / "include" / "cleave").glob("*.h"))
COMPILER = shutil.which("c++")
INCLUDE = f"-I{ROOT / 'include'}"

PROGRAM = """
#include <cstdio>

#include "cleave/epilogue.h"
#include "cleave/gemm.h"
#include "cleave/names.h"

int main() {
  const float a[] = {1, 2, 3, 4}, b[] = {1, 0, 0, -1};
  float d[4] = {};
  const cleave::MatrixLayout matrix{.dtype = cleave::DType::f32, .stride_row = 2, .alignment = 4};
  const cleave::GemmProblem problem{.m = 2, .n = 2, .k = 2, .a = matrix, .b = matrix, .d = matrix,
                                    .epilogue = cleave::epilogue_of(cleave::Activation::relu),
                                    .split_k_mode = cleave::SplitKMode::serial,
                                    .split_k_slices = 2,
                                    .device = cleave::kCpu};
  try {
    cleave::plan(problem)->run({.a = a, .b = b, .d = d}, nullptr);
    cleave::from_string<cleave::Activation>("rel");
  } catch (const cleave::Error& error) {
    std::printf("%g %g %g %g %s", d[0], d[1], d[2], d[3], error.what());
  }
}
"""

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


def compile_alone(header: Path, standard: str) -> list[str]:
    """The compiler's errors and warnings."""
    said = subprocess.run(
        [COMPILER, f"-std={standard}", "-fsyntax-only", "-Wall", "-Wextra", INCLUDE, "-xc++", "-"],
        input=f'#include "cleave/{header.name}"\n', capture_output=True, text=True, check=False,
    ).stderr  # fmt: skip
    return [line for line in said.splitlines() if "error: " in line or "warning: " in line]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_headers_stand_alone(header: Path) -> None:
    assert compile_alone(header, "c++20") == []


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_an_older_standard_is_named_in_one_line(header: Path) -> None:
    said, end = compile_alone(header, "c++17")
    assert "need C++20" in said
    assert "fatal error" in end  # nothing else is said


def test_a_program_needs_these_headers_and_the_library_alone(tmp_path: Path) -> None:
    source, program = tmp_path / "program.cpp", tmp_path / "program"
    source.write_text(PROGRAM)
    library = ROOT / "build"
    subprocess.run(
        [COMPILER, "-std=c++20", "-Wall", "-Werror", INCLUDE, str(source), f"-L{library}",
         "-lcleave", f"-Wl,-rpath,{library}", "-o", str(program)],
        check=True,
    )  # fmt: skip
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert said.startswith('1 0 3 0 activation is "rel"')
