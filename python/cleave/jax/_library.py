"""Loading what is written in C++, and telling XLA of it."""

from __future__ import annotations

import ctypes

from .. import _jax_build

try:
    import jax
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ModuleNotFoundError(
        f"cleave.jax needs jax {_jax_build.OLDEST_JAX} or newer, and there is none. Run: {_jax_build.remedy()}",
        name="jax",
    ) from None

TARGET = "cleave_product"


def load() -> None:
    """Registers the target, or raises ImportError saying what to run."""
    remedy = _jax_build.remedy()
    if remedy:
        raise ImportError(
            f"cleave.jax is not built: it is where there is jax {_jax_build.OLDEST_JAX} or newer; here is jax "
            f"{jax.__version__}. Run: {remedy}"
        )
    library = ctypes.CDLL(str(_jax_build.LIBRARY))
    for platform, handler in (("cpu", library.cleave_jax_product_on_cpu), ("CUDA", library.cleave_jax_product_on_cuda)):
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler), platform)
