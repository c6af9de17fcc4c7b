"""Where NVIDIA's wheels put libnvrtc."""

from __future__ import annotations

import os
import sys

from . import _core


def register() -> None:
    """Names those directories to the compiled module, without importing anything."""
    site_packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # A checkout lies outside site-packages, so the import path is searched too.
    for root in dict.fromkeys([site_packages, *sys.path]):
        for wheel in ("cu13", "cuda_nvrtc"):
            directory = os.path.join(root, "nvidia", wheel, "lib")
            if os.path.isdir(directory):
                _core.add_library_search_path(directory)
