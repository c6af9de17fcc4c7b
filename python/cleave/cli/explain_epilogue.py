"""What `cleave explain --epilogue` says of an epilogue function: its graph, and what it costs."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._epilogue import Epilogue
from .._epilogue.graph import parse
from ..testing import cubin
from ..testing.dtypes import DTYPES
from .console import Console, format_bytes
from .epilogue_option import Case, plan


def explain(console: Console, case: Case, epilogue: Epilogue, planned: Any, device: str) -> None:
    graph = parse(epilogue.text)
    console.heading(f"epilogue {epilogue.__name__}")
    for line in epilogue.text.splitlines():
        console.print(f"  {line}")
    console.heading("what it costs")
    console.pairs(
        [
            ("matrices", f"{format_bytes(_bytes(case, epilogue))} more to move than the {format_bytes(case.bytes)}"),
            ("operations", f"{len(graph.values)} an element of D"),
            *([("reductions", _joining(planned))] if graph.reductions else []),
            *_code(planned),
            ("rules out", _ruled_out(case, planned, device)),
        ]
    )


def _joining(planned: Any) -> str:
    if len(planned.kernel_sources) == 1:
        return "no second launch: a tile has whole lines"
    return "a second launch, which joins what tiles leave"


def _bytes(case: Case, epilogue: Epilogue) -> int:
    """Those of the function's inputs and further outputs."""
    graph = parse(epilogue.text)
    whole = [output for name, output in graph.outputs.items() if name not in graph.reductions]
    of_d, *others = (dtype or case.result_dtype for dtype, _ in whole)
    element = sum(DTYPES[dtype].bytes for dtype in others) + DTYPES[of_d].bytes - DTYPES[case.result_dtype].bytes
    element += list(graph.inputs.values()).count("matrix") * DTYPES[case.result_dtype].bytes
    count, rows, columns = case.result_shape
    lines = {"row": columns, "column": rows}
    vectors = sum(lines.get(shape, 0) for shape in graph.inputs.values()) * DTYPES["float32"].bytes
    return count * rows * columns * element + vectors


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


def _ruled_out(case: Case, planned: Any, device: str) -> str:
    """The tiles that serve the product without the function only."""

    def tiles(plan: Any) -> set[str]:
        return {" ".join(candidate["kernel"].split()[:2]) for candidate in plan.candidates}

    lost = sorted(tiles(plan(case, None, device)) - tiles(planned))
    if not lost:
        return "no tile"
    return f"{len(lost)} tiles, for which registers do not suffice: {', '.join(lost)}"
