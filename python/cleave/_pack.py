"""`cleave.build_pack`: kernels compiled ahead, in one file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _core


@dataclass(frozen=True)
class Pack:
    """path: of the file. kernels: that it has. bytes: its size. problem: why it is of no use where it is now, and the
    remedy; empty if there is none."""

    path: Path
    kernels: int
    bytes: int
    problem: str


def build_pack(path: str | os.PathLike, plans: Any = None) -> Pack:
    """Writes kernels to a file, a *pack*, with which another process, or another machine, compiles none of them.

    Whoever starts with `CLEAVE_PACKS` set to the file (several, or directories of `*.pack`, with ":" between them)
    loads its kernels from there, and needs no NVRTC for them. A pack serves one build of Cleave, whatever the machine's
    processor, and GPUs of the kernels' architecture whose driver is at least of the major version of the CUDA that
    compiled it; `cleave info` says so where one is not used.

    path: of the file, which is replaced as a whole, or not at all.
    plans: whose kernels are compiled and packed: a GemmPlan or QuantizePlan, or several, also such that were planned
        for a GPU of another machine. By default all kernels that this process has loaded: call it at the end of a
        server's warm-up, say after `cleave.prepare`.

    ValueError where there is no kernel to pack; CudaError where one cannot be compiled; OSError where the file cannot
    be written. Only packs of the user's own, or root's, are used, in directories that nobody else may write: the
    result's `problem` says so where this one will not be.
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
    several = plans if isinstance(plans, Iterable) else [plans]
    return list(dict.fromkeys((source, plan.kernel_arch) for plan in several for source in plan.kernel_sources))


def write_pack(path: str | os.PathLike, sources: list[tuple[str, str]]) -> Pack:
    """The pack of these kernels."""
    target = Path(path)
    content = _core.make_pack(sources)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
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
