"""What bench.distributed measured as files, and as lines of the README; without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import readme, report
from bench.distributed import plot as distributed_plot
from bench.distributed import report as distributed_report

MACHINE = {"gpu": "NVIDIA H100 80GB HBM3", "gpus": 2}


def row(operation: str, ours: float, unfused: float, **more: Any) -> dict[str, Any]:
    graph = {"cuBLAS alone": 12.0, "cuBLAS + NCCL": unfused, "cleave alone": 10.0, "cleave + NCCL": unfused + 3}
    eager = {name: us + 50 for name, us in graph.items()} | {"cleave peer": ours + 70, "torch fused": 200.0}
    case = {"operation": operation, "case": "down, TP8", "m": 64, "n": 8192, "k": 3584}
    return case | {"eager": eager, "graph": graph | {"cleave peer": ours}} | more


def test_rows_become_a_table_and_come_back(tmp_path: Path) -> None:
    rows = [row("all_reduce", 14.0, 28.0), row("reduce_scatter", 20.0, 30.0), row("all_reduce", 40.0, 20.0)]
    failed = row("all_reduce", 0.0, 20.0, without={"cleave peer": "no peers"})
    del failed["graph"]["cleave peer"]
    path = tmp_path / "distributed.json"
    distributed_report.write(path, {"machine": MACHINE, "rows": [*rows, failed]})
    result = report.load(path)
    found = list(distributed_report.gains(result["rows"], 2))
    assert [(gain.ours, gain.unfused, gain.product) for gain in found] == [(14, 28, 10), (40, 20, 10), (20, 30, 10)]
    assert found[0].hidden == (28 - 14) / (28 - 10) and found[1].hidden < 0
    assert found[0].most == 28 / 10 and found[2].wire == 64 * 8192 / 3.7e5  # half of the rows, of 2 bytes
    assert found[0].eager == 84 and found[0].unfused_eager == 78 and found[0].torch_fused == 200
    page = path.with_suffix(".md").read_text()
    assert (
        "| all_reduce | down, TP8 | 64 x 8192 x 3584 | 10.0 | 2.8 | 14.0 | 28.0 | 2.00 | 2.80 | 0.78 | 200 | 84 | 78 |"
        in page
    )
    assert "all_reduce, local sizes of TP8: geomean 1.00, of 2.37 at most." in page
    distributed_report.write(path, result)
    assert path.with_suffix(".md").read_text() == page


def test_the_readme_has_a_line_of_each_operation(tmp_path: Path) -> None:
    rows = [row("all_reduce", 10.0, 20.0), row("all_reduce", 40.0, 20.0), row("all_gather", 10.0, 11.0)]
    assert readme.job_lines(tmp_path)[2:] == []
    distributed_report.write(tmp_path / "distributed.json", {"machine": MACHINE, "rows": rows})
    _, _, first, second = readme.job_lines(tmp_path)
    assert "Llama-3-70B, all-gather, 1 shapes" in first and "| H100 | geomean 1.10, worst 1.10, best 1.10 |" in first
    assert "Llama-3-70B, all-reduce, 2 shapes" in second and "| H100 | geomean 1.00, worst 0.50, best 2.00 |" in second


def test_a_picture_has_a_panel_of_each_operation(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [row("all_reduce", 10.0, 20.0), row("all_gather", 10.0, 11.0)]
    pictures = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for path in pictures:
        distributed_plot.write(path, {"machine": MACHINE, "rows": rows})
    text, again = (path.read_text() for path in pictures)
    assert text == again and "all_reduce, down, TP8" in text and "all_gather, down, TP8" in text
