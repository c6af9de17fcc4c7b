"""GemmPlan: its properties, and that it runs only what it was made for."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import cleave


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.fixture
def plan() -> cleave.GemmPlan:
    return cleave.plan_gemm(f32(4, 6), f32(6, 5))


def test_properties() -> None:
    plan = cleave.plan_gemm(f32(64, 4096), f32(4096, 64), split_k_mode="parallel", split_k_slices=4)
    assert plan.split_k_mode == "parallel" and plan.split_k_slices == 4
    assert plan.workspace_size >= 4 * 64 * 64 * 4
    assert 0 <= plan.counter_size <= plan.workspace_size
    assert isinstance(plan.kernel_name, str) and plan.kernel_name
    assert plan.kernel_source == ""
    assert plan.why and plan.roofline_us > 0
    assert "parallel" in repr(plan)
    fields = {"kernel", "split_k_mode", "split_k_slices", "predicted_us", "workspace_size"}
    assert plan.candidates and all(set(candidate) == fields for candidate in plan.candidates)


def test_auto_is_resolved(plan: cleave.GemmPlan) -> None:
    assert plan.split_k_mode in ("none", "serial", "parallel", "cluster", "stream_k")
    assert plan.split_k_slices >= 1


def test_properties_cannot_be_set(plan: cleave.GemmPlan) -> None:
    with pytest.raises(AttributeError):
        plan.workspace_size = 3
    with pytest.raises(TypeError):
        cleave.GemmPlan()


def test_other_arrays_of_the_form(plan: cleave.GemmPlan) -> None:
    plan.prepare()
    for scale in (1, 2, 3):
        assert (plan.run(scale * f32(4, 6), f32(6, 5), alpha=2) == 12 * scale).all()


@pytest.mark.parametrize(
    ("a", "b", "options", "words"),
    [
        (f32(4, 7), f32(7, 5), {}, "1 x 4 x 5 x 7, but the plan is for 1 x 4 x 5 x 6"),
        (f32(2, 4, 6), f32(6, 5), {}, "2 x 4 x 5 x 6"),
        (f32(6, 4).T, f32(6, 5), {}, r"a is float32 with strides \(0, 1, 4\)"),
        (f32(4, 6), f32(6, 8)[:, :5], {}, r"b is float32 with strides \(0, 8, 1\)"),
        (np.ones((4, 6), np.float16), np.ones((6, 5), np.float16), {}, "a is float16"),
        (f32(4, 6), f32(6, 5), {"out": np.ones((4, 5), np.float16)}, "out is float16"),
        (f32(4, 6), f32(6, 5), {"out": f32(4, 8)[:, :5]}, "out is float32 with strides"),
        (f32(4, 6), f32(6, 5), {"c": f32(4, 5)}, "c is given, but the plan is for none"),
        (f32(4, 6), f32(6, 5), {"bias": f32(5)}, "bias is row, but the plan is for none"),
        (np.ones(25, np.float32)[1:].reshape(4, 6), f32(6, 5), {}, "aligned to 4 bytes"),
    ],
)
def test_arrays_of_another_form(plan, a, b, options, words) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        plan.run(a, b, **options)
    assert "plan_gemm" in str(caught.value)


def test_missing_c() -> None:
    plan = cleave.plan_gemm(f32(4, 6), f32(6, 5), c=f32(4, 5), bias=np.ones(5, np.float16))
    with pytest.raises(ValueError, match="c is missing, but the plan is for one"):
        plan.run(f32(4, 6), f32(6, 5), bias=np.ones(5, np.float16))
    with pytest.raises(ValueError, match="the bias is float32, but the plan is for float16"):
        plan.run(f32(4, 6), f32(6, 5), c=f32(4, 5), bias=f32(5))


def test_workspace() -> None:
    a, b = f32(64, 4096), f32(4096, 64)
    options = {"split_k_mode": "parallel", "split_k_slices": 4}
    plan = cleave.plan_gemm(a, b, **options)
    workspace = np.zeros(plan.workspace_size + 16, np.uint8)
    workspace = workspace[-workspace.ctypes.data % 16 :][: plan.workspace_size]
    for _ in range(2):  # the counters are zero again after each run
        assert (plan.run(a, b, workspace=workspace) == 4096).all()
        assert (cleave.gemm(a, b, workspace=workspace, **options) == 4096).all()
        assert not workspace[: plan.counter_size].any()
    out = np.full((64, 64), 7, np.float32)
    for bad, words in (
        (
            workspace[:-16],
            f"{plan.workspace_size - 16} bytes, but the plan needs {plan.workspace_size}",
        ),
        (np.zeros(plan.workspace_size + 32, np.uint8)[1:], "multiple of 16"),
    ):
        with pytest.raises(ValueError, match=words):
            plan.run(a, b, out=out, workspace=bad)
    assert (out == 7).all()


def serial_product() -> tuple[np.ndarray, np.ndarray, cleave.GemmPlan]:
    a, b = f32(64, 4096), f32(4096, 64)
    return a, b, cleave.plan_gemm(a, b, split_k_mode="serial", split_k_slices=3)


def aligned_bytes(size: int, value: int = 0) -> np.ndarray:
    memory = np.full(size + 16, value, np.uint8)
    return memory[-memory.ctypes.data % 16 :][:size]


@pytest.mark.parametrize("mode", ["serial", "parallel", "stream_k"])
def test_a_workspace_that_was_not_zeroed_is_refused(mode: str) -> None:
    """In a child: what waits for counters that never come would hang the tests."""
    slices = None if mode == "stream_k" else 3
    script = f"""
