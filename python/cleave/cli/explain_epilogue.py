"""What `cleave explain --epilogue` says of an epilogue function: its graph, and what it costs."""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .. import _core
from .._epilogue import BoundEpilogue, Epilogue
from .._epilogue.graph import parse
from ..testing import cubin
from ..testing.case import GemmCase
from ..testing.dtypes import DTYPES
from .console import Console, format_bytes


def function(text: str) -> Epilogue:
    """FILE.py:NAME, a function that the file decorates with @cleave.epilogue."""
    path, _, name = text.rpartition(":")
    try:
        found = runpy.run_path(path).get(name) if path else None
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(found, Epilogue):
        raise argparse.ArgumentTypeError(f"{text!r} is no FILE.py:NAME of a function decorated with @cleave.epilogue")
    return found


def typed(epilogue: Epilogue, case: GemmCase) -> BoundEpilogue:
    """With types in place of arrays: scalars are numbers, rows and columns float32, matrices as D."""
    types: Mapping[str, Any] = {"scalar": 1.0, "row": "float32", "column": "float32", "matrix": case.result_dtype}
    return epilogue(**{name: types[shape] for name, shape in parse(epilogue.text).inputs.items()})


def plan(case: GemmCase, epilogue: Epilogue | None, device: str) -> Any:
    import cleave

    return cleave.plan_problem(**asdict(case), epilogue=epilogue and typed(epilogue, case), device=device)


def explain(console: Console, case: GemmCase, epilogue: Epilogue, planned: Any, device: str) -> None:
    graph = parse(epilogue.text)
    console.heading(f"epilogue {epilogue.__name__}")
    for line in epilogue.text.splitlines():
        console.print(f"  {line}")
    console.heading("what it costs")
    console.pairs(
        [
            ("matrices", f"{format_bytes(_bytes(case, epilogue))} more to move than the {format_bytes(case.bytes)}"),
            ("operations", f"{len(graph.values)} an element of D"),
            *_code(planned),
            ("rules out", _ruled_out(case, planned, device)),
        ]
    )


def _bytes(case: GemmCase, epilogue: Epilogue) -> int:
    """Those of the function's inputs and further outputs."""
    graph = parse(epilogue.text)
    of_d, *others = (dtype or case.result_dtype for dtype, _ in graph.outputs.values())
    element = sum(DTYPES[dtype].bytes for dtype in others) + DTYPES[of_d].bytes - DTYPES[case.result_dtype].bytes
    element += list(graph.inputs.values()).count("matrix") * DTYPES[case.result_dtype].bytes
    lines = {"row": case.n, "column": case.m}
    vectors = sum(lines.get(shape, 0) for shape in graph.inputs.values()) * DTYPES["float32"].bytes
    return case.batch * case.m * case.n * element + vectors


def _code(planned: Any) -> list[tuple[str, str]]:
    """What ptxas makes of the kernel, where there is one and NVRTC."""
    if not planned.kernel_source:
        return []
    try:
        kernel = _core.compile_plan(planned)
    except (RuntimeError, ValueError):
        return []
    instructions = cubin.count(kernel["cubin"]).instructions
    spills = f", {kernel['spill_bytes']} bytes spilled" if kernel["spill_bytes"] else ", none spilled"
    return [("registers", f"{kernel['registers']} a thread{spills}; {instructions} instructions")]


def _ruled_out(case: GemmCase, planned: Any, device: str) -> str:
    """The tiles that serve the product without the function only."""

    def tiles(plan: Any) -> set[str]:
        return {" ".join(candidate["kernel"].split()[:2]) for candidate in plan.candidates}

    lost = sorted(tiles(plan(case, None, device)) - tiles(planned))
    if not lost:
        return "no tile"
    return f"{len(lost)} tiles, for which registers do not suffice: {', '.join(lost)}"
