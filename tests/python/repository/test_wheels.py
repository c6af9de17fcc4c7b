"""`make wheels`, as far as that goes without a build of minutes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from doc_snippets import ROOT

from cleave import _jax_build, _torch_build

WHEELS = ROOT / "tools" / "wheels"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(WHEELS))
    import check
    import headers
    import interpreters
    import toolbox
    import wheel

    yield {m.__name__: m for m in (check, headers, interpreters, toolbox, wheel)}
    for name in ("check", "headers", "interpreters", "toolbox", "wheel"):
        sys.modules.pop(name)


def test_every_supported_python_has_a_wheel(modules) -> None:
    oldest = int(PROJECT["project"]["requires-python"].removeprefix(">=3."))
    versions = modules["interpreters"].VERSIONS
    assert versions == tuple(f"3.{minor}" for minor in range(oldest, oldest + len(versions)))
    assert versions[-1] == modules["wheel"].STABLE_ABI_FROM


def test_the_release_is_of_the_same_pythons_and_compiler(modules) -> None:
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    build, tried = release.split("\n  try:\n")
    versions = modules["interpreters"].VERSIONS
    assert tuple(re.findall(r"^ +(3\.\d+)$", build, re.MULTILINE)) == versions
    assert set(versions) < set(re.findall(r'"(3\.\d+)"', tried))  # and one that the last wheel serves, too
    (nvrtc,) = PROJECT["project"]["optional-dependencies"]["nvrtc"]
    assert f"'nvidia-cuda-nvrtc{nvrtc.partition(',')[2]}'" in tried
    for command in re.findall(r"python (\S+\.py)", release):
        assert (ROOT / command).exists()


def test_tags(modules) -> None:
    wheel = modules["wheel"].Wheel
    assert f"{wheel('3.10', 'aarch64').tag}-{wheel('3.10', 'aarch64').platform}" == "cp310-cp310-manylinux_2_28_aarch64"
    assert f"{wheel('3.12', 'x86_64').tag}-{wheel('3.12', 'x86_64').platform}" == "cp312-abi3-manylinux_2_28_x86_64"


def test_the_tag_is_the_glibc_that_is_linked(modules) -> None:
    glibc = re.search(r"set\(CLEAVE_GLIBC ([\d.]+)\)", (WHEELS / "zig.cmake").read_text("utf-8"))
    assert glibc and "manylinux_" + glibc[1].replace(".", "_") == modules["wheel"].PLATFORM


def test_the_extensions_are_for_the_oldest_frameworks(modules) -> None:
    oldest = {each.name: each.oldest(ROOT) for each in modules["headers"].FRAMEWORKS}
    assert oldest == {"torch": _torch_build.OLDEST_TORCH, "jax": _jax_build.OLDEST_JAX}


def test_the_tools_are_pinned_and_are_what_a_build_requires() -> None:
    lines = [line for line in (WHEELS / "requirements.txt").read_text("utf-8").splitlines() if line[:1] not in "#"]
    pinned = dict(line.split("==") for line in lines)
    assert all(re.fullmatch(r"[\d.]+", version) for version in pinned.values())
    for requirement in PROJECT["build-system"]["requires"]:
        name, oldest = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
        numbers = [[int(n) for n in version.split(".")] for version in (oldest, pinned[name])]
        assert numbers[0] <= numbers[1], requirement


def test_what_the_machine_lacks_is_said(modules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules["interpreters"], "_candidates", lambda version: iter([sys.executable]))
    with pytest.raises(SystemExit, match=r"There is no Python 3\.99 with header files\. Run .*uv python install 3\.99"):
        modules["interpreters"].find("3.99")


def made(tmp_path: Path, **files: bytes) -> Path:
    path = tmp_path / "cleave_gemm-0.1.0-cp312-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("cleave/_core.abi3.so", "cleave/_core.pyi", "cleave/libcleave.so", "cleave/_torch_ops.so",
                     "cleave/_jax_ops.so", "cleave_gemm-0.1.0.dist-info/METADATA"):  # fmt: skip
            archive.writestr(name, files.get(Path(name).name.partition(".")[0], b"x"))
    return path


def test_a_wheel_that_lacks_something_is_refused(modules, tmp_path: Path) -> None:
    contents = modules["check"].contents
    contents(made(tmp_path))
    with pytest.raises(SystemExit, match=r"has 9\.0 MB; 8 at most"):
        contents(made(tmp_path, libcleave=b"\0" * 9_000_000))
    without = tmp_path / "without.whl"
    with zipfile.ZipFile(without, "w") as archive:
        archive.writestr("cleave/libcleave.so", b"x")
    with pytest.raises(SystemExit, match=r"_torch_ops"):
        contents(without)


def test_what_a_wheel_is_tried_by_runs_here() -> None:
    """Beside the frameworks that there are."""
    tried = subprocess.run([sys.executable, str(WHEELS / "smoke.py")], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    assert len(re.findall(r"^(readme|doctor|torch|jax): ", tried.stdout, re.MULTILINE)) == 4


def test_a_tag_must_be_granted(modules) -> None:
    serves = modules["check"].serves
    assert serves("x-cp312-abi3-manylinux_2_26_aarch64.whl", "manylinux_2_28_aarch64")
    assert not serves("x-cp312-abi3-manylinux_2_34_aarch64.whl", "manylinux_2_28_aarch64")
    assert not serves("x-cp312-abi3-manylinux_2_28_x86_64.whl", "manylinux_2_28_aarch64")
    assert not serves("x-cp312-abi3-linux_x86_64.whl", "manylinux_2_28_x86_64")


def test_the_module_stays_within_the_limited_api() -> None:
    """What CPython's headers of 3.12 declare with Py_LIMITED_API cannot be asked of an older Python's."""
    beyond = re.compile(
        r"->tp_\w+|\bPy(Tuple|List|Float|Long|Bytes|Unicode)_(GET|SET|AS)_\w+|\bPyUnicode_AsUTF8\(|\bPyObject_Call(One"
        r"Arg|NoArgs|MethodNoArgs|MethodOneArg)\b|\bPyFunction_\w+\(|\b_Py\w+\("
    )
    sources = [path for path in (ROOT / "python" / "src").rglob("*.*") if path.is_file()]
    assert len(sources) > 60
    for path in sources:
        text = path.read_text("utf-8")
        if path.name == "vectorcall.cpp":  # two ways: the other is for each version by itself
            text = text.partition("#else")[0]
        assert not beyond.search(text), f"{path.name}: {beyond.search(text)[0]}"
