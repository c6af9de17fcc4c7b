"""The commands on operations that have one kernel for a problem: routers, their logits, low-rank adapters."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli_calls import EPILOGUES, run

from cleave.testing import lora, route, router_logits
from cleave.testing.arrays import NumpyArrays

ROUTE = ("route", "--tokens", "1,37", "--experts", "32,64", "--top-k", "4")
LOGITS = ("router_logits", "--tokens", "1,9", "--experts", "48", "--features", "200,1024")
LORA = ("lora", "--rows", "40", "--features", "96", "--outputs", "72", "--adapters", "1,7", "--rank", "8,17")
DEEPSEEK = ("--scoring-func", "sigmoid", "--n-group", "8", "--topk-group", "4", "--bias", "yes")
CPU = ("--device", "cpu", "--iterations", "1")


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ((*ROUTE, "--dtype", "fp32,fp16", "--scoring-func", "softmax,sigmoid"), 16),
        ((*ROUTE, *DEEPSEEK), 4),
        ((*LOGITS, "--dtype", "fp16", "--weight-dtype", "fp16,fp32", "--static-weight", "no,yes"), 16),
        ((*LORA, "--dtype", "fp16", "--sizes", "uniform,zipf"), 8),
    ],
    ids=["route", "deepseek", "logits", "lora"],
)
def test_profile_verifies(capsys, tmp_path, command, count):
    path = tmp_path / "rows.json"
    status, out, _ = run(capsys, "profile", *command, *CPU, "--json", str(path))
    assert status == 0, out
    rows = json.loads(path.read_text())
    assert len(rows) == count
    assert all(row["verified"] and row["us"] > 0 and row["workspace_bytes"] == 0 for row in rows)


def test_profile_types_of_torch(capsys):
    pytest.importorskip("torch")
    for command in (LOGITS, LORA):
        status, out, _ = run(capsys, "profile", *command, *CPU)
        assert status == 0, out


def test_a_wrong_result_is_found():
    arrays = NumpyArrays()
    cases = (
        (route, route.RouteCase(9, 32, 4)),
        (router_logits, router_logits.RouterLogitsCase(9, 32, 100, "float32")),
        (lora, lora.LoraCase(9, 64, 32, dtype="float16")),
    )
    for module, case in cases:
        operands = module.make_operands(arrays, case)
        module.run(module.plan_for(case, operands), operands, None)
        assert module.errors(arrays, case, operands).acceptable
        if module is route:
            operands.ids = np.roll(operands.ids, 1, 0)
        elif module is lora:
            operands.out = operands.before
        else:
            operands.logits = operands.logits * np.float32(1.001)
        assert not module.errors(arrays, case, operands).acceptable


@pytest.mark.parametrize("command", [(*ROUTE, "--bias", "yes"), LOGITS, LORA], ids=lambda command: command[0])
def test_explain_without_a_gpu(capsys, command):
    status, out, _ = run(capsys, "explain", *command, "--device", "h200")
    assert status == 0
    assert out.count(" on h200") == out.count("nothing to choose, or to tune") == 4
    assert out.count("roofline ") == 4
    assert "candidates" not in out
    status, out, err = run(capsys, "explain", *command, "--epilogue", f"{EPILOGUES}:gelu_residual")
    assert status == 1
    assert "--epilogue is for products" in out + err


def test_what_cannot_be_planned_is_said(capsys):
    status, out, _ = run(capsys, "profile", "route", "--tokens", "4", "--experts", "8,16", "--top-k", "9", *CPU)
    assert status == 1
    assert "top_k is 9" in out
    assert "9 of 16" in out


@pytest.mark.parametrize("operation", ["route", "router_logits", "lora"])
@pytest.mark.parametrize("command", ["tune", "compile"])
def test_what_has_nothing_to_choose_is_not_tuned(capsys, command, operation):
    with pytest.raises(SystemExit):
        run(capsys, command, operation)
    assert "one kernel for each shape" in capsys.readouterr().err
