"""vLLM's linear layers in 8 and 4 bits, and experts in 8, by Cleave: the entry point of `vllm.general_plugins`."""

from __future__ import annotations

import logging
from typing import Any

_log = logging.getLogger(__name__)


def register(platform: Any = None) -> None:
    """Registers the kernels, to be tried before vLLM's own; once, whatever the number of calls.

    platform: a PlatformEnum; CUDA by default. Where Cleave's operators cannot be loaded, a warning says why and what to
    run, and vLLM goes on without them.
    """
    try:
        import cleave.torch  # noqa: F401
    except ImportError as error:
        _log.warning("Cleave's kernels are left out: %s", error)
        return
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.fused_moe.oracle import fp8, int8
    from vllm.platforms import PlatformEnum

    from .experts import offer
    from .linear import KERNELS
    from .mixed import CleaveMixedLinearKernel

    platform = PlatformEnum.CUDA if platform is None else platform
    for kind, kernel in (KERNELS | {"mp": CleaveMixedLinearKernel}).items():
        known = linear._POSSIBLE_KERNELS if kind == "mp" else getattr(linear, f"_POSSIBLE_{kind.upper()}_KERNELS")
        if kernel in known.get(platform, ()):
            continue
        linear.register_linear_kernel(kernel, platform, kind)
        known[platform].insert(0, known[platform].pop())
    offer(fp8)
    offer(int8)
