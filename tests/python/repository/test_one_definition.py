"""One name, one type: a type that two files define in one namespace makes the program ill-formed,
and no compiler says so. (Across files, `-flto -Wodr` compares the definitions that are linked.)"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from doc_snippets import ROOT

NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\])'|^\s*#[^\n]*", re.S | re.M)
TOKEN = re.compile(
    r"namespace\s*(?P<namespace>[\w:]*)\s*\{"
    r"|(?:struct|class|union|enum class|enum)\s+(?:alignas\([^)]*\)\s+)?(?P<type>\w+)"
    r"(?:\s+final)?(?:\s*:[^{;()]*)?\s*\{"
    r"|[{}]"
)


def defined_types(source: str) -> Iterator[str]:
    """Qualified names of the types that a file defines, but for those that it keeps to itself."""
    scopes: list[str | None] = []  # None: of a function, a type or no name, in which names are local
    for token in TOKEN.finditer(NOISE.sub(" ", source)):
        if token[0] == "}":
            if scopes:
                scopes.pop()
        elif token["namespace"] is not None:
            scopes.append(token["namespace"] or None)
        else:
            if token["type"] and None not in scopes:
                yield "::".join([*filter(None, scopes), token["type"]])
            scopes.append(None)


def files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for ending in ("*.h", "*.cpp"):
            yield from (ROOT / folder).rglob(ending)


def test_the_reader_of_sources() -> None:
    source = """
namespace cleave { // struct Comment {
namespace { struct Own { int x; }; }
struct Open final : Base<1> { struct Inner { }; };
enum class Kind : uint8_t { a, b };
void f() { struct Local { }; }
namespace cpu { template <class T> class Plan { T x; }; }
struct Declared;
}  // namespace cleave
class Outside { };
"""
    assert list(defined_types(source)) == [
        "cleave::Open", "cleave::Kind", "cleave::cpu::Plan", "Outside",
    ]  # fmt: skip


def test_every_type_has_one_definition() -> None:
    places = defaultdict(set)
    for path in files("include", "kernels", "src", "python/src", "python/torch_ops", "python/jax_ops", "tests/cpp"):
        place = str(path.relative_to(ROOT))
        # An emitted project has the code of products or that of convolutions, of activations or of functions, of a B
        # that is a matrix or of one that is packed.
        kind = (re.findall("project/.*(convolution|function|packed)/", place) or [""])[0]
        for name in defined_types(path.read_text("utf-8")):
            places[kind + name].add(place)
    assert len(places) > 200
    assert not {name: sorted(where) for name, where in places.items() if len(where) > 1}
