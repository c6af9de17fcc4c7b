"""The benchmark as a program: from a suite to its report, and what it refuses."""

from __future__ import annotations

import math
import types
from dataclasses import replace

import pytest
from bench_rows import (
    MACHINE,
    row,
    suite_of,
)
from bench_stand_ins import (
    SMALL,
    StandInGpu,
    TorchStandIn,
)

import cleave
from bench import __main__ as harness
from bench import bits, host, machine, peers, precompile, report, suites
from bench.operations import quantize
from bench.operations.products import conv
from cleave.testing import arrays
from cleave.testing.case import GemmCase


def test_kernels_are_compiled_ahead_and_once(monkeypatch):
    sources = []
    monkeypatch.setattr(
        precompile._core, "compile_plan", lambda plan: sources.append(plan.kernel_source), raising=False
    )
    cases = [*SMALL, SMALL[0], quantize.Case(8, 128), replace(SMALL[0], padding=0, filter_size=99)]
    assert precompile.compile_kernels(cases, "h100") == len(sources) == len(set(sources)) <= 3
    assert precompile.compile_kernels(SMALL, "cpu") == 0


@pytest.mark.parametrize(
    ("case", "called"),
    [
        (GemmCase(16, 16, 16), ["cleave.gemm(out=)", "cleave.gemm", "torch.mm(out=)", "torch.mm"]),
        (
            GemmCase(32, 16, 16, dtype="int8", scaling="row"),
            ["cleave.scaled_gemm(out=)", "cleave.scaled_gemm", "torch._int_mm(out=)"],
        ),
    ],
    ids=["bfloat16", "int8"],
)
def test_host_times_of_every_way_to_call(monkeypatch, case, called):
    torch = pytest.importorskip("torch")
    current = types.SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(cleave._core, "launch_floor", lambda *_: 0.5, raising=False)
    monkeypatch.setattr(host, "CALLS", 2)
    found, missing = peers.load(["cublas", "cublas_int8"])
    made = host.host_times(arrays.TorchArrays("cpu"), case, found, 3)
    assert not missing
    times = {row["call"]: row["us"] for row in made}
    assert times["an empty kernel"] == 0.5
    assert {"C++ plan->run", "plan.run", *called} <= set(times)
    assert all(us > 0 for us in times.values())
    assert {row["case"] for row in made} == {case.title}
    operators = [call for call in times if call.startswith("torch.ops.cleave")]
    assert bool(operators) != ("torch.ops.cleave" in made[0]["without"])


def test_commit_from_the_environment(monkeypatch):
    monkeypatch.setenv("CLEAVE_COMMIT", "1234")
    assert machine.commit() == "1234"


@pytest.mark.parametrize(("failed", "said"), [(0, 3), (1, 0)])
def test_processes_that_have_the_gpu(failed, said):
    def running(device, count, found):
        count._obj.value = 3
        return failed

    sensors = machine.Sensors()
    sensors._nvml = types.SimpleNamespace(nvmlDeviceGetComputeRunningProcesses_v3=running)
    assert sensors.processes() == said
    sensors._nvml = None
    assert sensors.processes() == 0


def test_peers_are_imported_or_explained():
    found, missing = peers.load(peers.names())
    assert {peer.name for peer in found} | set(missing) == set(peers.names())
    assert all(missing.values())


def test_time_budget_leaves_cases_out():
    suite = suites.load("large_k")

    def measure_case(case):
        return [row(case.title, 1.0)]

    rows, notes, failed = harness._measure(suite, measure_case, deadline=0.0)
    assert (rows, failed) == ([], [])
    assert notes == ["7 of 7 cases left out: the time was up."]
    rows, notes, failed = harness._measure(suite, measure_case, deadline=math.inf)
    assert (len(rows), notes, failed) == (7, [], [])


def test_a_case_that_fails_leaves_the_others(capsys):
    suite = suites.load("large_k")
    titles = [case.title for case in suite.cases]

    def measure_case(case):
        if case.title == titles[1]:
            raise cleave.CudaError("an illegal\n address.")
        return [row(case.title, 1.0)]

    rows, notes, failed = harness._measure(suite, measure_case, deadline=math.inf)
    assert [row["case"] for row in rows] == [titles[0], *titles[2:]]
    assert notes == [f"{titles[1]} failed: an illegal address."]
    assert failed == [titles[1]]