import subprocess
import sys
import threading

import numpy as np
import cleave
a, b, out = (np.ones((300, 300), np.float32) for _ in range(3))
plan = cleave.plan_gemm(a, b, split_k_mode="{mode}", split_k_slices={slices})
memory = np.ones(plan.workspace_size + 16, np.uint8)
workspace = memory[-memory.ctypes.data % 16 :][: plan.workspace_size]
assert workspace.size > 0
try:
    plan.run(a, b, out=out, workspace=workspace)
except ValueError as error:
    print(error)
assert (out == 1).all()
workspace[: plan.counter_size] = 0
plan.run(a, b, out=out, workspace=workspace)
assert (out == 300).all()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "workspace begins with 16843009, not with 0" in done.stdout
    assert "counter_size" in done.stdout


def test_a_workspace_in_use_is_refused() -> None:
    """Every call of two threads gives the right product or is refused."""
    a, b, plan = serial_product()
    workspace = aligned_bytes(plan.workspace_size)
    outcomes = []

    def work() -> None:
        for _ in range(100):
            try:
                outcomes.append((plan.run(a, b, workspace=workspace) == 4096).all())
            except ValueError as error:
                outcomes.append("another run is using it" in str(error))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == 200 and all(outcomes)
    assert not workspace[: plan.counter_size].any()


def test_a_workspace_shares_no_memory_with_other_arrays() -> None:
    a, b, plan = serial_product()
    memory = aligned_bytes(plan.workspace_size + a.nbytes)
    workspace, rest = memory[: plan.workspace_size], memory[plan.workspace_size :]
    inside = rest.view(np.float32)[: a.size].reshape(a.shape)
    inside[:] = 1
    assert (plan.run(inside, b, workspace=workspace) == 4096).all()
    out = np.full((64, 64), 7, np.float32)
    for shift in (16, plan.workspace_size):
        bad = memory[shift:][: plan.workspace_size]
        with pytest.raises(ValueError, match="workspace overlaps a in memory; pass workspace of"):
            plan.run(inside, b, out=out, workspace=bad)
    assert (out == 7).all() and (inside == 1).all()
    out = workspace.view(np.float32)[-64 * 64 :].reshape(64, 64)
    with pytest.raises(ValueError, match="workspace overlaps d in memory"):
        plan.run(a, b, out=out, workspace=workspace)
    c = workspace.view(np.float32)[: 64 * 64].reshape(64, 64)
    with pytest.raises(ValueError, match="workspace overlaps c in memory"):
        cleave.gemm(a, b, c=c, workspace=workspace, split_k_mode="serial", split_k_slices=3)


def test_planning_for_an_h100_needs_none() -> None:
    plan = cleave.plan_problem(128, 128, 16384, dtype="float16", device="h100")
    assert plan.split_k_slices > 1
    assert "cleave_gemm" in plan.kernel_source
    assert plan.roofline_us == pytest.approx(2.5, rel=0.3)


