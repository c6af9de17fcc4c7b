"""The problems that an application met, which ran with CLEAVE_LOG_SHAPES=FILE."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def problems(log: Path) -> Iterable[str]:
    """The file's problems, each once, in the order of the log, as `_core.plan_text` takes them."""
    lines = (line.strip() for line in log.read_text().splitlines())
    return dict.fromkeys(line for line in lines if line and not line.startswith("#"))
