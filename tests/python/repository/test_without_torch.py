"""A machine without torch, which `make` never installs, runs the tests that need none, and skips the others."""

from __future__ import annotations

import os
import subprocess
import sys

from doc_snippets import ROOT

COLLECT = """
import sys, pytest
sys.modules |= dict.fromkeys(("torch", "jax", "ml_dtypes"))  # importing them fails, as where they are not
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests"]))
"""


def test_every_file_is_collected() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    environment["PYTHONPATH"] = str(ROOT / "python")
    made = subprocess.run(
        [sys.executable, "-c", COLLECT], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )
    assert made.returncode == 0, made.stdout[-4000:]
