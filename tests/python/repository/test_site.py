"""The documentation's site: every public name has its place, the pages are built without a warning, links lead on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from doc_snippets import ROOT

import cleave

API = ROOT / "docs" / "api"


def test_every_public_name_has_its_place() -> None:
    pages = "".join(page.read_text("utf-8") for page in API.glob("*.md"))
    described = set(re.findall(r"^\.\. auto\w+:: (?:cleave\.)?(\w+)", pages, re.M))
    assert set(cleave.__all__) - {"__version__", "smoothing"} <= described


class Page(HTMLParser):
    """What a page leads to, and the places in it that others may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.places.add(value or "")
            elif value and (tag, name) in {("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")}:
                self.links.append(value)


def broken(folder: Path) -> list[str]:
    files = [file.resolve() for file in folder.rglob("*.html") if "_static" not in file.parts]  # the theme's templates
    pages = {file: Page(file.read_text("utf-8")) for file in files}
    found = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            missing = not target.exists()
            if target in pages and parts.fragment:
                missing = unquote(parts.fragment) not in pages[target].places
            if missing:
                found.append(f"{file.relative_to(folder)}: {link}")
    return found


def test_pages_are_built_and_links_lead_on(tmp_path: Path) -> None:
    for module in ("sphinx", "myst_parser", "pydata_sphinx_theme", "sphinx_copybutton"):
        pytest.importorskip(module, reason="the site's tools are not installed: make docs")
    pytest.importorskip("cleave.torch", exc_type=ImportError)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs"]
    command += ["-d", str(tmp_path / "trees"), ".", str(tmp_path / "site" / "version")]
    built = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONWARNINGS": ""}, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 50 and (tmp_path / "site" / "index.html") in pages
    assert broken(tmp_path / "site") == []
