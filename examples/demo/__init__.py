"""The demonstration: the library's jobs, each on real input.

A section is a module with a TITLE and `run(device, console)`, which raises ValueError or
cleave.CudaError if the library fails it. To add one, name it here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

SECTIONS = {
    "least_squares": "examples.demo.least_squares",
    "embeddings": "examples.demo.embeddings",
    "moe": "examples.demo.moe",
    "convolution": "examples.demo.convolution",
}


def run(names: Iterable[str], device: str, console: Any) -> int:
    """Runs the named sections on 'cpu' or 'cuda:<index>'; the exit status."""
    for name in names:
        section = importlib.import_module(SECTIONS[name])
        console.heading(section.TITLE)
        section.run(device, console)
    return 0
