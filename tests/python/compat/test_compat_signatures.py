"""cleave.compat's functions have the names, parameters and defaults of the libraries', as tools/peer_signatures.py read
them; what is not served is refused with a reason, and the page says both."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from typing import Any

import pytest
from doc_snippets import ROOT, python_snippets

LIBRARIES = json.loads((ROOT / "tests" / "support" / "peer_signatures.json").read_text("utf-8"))
PAGE = (ROOT / "docs" / "compat.md").read_text("utf-8")

# Operators of torch.ops._C, whose schemas are in C++.
OPERATORS = {"fused_add_rms_norm_static_fp8_quant", "rms_norm_static_fp8_quant"}

libraries = pytest.mark.parametrize("library", LIBRARIES)


def module_of(library: str) -> Any:
    return importlib.import_module(f"cleave.compat.{library}")


def spelled(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    default = parameter.default
    return f"{parameter.name}={default if isinstance(default, type) else repr(default)}"


@libraries
def test_signatures_are_theirs(library: str) -> None:
    """Parameters of ours may follow theirs, with defaults."""
    module, functions = module_of(library), LIBRARIES[library]["functions"]
    assert len(module.__all__) > 3
    for name in {*module.__all__} & {*functions}:
        ours = list(inspect.signature(getattr(module, name)).parameters.values())
        theirs = functions[name]
        if theirs is None:  # by position alone
            continue
        if name == "per_token_group_quant_int8":
            theirs = [part.replace("dtype=torch.int8", "dtype=None") for part in theirs]
        assert [spelled(parameter) for parameter in ours[: len(theirs)]] == theirs, name
        assert all(parameter.default is not inspect.Parameter.empty for parameter in ours[len(theirs) :]), name


@libraries
def test_every_name_is_served_or_refused(library: str) -> None:
    module, functions = module_of(library), {*LIBRARIES[library]["functions"]}
    served, refused = {*module.__all__}, {*module.REFUSED}
    assert served.isdisjoint(refused)
    assert served | refused == functions | (OPERATORS if library == "vllm" else set())


@libraries
def test_a_refusal_says_why(library: str) -> None:
    module = module_of(library)
    for name, why in module.REFUSED.items():
        assert not hasattr(module, name)
        with pytest.raises(AttributeError, match=re.escape(f"cleave.compat.{library}.{name} is not served: {why}")):
            getattr(module, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


@libraries
def test_the_page_has_every_name(library: str) -> None:
    module = module_of(library)
    section = PAGE.partition(f"`cleave.compat.{library}`")[2].partition("\n## ")[0]
    assert LIBRARIES[library]["version"] in section
    served, _, refused = section.partition("| not served |")
    for name in module.__all__:
        assert f"`{name}`" in served, name
    for name, why in module.REFUSED.items():
        (row,) = [line for line in refused.splitlines() if f"`{name}`" in line]
        assert why in row, name


def test_the_pages_snippet_runs() -> None:
    torch = pytest.importorskip("torch")
    program: dict[str, Any] = {}
    (example,) = python_snippets(ROOT / "docs" / "compat.md")
    exec(compile(example, "docs/compat.md", "exec"), program)
    expected = program["x"].float() @ program["weight"].T
    assert (program["y"].float() - expected).norm() < 0.05 * expected.norm()
    assert program["y"].dtype == torch.bfloat16
