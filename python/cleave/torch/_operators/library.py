"""Loading the operators that are written in C++."""

from __future__ import annotations

from ... import _torch_build

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        f"cleave.torch needs torch {_torch_build.OLDEST_TORCH} or newer, and there is none. Run: "
        f"{_torch_build.remedy()}",
        name="torch",
    ) from None


def load() -> None:
    """Makes torch.ops.cleave, or raises ImportError saying what to run."""
    remedy = _torch_build.remedy()
    if not remedy:
        torch.ops.load_library(_torch_build.LIBRARY)
        from ..._torch_precision import follow_torch

        follow_torch(_torch_build.LIBRARY)
        return
    raise ImportError(
        f"torch.ops.cleave is missing: it is built where there is torch "
        f"{_torch_build.OLDEST_TORCH} or newer; here is torch {torch.__version__}. Run: {remedy}"
    )
