"""The documentation: its snippets are Python that takes only what cleave has; its links lead on."""

from __future__ import annotations

import ast
import importlib
import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from doc_snippets import ROOT, python_snippets, snippets

import cleave

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def names_of_cleave(tree: ast.AST) -> Iterator[str]:
    """cleave.torch.replace_linears, and so on; the longest form of each."""
    for node in ast.walk(tree):
        names, part = [], node
        while isinstance(part, ast.Attribute):
            names.append(part.attr)
            part = part.value
        if names and isinstance(part, ast.Name) and part.id == "cleave":
            yield ".".join(reversed(names))


def has(name: str) -> bool:
    value = cleave
    for part in name.split("."):
        if not hasattr(value, part):
            importlib.import_module(f"{value.__name__}.{part}")
        value = getattr(value, part)
    return True


@pages
def test_snippets_compile(page: Path) -> None:
    for source in python_snippets(page):
        compile(source, str(page), "exec")


@pages
def test_snippets_take_what_cleave_has(page: Path) -> None:
    trees = map(ast.parse, python_snippets(page))
    names = {name for tree in trees for name in names_of_cleave(tree)}
    for name in sorted(names):
        for framework in ("torch", "jax", "transformers"):
            if name.startswith(framework):
                pytest.importorskip(f"cleave.{framework}", exc_type=ImportError)
        assert has(name), name


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    named = set(re.findall(r"`([\w@./-]+\.(?:h|cpp|py|in|md|txt))`", text))
    assert len(named) > 20
    folders = [ROOT / name for name in ("include", "kernels", "src", "python", "tests", "docs")]
    files = [str(path) for folder in folders for path in folder.rglob("*.*")]
    for name in sorted(named):
        assert any(file.endswith(f"/{name}") for file in files), name


def test_the_readmes_example_runs() -> None:
    program: dict[str, object] = {}
    (example,) = python_snippets(ROOT / "README.md")
    exec(compile(example, "README.md", "exec"), program)
    assert program["dw"].shape == (3, 64, 128)


def test_the_page_about_convolutions_runs() -> None:
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    program: dict[str, object] = {}
    for source in python_snippets(ROOT / "docs" / "convolution.md"):
        exec(compile(source, "docs/convolution.md", "exec"), program)


def test_the_page_about_weights_of_4_bits_runs() -> None:
    """Its assertions say what its text does."""
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    program: dict[str, Any] = {}
    for source in python_snippets(ROOT / "docs" / "quantised-weights.md"):
        exec(compile(source, "docs/quantised-weights.md", "exec"), program)
    assert program["y"].shape == (16, 512)


def test_the_page_about_epilogue_functions_runs() -> None:
    """Every block of it; what the five examples make is as their text says."""
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    program: dict[str, Any] = {}
    for source in python_snippets(ROOT / "docs" / "epilogue.md"):
        exec(compile(source, "docs/epilogue.md", "exec"), program)
    p = SimpleNamespace(**program)
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-3)
    pre = p.a @ p.b * np.float32(0.5) + p.b1
    close(p.pre, pre)
    close(p.d, pre * (1 + np.vectorize(math.erf)(pre / 2**0.5)) / 2 + p.r)
    exact = p.q.astype(float) @ (p.w - p.channel_zero) * p.token_scale[:, None] * p.channel_scale
    close(p.y, exact, atol=1e-4 * abs(exact).max())
    close(p.norm, (p.summed.astype(float) ** 2).sum(1), rtol=1e-5)
    assert p.largest == abs(p.summed).max()
    root = np.sqrt((p.summed.astype(float) ** 2).mean(1, keepdims=True) + 1e-6)
    close(p.normed, p.summed / root @ p.b.T)
    close(p.logits, 30 * np.tanh(p.a @ p.b / 30))
    close(p.tighter, 20 * np.tanh(p.a @ p.b / 20))
    close(p.dh, p.dy @ p.weight * 2 * np.maximum(p.h, 0))
    close(p.activated, np.maximum(p.h, 0) ** 2)
    close(p.stream, p.before + p.keep[:, None] * p.gamma * (p.a @ p.b))
    assert p.scale.grad.abs() > 0 and p.x.grad.abs().sum() > 0
    close(p.residual.grad, np.full((64, 128), 2.0))
    gate, up = np.hsplit(p.a @ p.w13, 2)
    found = p.gated * p.gated_scale
    np.testing.assert_allclose(found, gate / (1 + np.exp(-gate)) * up, rtol=0, atol=0.51 * p.gated_scale.max())
    down = p.w2 * p.w2_scale.repeat(64, 0)
    close(p.layer, found @ down.T, atol=1e-4 * abs(p.layer).max())


def test_every_environment_variable_is_documented() -> None:
    page = (ROOT / "docs" / "environment.md").read_text("utf-8")
    sources = [p.read_text("utf-8") for p in (ROOT / "src").rglob("*.cpp")]
    read = {name for text in sources for name in re.findall(r'"(CLEAVE_[A-Z_]+)"', text)}
    assert read >= {"CLEAVE_CACHE_DIR", "CLEAVE_CPU_THREADS", "CLEAVE_NVRTC"}
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []


def test_promises_name_tests_that_exist() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    promised = re.findall(r"`(tests/[\w/]+\.(?:py|cpp))(?:::([\w.]+))?`", page)
    assert len(promised) > 30
    for path, name in promised:
        text = (ROOT / path).read_text("utf-8")
        if path.endswith(".cpp") and name:
            suite, _, case = name.partition(".")
            assert re.search(rf"TEST(_[FP])?\({suite}, {case}\)", text), f"{path}::{name}"
        elif name:
            assert f"def {name}(" in text, f"{path}::{name}"


def test_cpp_snippets_are_of_the_example() -> None:
    """Which ctest builds and runs."""
    example = (ROOT / "examples" / "cpp" / "convolution.cpp").read_text("utf-8")
    excerpts = snippets(ROOT / "docs" / "convolution.md", "cpp")
    assert excerpts and all(excerpt.strip() in example for excerpt in excerpts)


def test_graph_page_has_snippets() -> None:
    """The tests of tests/gpu run them."""
    assert len(python_snippets(ROOT / "docs" / "cuda-graphs.md")) > 5
