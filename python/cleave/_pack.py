"""`cleave.build_pack`: kernels compiled ahead, in one file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _core


@dataclass(frozen=True)
class Pack:
    """A file of compiled kernels.

    path: the file. kernels: how many it has. bytes: its size. problem: why the pack cannot be used where it is, and the
    remedy; empty if it can.
    """

    path: Path
    kernels: int
    bytes: int
    problem: str


def build_pack(path: str | os.PathLike, plans: Any = None) -> Pack:
    """Writes compiled kernels to a file, a *pack*, so that other processes and machines need not compile them.

    A process that is started with `CLEAVE_PACKS` naming the file loads kernels from it, without NVRTC. (The variable
    takes several files, or directories of `*.pack`, separated by ":".) A pack serves the same build of Cleave on any
    processor, on GPUs of the kernels' architecture whose driver supports the major version of the CUDA that compiled
    it. `cleave info` tells why a pack is not used.

    Args:
        path: the file, which is replaced as a whole or not at all.
        plans: a GemmPlan or QuantizePlan, or several, whose kernels are compiled and packed; they may be planned for
            another machine's GPU. Defaults to all kernels that this process has loaded: call it at the end of a
            server's warm-up, after `cleave.prepare`, say.

    Raises:
        ValueError: there is no kernel to pack.
        CudaError: a kernel cannot be compiled.
        OSError: the file cannot be written.

    Only packs that belong to the user or to root, in directories that nobody else may write to, are used; if this one
    is not, the result's `problem` says so.
    """
    sources = _core.loaded_kernels() if plans is None else sources_of(plans)
    if not sources:
        raise ValueError(
            "this process has loaded no kernel yet; call build_pack after what it runs has run once, or pass plans"
            if plans is None
            else "plans have no kernels: the CPU backend compiles none; plan for a GPU"
        )
    return write_pack(path, sources)


def sources_of(plans: Any) -> list[tuple[str, str]]:
    """The kernels of one plan or several as (source, architecture), each once."""
    several = [*plans] if isinstance(plans, Iterable) else [plans]
    for plan in several:
        if not hasattr(plan, "kernel_sources"):
            raise TypeError(f"plans has a {type(plan).__name__}; it must be a GemmPlan or QuantizePlan, or several")
    return list(dict.fromkeys((source, plan.kernel_arch) for plan in several for source in plan.kernel_sources))


def write_pack(path: str | os.PathLike, sources: list[tuple[str, str]]) -> Pack:
    """The pack of these kernels."""
    target = Path(path)
    content = _core.make_pack(sources)
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    try:
        # Exclusive, and written by nobody else, whatever the umask: others' packs are not believed.
        with os.fdopen(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return Pack(target, len(set(sources)), len(content), _core.pack_info(str(target))["problem"])