def test_plan_problem_is_what_plan_gemm_is_given() -> None:
    for layout, a, b in (
        ("tt", f32(4, 6), f32(6, 5)),
        ("tn", f32(4, 6), f32(5, 6).T),
        ("nt", f32(6, 4).T, f32(6, 5)),
        ("nn", f32(6, 4).T, f32(5, 6).T),
    ):
        plan = cleave.plan_problem(4, 5, 6, dtype="float32", layout=layout, device="cpu")
        assert (plan.run(a, b) == 6).all()
    plan = cleave.plan_problem(4, 5, 6, batch=2, dtype="float32", layout="tt", bias="column", device="cpu")
    assert (plan.run(f32(2, 4, 6), f32(2, 6, 5), bias=f32(4, 1)) == 7).all()


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("k", [128, 200])
def test_plan_problem_with_scales(batch: int, k: int) -> None:
    """The plan is for arrays that are packed as its documentation says."""
    m, n, ks = 130, 140, -(-k // 128)
    lead = () if batch == 1 else (batch,)
    a, b = np.ones((*lead, m, k), np.int8), np.ones((*lead, n, k), np.int8).swapaxes(-1, -2)
    by_column = f32(*lead, ks, m).swapaxes(-1, -2)
    scales = {
        "none": (None, None),
        "tensor": (f32(), f32(1)),
        "row": (f32(*lead, m, 1), f32(*lead, 1, n)),
        "block_1x128": (by_column, f32(*lead, ks, n)),
        "block_128x128": (by_column, f32(*lead, 2, ks).swapaxes(-1, -2)),
    }
    for scaling, (scale_a, scale_b) in scales.items():
        plan = cleave.plan_problem(
            m, n, k, batch=batch, dtype="int8", out_dtype="float32", scaling=scaling,
            bias="row", device="cpu",
        )  # fmt: skip
        d = plan.run(a, b, scale_a=scale_a, scale_b=scale_b, bias=f32(n))
        assert (d == k + 1).all(), scaling


def test_default_types_of_plan_problem() -> None:
    a, b = np.ones((4, 6), np.int8), np.ones((5, 6), np.int8).T
    exact = cleave.plan_problem(4, 5, 6, dtype="int8", device="cpu")
    assert exact.run(a, b).dtype == np.int32
    pytest.importorskip("ml_dtypes")
    scaled = cleave.plan_problem(4, 5, 6, dtype="int8", scaling="tensor", device="cpu")
    assert scaled.run(a, b, scale_a=f32(1), scale_b=f32(1)).dtype.name == "bfloat16"


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "bfloat16", "split_k_mode": "cluster", "split_k_slices": 2},
        {"dtype": "float8_e4m3fn", "layout": "tt"},
        {"dtype": "bfloat16", "out_dtype": "int8", "out_scale": "block_1x128", "kernel": "portable", "batch": 2}
        | {"split_k_mode": "parallel", "split_k_slices": 2},
    ],
    ids=str,
)
def test_swiglu_that_no_kernel_serves_is_named(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"activation is swiglu.*contiguous along n.*cluster"):
        cleave.plan_problem(256, 256, 256, activation="swiglu", device="h100", **options)


def test_no_plan_has_more_tiles_than_31_bits_count() -> None:
    plan = cleave.plan_problem(1, 33, 64, batch=2**31 - 1, activation="swiglu", dtype="bfloat16", device="h100")
    # A tile of fewer columns would be one of two for each entry.
    columns = {int(c["kernel"].split("x")[1].split()[0]) // 2 for c in plan.candidates}
    assert columns and min(columns) >= 33


def test_twenty_thousand_shapes_keep_little_memory() -> None:
    """Planned and multiplied, each remembered by Python, too."""
    script = """
import numpy as np
import cleave

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def shapes(rows):
    for m in rows:
        n = m % 7 + 1
        cleave.gemm(a[:m, :1], a[:1, :n], out=d[:m, :n])  # one array, whose memory no plan comes to lie in
        cleave.plan_problem(m, 64, 64, device="h100", split_k_mode="none", kernel="portable")

a, d = np.ones((2, 10_200, 8), np.float32)
shapes(range(1, 200))
before = resident()
shapes(range(200, 10_200))
print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) < 64 << 20
