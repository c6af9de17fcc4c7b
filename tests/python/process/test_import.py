"""What importing costs and brings along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import cleave


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_is_quick_and_brings_no_framework() -> None:
    """Quick in the processor's time: what a machine's other work adds is not the package's."""
    code = """
import sys, time
start = time.process_time()
import cleave
print(time.process_time() - start)
print([m for m in ("numpy", "torch", "cupy", "jax", "rich") if m in sys.modules])
"""
    seconds, modules = zip(*(run(code).splitlines() for _ in range(5)), strict=True)
    assert min(map(float, seconds)) < 0.15
    assert {*modules} == {"[]"}


def test_torchs_compiler_is_not_imported_before_it_compiles() -> None:
    """It takes two seconds."""
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    assert run("import sys, cleave.torch; print('torch._dynamo' in sys.modules)") == "False\n"


def test_a_module_that_is_not_imported_says_so() -> None:
    """Whatever of the package users import by themselves, in an error that Python adds nothing to."""
    code = """
import pkgutil, sys
import cleave
apart = {m.name for m in pkgutil.iter_modules(cleave.__path__) if "cleave." + m.name not in sys.modules}
for name in sorted(apart - {"cli", "emit", "testing"}):
    try:
        getattr(cleave, name)
    except AttributeError as error:
        print(name, str(error).endswith("before it is imported: import cleave." + name))
"""
    told = dict(line.split() for line in run(code).splitlines())
    assert {name for name, told in told.items() if told == "True"} >= {"distributed", "jax", "torch", "transformers"}
    assert all(told == "True" for name, told in told.items() if not name.startswith("_"))


def test_what_python_ignores_on_its_path_is_ignored() -> None:
    assert run("import sys; sys.path += [b'/x', None, 7]; import cleave; print('in')") == "in\n"


@pytest.mark.parametrize("arguments", [("-c",), ("-m", "probe")])
def test_no_library_is_taken_from_the_current_directory(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    code = """
import os, sys
import cleave
paths = []
cleave._core.add_library_search_path = paths.append
cleave._library_paths.register()
print([path for path in paths if os.path.abspath(path).startswith(sys.argv[-1])])
"""
    (tmp_path / "probe.py").write_text(code)
    program = (*arguments, code) if arguments == ("-c",) else arguments
    printed = subprocess.run(
        [sys.executable, *program, str(tmp_path)],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    ).stdout  # fmt: skip
    assert printed.strip() == "[]"


def test_a_product_of_numpy_arrays_imports_no_other_framework() -> None:
    code = """
import sys
import cleave, numpy as np
cleave.gemm(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))
print([m for m in ("torch", "cupy", "jax", "ml_dtypes") if m in sys.modules])
"""
    assert run(code).strip() == "[]"


def test_what_few_programs_need_is_imported_on_demand() -> None:
    code = """
import sys
import cleave
for name in ("cleave.compat", "cleave.emit"):
    print(name in sys.modules, name.removeprefix("cleave.") in dir(cleave))
print(cleave.emit.pytorch.__name__, cleave.compat.torch.__name__)
"""
    assert run(code).splitlines() == ["False True", "False True", "pytorch cleave.compat.torch"]


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'cleave' has no attribute 'gem'"):
        cleave.gem  # noqa: B018


def test_public_names_are_documented() -> None:
    for name in cleave.__all__:
        assert getattr(cleave, name).__doc__, name


def test_version() -> None:
    assert cleave.__version__ == "0.1.0"
