"""The model of what calls over ranks add, and what bench.distributed.experts writes; without a GPU.

In processes of their own: cleave.distributed would add its operators to what other tests of this one see.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("scipy")

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)])}


def run(*arguments: str | Path) -> str:
    done = subprocess.run(arguments, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fit_finds_what_times_were_made_of(tmp_path: Path) -> None:
    """Six sizes, all small, whose times follow from constants."""
    rows = []
    for m in (16, 64, 128, 256, 512, 1024):
        for operation, k in (("all_gather", 8192), ("reduce_scatter", 2048), ("all_reduce", 2048)):
            whole = m * (k if operation == "all_gather" else 1024) * 2
            sent = whole * (2 if operation == "all_reduce" else 1) * 3 / 4  # of four
            graph = {"cleave alone": 20.0, "cleave peer": 25.0 + 0.002 * sent**0.5 + 3e-6 * sent}
            graph["cleave + NCCL"] = 28.0 + 0.004 * sent**0.5 + 5e-6 * sent
            case = {"operation": operation, "case": "o, TP8", "m": m, "n": 1024, "k": k, "halves": False}
            rows.append(case | {"graph": graph, "eager": {}})
    result, model = tmp_path / "result.json", tmp_path / "model.py"
    program = f"from bench import tables; rows = {rows}; of = {{'gpu': 'a GPU', 'gpus': 4}}; "
    program += "print(tables.text({'machine': of, **tables.pack(rows)}))"
    result.write_text(run(sys.executable, "-c", program))
    model.write_text((ROOT / "python/cleave/_cost_over_ranks.py").read_text())
    said = run(sys.executable, "-m", "bench.distributed.fit", result, model)
    assert model.read_text().count("Added(5.00, 0.002, 3e-06)") == 3
    assert model.read_text().count("Added(8.00, 0.004, 5e-06)") == 3
    assert "GPUS = 4  # that" in model.read_text()
    assert "| all_reduce | peer | 5.00 | 0.002 | 333 | 6 | 0.0% | 0.0% |" in said
    assert "| reduce_scatter | 1024 x 1024 x 2048 | 20 | 33 | 43 | 1.28 |" in said  # of eight GPUs


def test_a_refit_keeps_what_it_is_fitted_to() -> None:
    arguments = [sys.executable, "-m", "bench.distributed", "--refit"]
    done = subprocess.run(arguments, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "--refit needs --out, the file of the results that it fits to" in done.stderr


MODEL = """
from cleave._cost_over_ranks import ADDED, Added, added, is_one_shot, nccl_wins
slow = {key: Added(1.0, 0.0, 1e-5 if key[1] == "peer" else 1e-6) for key in ADDED}  # as if memory went over PCIe
for operation in ("all_reduce", "reduce_scatter", "all_gather"):
    assert not any(nccl_wins(operation, 1 << power, 2) for power in range(10, 30))
    assert nccl_wins(operation, 1 << 20, 2, slow) and not nccl_wins(operation, 1 << 12, 2, slow)
    assert not nccl_wins(operation, 1 << 20, 8, slow)  # which was not measured
sizes = [1 << power for power in range(10, 27)]
for size in (2, 4, 8):
    times = [added("all_reduce", "peer", whole, size) for whole in sizes]
    assert times == sorted(times)
    for whole, took in zip(sizes, times):
        one = ADDED["all_reduce", "peer"].of((size - 1) * whole)
        assert (took == one) == is_one_shot(whole, size) and took <= one
assert is_one_shot(16 * 8192 * 2, 2) and is_one_shot(1 << 15, 8) and not is_one_shot(1 << 20, 8)
"""


def test_the_model_takes_the_fewer_trips_that_pay() -> None:
    run(sys.executable, "-c", MODEL)


LAYER = """
import json
from pathlib import Path
from bench import report
from bench.distributed import experts
path = Path({path!r})
experts.write(path, {{"machine": {{"gpu": "a GPU"}}, "rows": [{row}]}})
print(json.dumps(report.load(path)["rows"]))
"""


def test_layers_of_experts_become_a_table(tmp_path: Path) -> None:
    us = {"products": 60.0, "AllToAll": 120.0, "AllToAll, exact": 150.0, "AllGather": 75.0}
    row = {"name": "a layer", "features": 64, "hidden": 32, "experts": 8, "top_k": 2, "dtype": "bfloat16", "tokens": 16}
    row |= {"off": {"AllToAll": 0.0}, "eager": us, "graph": {name: us[name] for name in us if "exact" not in name}}
    path = tmp_path / "x.json"
    assert json.loads(run(sys.executable, "-c", LAYER.format(path=str(path), row=row))) == [row]
    assert (
        "| 64 | 32 | 8 | 2 | bfloat16 | 16 | 60 | 120 | 150 | 75 | 2.00 | 0.80 |" in path.with_suffix(".md").read_text()
    )


def test_a_fit_is_of_one_models_layers(tmp_path: Path) -> None:
    """Others judge it."""
    command = [sys.executable, "-m", "bench.distributed", "--model", "DeepSeek-V3", "--refit"]
    command += ["--out", str(tmp_path / "distributed.json")]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "others judge what follows from it" in done.stderr
