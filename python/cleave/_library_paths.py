"""Where NVIDIA's wheels put libnvrtc."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from . import _core


def register() -> None:
    """Names those directories to the compiled module, without importing anything."""
    for root in dict.fromkeys(_roots()):
        for wheel in ("cu13", "cuda_nvrtc"):
            directory = os.path.join(root, "nvidia", wheel, "lib")
            if os.path.isdir(directory):
                _core.add_library_search_path(directory)


def _roots() -> Iterator[str]:
    """This package's folder of packages and, since a checkout lies outside of it, the import path.

    Python puts the current directory there: whoever can write to that must not choose a library.
    """
    yield os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        current = os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        current = ""
    for entry in sys.path:  # of which Python ignores what is no string
        if isinstance(entry, str) and os.path.isabs(entry) and os.path.realpath(entry) != current:
            yield entry
