"""Whether torch.ops.cleave was built here, and what makes it work if not. Imports no torch."""

from . import _extension_build

LIBRARY = _extension_build.PACKAGE / "_torch_ops.so"

OLDEST_TORCH = "2.10"  # of whose stable ABI the operators are made: cmake/torch.cmake


def remedy() -> str:
    """What to run so that `import cleave.torch` works; empty if nothing is missing."""
    return _extension_build.remedy("torch", OLDEST_TORCH, LIBRARY)
