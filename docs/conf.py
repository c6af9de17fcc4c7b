"""The documentation's site: `make docs` writes build/site/<version>. Its pages are the repository's Markdown files, the
README first, and the docstrings of the package: nothing is written twice."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "python"))

project = "Cleave"
version = release = re.search(r"project\(cleave VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
copyright = "the Cleave authors, Apache License 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "bench/results/*.md", "integrations/*/README.md"]
exclude_patterns = ["docs/site/contents.md"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
suppress_warnings = ["myst.xref_missing", "toc.not_included"]  # links: `repository_files`; results: linked, not listed

default_role = "py:obj"  # `gemm` in a docstring leads there, if there is such a thing
autodoc_docstring_signature = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_inherit_docstrings = False  # torch.nn.Module's
add_module_names = False
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 100

html_theme = "pydata_sphinx_theme"
html_title = f"Cleave {version}"
html_static_path = ["site/site.css"]
html_css_files = ["site.css"]
html_copy_source = False
# What has no pages below it has no list of them.
html_sidebars = {f"docs/{page}": [] for page in ("benchmarks", "support", "coming-from", "faq")}
html_theme_options = {
    "navbar_start": ["navbar-logo", "version-switcher"],
    "switcher": {"json_url": "../versions.json", "version_match": version},
    "check_switcher": False,  # `versions` writes it when the pages are there
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "friendly",
}

SECTION = re.compile(r"(Args|Returns|Raises):$")


def contents(app: Any, name: str, source: list[str]) -> None:
    """What the site has beyond the README, which says nothing of it."""
    if name == root_doc:
        source[0] += (ROOT / "docs/site/contents.md").read_text()


def plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written for `help()`, as plain text: what they indent outside the sections of arguments, and rows
    of tables, stay as they are written, and no character but the backtick means anything."""
    section = literal = False
    written: list[str] = []
    for line in lines:
        if line and not line.startswith(" "):
            section = SECTION.match(line) is not None
        as_written = not section and line.startswith(("    ", "|"))
        if as_written and not literal:
            written += ["", "::", ""]
        if literal and line and not as_written:
            written.append("")
        literal = as_written or (literal and not line)
        written.append(f"    {line}" if literal else re.sub(r"[*|]", r"\\\g<0>", line))
    lines[:] = written


def repository_files(app: Any, doctree: nodes.document, name: str) -> None:
    """A link to a folder of the repository has no page here: its text stays. One to nothing at all is an error."""
    for link in list(doctree.findall(nodes.reference)):
        target = link.get("refid", "")
        if "/" not in target:
            continue
        if not ((Path(app.srcdir) / name).parent / target.split("#")[0]).exists():
            raise ValueError(f"{name}.md has a link to {target}, which does not exist")
        link.replace_self(nodes.literal("", link.astext()))


def versions(app: Any, failed: Exception | None) -> None:
    """The versions that lie beside this one, for the switch; the folder itself leads to this one."""
    if failed or app.builder.name != "html":
        return
    site = Path(app.outdir).parent
    built = sorted((page.parent.name for page in site.glob(f"*/{root_doc}.html")), reverse=True)
    entries = [{"version": each, "name": each, "url": f"../{each}/{root_doc}.html"} for each in built]
    (site / "versions.json").write_text(json.dumps(entries))
    leads = f'<meta http-equiv="refresh" content="0; url={version}/{root_doc}.html">'
    (site / "index.html").write_text(f"<!doctype html>{leads}<title>Cleave</title>")


def setup(app: Any) -> None:
    app.connect("source-read", contents)
    app.connect("autodoc-process-docstring", plain_text, priority=100)  # before napoleon
    app.connect("doctree-resolved", repository_files)
    app.connect("build-finished", versions)
