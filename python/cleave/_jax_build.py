"""Whether cleave.jax was built here, and what makes it work if not. Imports no jax."""

from . import _extension_build

LIBRARY = _extension_build.PACKAGE / "_jax_ops.so"

OLDEST_JAX = "0.10"  # of whose types inside shard_map results are made


def remedy() -> str:
    """What to run so that `import cleave.jax` works; empty if nothing is missing."""
    return _extension_build.remedy("jax", OLDEST_JAX, LIBRARY)
