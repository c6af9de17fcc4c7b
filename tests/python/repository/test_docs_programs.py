"""Every code block of the documentation runs, or, where it is a command, is understood by what it calls."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_snippets import ROOT, python_snippets, snippets

import cleave
from cleave.cli import build_parser

DOCS = ROOT / "docs"

LANGUAGES = {"python", "sh", "bash", "cpp", "text", "{eval-rst}", "{toctree}"}

# Pages that other tests run, from the first block to the last, and look at what they make.
RUN_ELSEWHERE = {
    "README.md": "test_docs.py",
    "docs/checkpoints.md": "test_load_transformers.py",
    "docs/compat.md": "test_compat_signatures.py",
    "docs/convolution.md": "test_docs.py",
    "docs/cuda-graphs.md": "test_cuda_graph_docs_gpu.py",
    "docs/distributed.md": "test_distributed.py",
    "docs/epilogue.md": "test_docs.py",
    "docs/jax.md": "test_jax.py",
    "docs/lora.md": "test_lora.py",
    "docs/moe.md": "test_torch_moe.py",
    "docs/pytorch.md": "test_torch_ops.py",
    "docs/quantised-weights.md": "test_docs.py",
}


def nothing() -> dict[str, Any]:
    return {}


def two_matrices() -> dict[str, Any]:
    return {"cleave": cleave, "a": np.ones((64, 4096), np.float32), "b": np.ones((4096, 32), np.float32)}


def a_model() -> dict[str, Any]:
    torch = pytest.importorskip("torch", minversion="2.10")
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    return {"model": torch.nn.Linear(8, 8)}  # nothing to prepare on the CPU


# What the others' blocks take from the text around them.
RUN_HERE: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/determinism.md": nothing,
    "docs/emit.md": a_model,
    "docs/precision.md": nothing,
    "docs/serving.md": a_model,
    "docs/split-k.md": two_matrices,
}

PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
}


def test_every_page_with_python_is_run() -> None:
    assert {name for name, page in PAGES.items() if python_snippets(page)} == RUN_ELSEWHERE.keys() | RUN_HERE.keys()
    for name, test in RUN_ELSEWHERE.items():
        (path,) = (ROOT / "tests").rglob(test)
        text = path.read_text("utf-8")
        assert "python_snippets(" in text and Path(name).name in text, name


@pytest.mark.parametrize("name", PAGES)
def test_every_block_says_what_it_is_in(name: str) -> None:
    """cpp: test_docs.py compares it with the examples that ctest builds. text: what something prints."""
    fences = re.findall(r"^```(.*)$", PAGES[name].read_text("utf-8"), re.MULTILINE)
    assert set(fences[::2]) <= LANGUAGES and not any(fences[1::2])


@pytest.mark.parametrize("name", RUN_HERE)
def test_the_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = RUN_HERE[name]()
    for source in python_snippets(PAGES[name]):
        exec(compile(source, name, "exec"), program)
    if name == "docs/emit.md":
        program["write"]()
        program["write_fused"]()
        for project in ("projection", "fused"):
            assert (tmp_path / "out" / project / "setup.py").exists()


def commands(page: Path) -> list[list[str]]:
    """The words of each, without what is set before it and behind a |."""
    found = []
    for language in ("sh", "bash"):
        for block in snippets(page, language):
            for line in re.sub(r"\\\n", " ", block).splitlines():
                words = shlex.split(line, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words.pop(0)
                if words:
                    found.append(words[: words.index("|")] if "|" in words else words)
    return found


COMMANDS = [(name, words) for name, page in PAGES.items() for words in commands(page)]


@pytest.mark.parametrize(("name", "words"), COMMANDS, ids=[f"{name}: {' '.join(words)}" for name, words in COMMANDS])
def test_commands_are_understood(name: str, words: list[str]) -> None:
    program, *arguments = words
    if program == "cleave":
        build_parser().parse_args(arguments)
    elif program == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
        assert arguments[0] in targets
    elif program == "python":
        check_python(arguments)
    elif program == "pip":
        assert arguments[0] == "install"
        for wheel in re.findall(r"dist/[\w.-]+\.whl", " ".join(arguments)):
            version = re.search(r"project\(cleave VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text("utf-8"))
            assert f"cleave_gemm-{version[1]}-" in wheel
    else:
        pytest.fail(f"{name} has a command that nothing here understands: {' '.join(words)}")


def check_python(arguments: list[str]) -> None:
    """A module of ours, or a script, that parses its options; a reader's own `serve.py` is left alone."""
    if arguments[0] == "-m":
        path = ROOT / f"{arguments[1].replace('.', '/')}"
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), arguments
        return
    script = arguments[0]
    if script == "repeat.py":
        pytest.importorskip("torch")
        from bench import repeat

        repeat.parser().parse_args(arguments[1:])
    elif script != "serve.py":
        assert (ROOT / script).exists(), script
