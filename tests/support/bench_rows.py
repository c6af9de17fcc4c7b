"""Results of measurements that never ran, for the tests of what is made of such results."""

from __future__ import annotations

from bench import suites
from bench.operations.products import gemm

MACHINE = {"gpu": "a GPU", "driver": None, "commit": "abc"}


def row(case, us, peer_us=None, **changes):
    made = {
        "case": case, "us": us, "tflops": 1.0, "gb_per_s": 2.0, "floor_us": us / 2,
        "kernel": "tile", "mode": "parallel", "slices": 4, "workspace_bytes": 64,
        "max_error": 1e-3, "rms_error": 1e-4, "row_error": 1e-3, "verified": True, "peers": {},
    }  # fmt: skip
    if peer_us:
        made["peers"] = {"cublas": theirs(peer_us, us)}
    return made | changes


def theirs(peer_us, us, **changes):
    errors = {"max_error": 1e-3, "rms_error": 1e-4, "row_error": 1e-3}
    return errors | {"us": peer_us, "ratio": peer_us / us} | changes


def split_row(case, mode, slices, us):
    asked = {"requested_mode": mode, "requested_slices": slices}
    if us is None:
        return {"case": case, "us": None, "refused": "too many slices"} | asked
    return row(case, us, ratio=5 / us, slices=slices or 8) | asked


PEER_ROWS = [row("x", 10.0, 12.0), row("y", 10.0, 9.0, rms_error=2e-4), row("z", 5.0)]
STEP_ROWS = [
    {"case": "x", "us": 10.0, "host_us": 4.0, "max_error": 0.0, "rms_error": 0.0, "row_error": 0.0,
     "verified": True, "peers": {"loop": theirs(50.0, 10.0, host_us=40.0)}},
    {"case": "y", "us": 20.0, "host_us": 8.0, "max_error": 0.0, "rms_error": 0.0, "row_error": 0.0,
     "verified": True, "peers": {"loop": theirs(80.0, 20.0, host_us=20.0)}},
]  # fmt: skip
SPLIT_ROWS = [
    split_row("x", "auto", None, 5.0),
    split_row("x", "serial", 2, 8.0),
    split_row("x", "serial", 4, 4.0),
    split_row("x", "cluster", 64, None),
    split_row("y", "auto", None, 5.0),
    split_row("y", "none", 1, 10.0),
]


def suite_of(kind, cases=(), splits=(), operation=gemm, best_of=()):
    group = suites.Group("A group", list(cases))
    return suites.Suite("some", kind, "Some title", operation, [group], splits=list(splits), best_of=list(best_of))
