"""Kernels compiled side by side, before they are wanted.

NVRTC's threads wait for each other, so each compiler is a process (_compile_worker.py). What it makes is found in the
disk cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import _core

# Processors left to who waits for the kernels.
_SPARED = 1


class CompileAhead:
    """A pool of compilers; a context manager, whose end leaves what was not begun."""

    def __init__(self, workers: int | None = None):
        """workers: at once; by default one for each processor of this process but one."""
        count = workers or max(len(os.sched_getaffinity(0)) - _SPARED, 1)
        # Without a cache on disk, what other processes compile is lost.
        self._cached = not _core.cache_info()["problem"]
        self._threads = ThreadPoolExecutor(count, "cleave-compile")
        self._local = threading.local()
        self._processes: list[subprocess.Popen] = []
        self._kernels: dict[str, Future] = {}

    def __enter__(self) -> CompileAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
        self._threads.shutdown()
        for process in self._processes:
            process.wait()

    def submit(self, plan: Any) -> list[Future]:
        """Compiles a plan's kernels, but for those that have been asked for. The results are None, or the error."""
        for source in plan.kernel_sources:
            if source not in self._kernels:
                self._kernels[source] = self._threads.submit(self._compile, source, plan.kernel_arch)
        return [self._kernels[source] for source in plan.kernel_sources]

    def wait(self, plans: Iterable[Any]) -> None:
        """Until the kernels of all plans are compiled. What fails here fails again, and says why, where it is used."""
        for future in [future for plan in plans for future in self.submit(plan)]:
            future.exception()

    @property
    def kernels(self) -> int:
        """How many there have been."""
        return len(self._kernels)

    def _compile(self, source: str, arch: str) -> None:
        process = self._process() if self._cached else None
        if process is None:
            _core.compile_source(source, arch)
            return
        process.stdin.write(json.dumps([source, arch]) + "\n")
        process.stdin.flush()
        process.stdout.readline()

    def _process(self) -> subprocess.Popen | None:
        """This thread's; None where there cannot be one."""
        if not hasattr(self._local, "process"):
            try:
                self._local.process = self._start()
            except OSError:
                self._local.process = None
        return self._local.process

    def _start(self) -> subprocess.Popen:
        package = Path(__file__).parent
        paths = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [sys.executable, "-m", f"{package.name}._compile_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # a Ctrl-C is this process's to handle
        )
        self._processes.append(process)
        return process
