"""examples/resnet/train.py as a module, for the tests on the CPU and on a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "resnet"


def load(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Importable, with the files beside it, while the test runs."""
    monkeypatch.syspath_prepend(FOLDER)
    name = "resnet_example_train"
    spec = importlib.util.spec_from_file_location(name, FOLDER / "train.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
