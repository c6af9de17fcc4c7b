"""The operator in C++: a library beside this file."""

from __future__ import annotations

from pathlib import Path

import torch


def load_library() -> None:
    """Registers the operator. Raises ImportError, saying why it cannot."""
    folder = Path(__file__).parent
    library = next(folder.glob("_C*.so"), None)
    if library is None:
        raise ImportError(f"{folder.name} is not built: run `pip install {folder.parent}`")
    try:
        torch.ops.load_library(library)
    except OSError as error:  # which says that, and has the reason as its cause
        reason = error.__cause__ or error
        raise ImportError(f"{library} cannot be loaded: {reason}") from error