@pytest.fixture
def shrink(short, monkeypatch):
    """Has suites run on the CPU: shrink(count, **changes) leaves so many cases of each, changed."""
    pytest.importorskip("torch")
    monkeypatch.setattr(harness, "_gpu", lambda device: TorchStandIn("cpu"))
    monkeypatch.setattr(harness, "_warm_up", lambda arrays: None)
    monkeypatch.setattr(machine, "describe", lambda index: MACHINE)
    load = suites.load

    def shrink(count, **changes):
        def small(name, *options):
            whole = load(name, *options)
            cases = [replace(case, **changes) for case in whole.cases[:count]]
            return replace(whole, groups=[suites.Group("few", cases)])

        monkeypatch.setattr(suites, "load", small)

    return shrink


def test_groups_and_steps_from_suite_to_report(shrink, tmp_path, capsys):
    shrink(1, tokens=90, n=32, k=48)
    names = "grouped_fwd,grouped_loop"
    assert harness.main(["--suite", names, "--quick", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "torch_grouped's time over ours" in out
    assert "Host time at most" in out
    _, missing = peers.load(["deepgemm_grouped"])
    assert bool(missing) == ("Without deepgemm_grouped:" in out)
    for name in names.split(","):
        result = report.load(tmp_path / f"{name}.json")
        assert result["rows"][0]["verified"]
        assert (tmp_path / f"{name}.md").read_text().count("\n| ") == 3
    rows = report.load(tmp_path / "grouped_loop.json")["rows"]
    assert set(rows[0]["peers"]) == {"expert_loop", "torch_grouped_step"}


def test_convolutions_from_suite_to_report(shrink, monkeypatch, tmp_path, capsys):
    shrink(2, images=1, size=(6, 7), filters=16)
    plan_of = conv.testing.plan_for  # the CPU has one kernel
    monkeypatch.setattr(conv.testing, "plan_for", lambda case, o: plan_of(replace(case, kernel="auto"), o))
    names = "conv_fprop,conv_dgrad,conv_wgrad,division"
    assert harness.main(["--suite", names, "--quick", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("cudnn's time over ours") == 3
    assert "cleave_plain's time over ours" in out
    for name in names.split(","):
        rows = report.load(tmp_path / f"{name}.json")["rows"]
        assert all(row["verified"] for row in rows if "us" in row)
        lines = (tmp_path / f"{name}.md").read_text().splitlines()
        assert sum(line.startswith("| ") for line in lines) >= 2 + 2


def test_what_no_kernel_serves_is_reported(short):
    case = replace(SMALL[1], kernel="sm90")
    suite = suite_of("peers", [case], operation=conv)
    measure = harness._measurer(StandInGpu(), suite, [], 7)
    rows, (note,), failed = harness._measure(suite, measure, math.inf)
    assert (rows, failed) == ([], [case.title])
    assert note.startswith(f"{case.title} failed: ") and "kernel" in note


@pytest.mark.skipif(cleave.device_count() > 0, reason="there is a GPU")
def test_refuses_without_a_gpu(capsys):
    assert harness.main([]) == 1
    assert "needs an NVIDIA GPU" in capsys.readouterr().err


def test_refuses_the_cpu(capsys):
    assert harness.main(["--device", "cpu"]) == 1
    assert "measures GPUs" in capsys.readouterr().err


def test_refuses_a_match_of_nothing(capsys):
    assert harness.main(["--match", "no such case"]) == 1
    assert "no case has 'no such case' in its title" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--suite", "nothing"], ["--rounds", "3"], ["--bogus"]])
def test_wrong_usage(arguments):
    with pytest.raises(SystemExit) as exit_:
        harness.main(arguments)
    assert exit_.value.code == 2


@pytest.mark.parametrize("name", bits.CASES)
def test_plans_whose_bits_are_compared(name):
    """Each is one that the library makes, as it is named, and differs from the one it is compared with."""
    case = bits.CASES[name]
    planned = case.plan("h100")
    found = bits.questions(case)
    for question in found:
        for kernel in (question.base, *question.others):
            assert cleave._core.plan_as(planned, kernel).kernel_name == kernel
        assert question.base not in question.others
    asked = {question.words for question in found if question.others}
    assert {"tile", "tile, of 4 slices", "transposed", "slices", "stream_k"} <= asked
    assert name == "ieee" or {"multicast 2x1", "multicast 1x2", "portable kernel"} <= asked


def test_a_table_of_bits():
    text = bits.table({"bf16": {"tile": (0, 13), "slices": (4, 4)}, "int8": {"tile": (0, 9)}})
    assert text.splitlines() == [
        "| what differs | bf16 | int8 |",
        "|---|---|---|",
        "| tile | same, 13 | same, 9 |",
        "| slices | **4** of 4 | - |",
    ]
