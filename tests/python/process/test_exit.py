"""How a process ends while daemon threads are in calls.

Before Python 3.14 such a thread is ended where it next wants the global lock, by unwinding its stack.
"""

from __future__ import annotations

import subprocess
import sys

SETUP = """
from __future__ import annotations

import inspect, threading, time
import numpy as np
import cleave

entered = threading.Semaphore(0)

def stay(*arguments, **keywords):
    entered.release()
    while True:
        time.sleep(0)

def in_daemons(calls):
    for call in calls:
        threading.Thread(target=call, daemon=True).start()

def wait_for(calls):
    for _ in calls:
        assert entered.acquire(timeout=60), "a call did not come where it was to stay"

a, bias = np.ones((64, 64), np.float32), np.ones(64, np.float32)
ids = np.zeros((64, 1), np.int32)
offs, indices = cleave.moe.sort_tokens(ids, 1)
q, scale = cleave.quantize(a)
image = np.ones((1, 8, 8, 8), np.float32).transpose(0, 3, 1, 2)  # channels last
filters = np.ones((8, 3, 3, 8), np.float32).transpose(0, 3, 1, 2)
plan, quantize_plan = cleave.plan_gemm(a, a), cleave.plan_quantize(a)

@cleave.epilogue
def biased(acc, bias: cleave.row):
    return cleave.relu(acc + bias)

making = [  # calls that make their results
    lambda: cleave.gemm(a, a),
    lambda: cleave.gemm(a, a, epilogue=biased(bias=bias)),
    lambda: plan.run(a, a),
    lambda: cleave.scaled_gemm(q, q, scale, scale.T, out_dtype="float32"),
    lambda: cleave.grouped_gemm(a, a[None], offs),
    lambda: cleave.grouped_gemm_wgrad(a, a, offs),
    lambda: cleave.conv2d(image, filters),
    lambda: cleave.conv2d_dgrad(image.shape, filters, image, padding=1),
    lambda: cleave.conv2d_wgrad(image, filters.shape, image, padding=1),
    lambda: cleave.quantize(a),
    lambda: cleave.moe.expert_offsets(ids, 1),
    lambda: cleave.moe.sort_tokens(ids, 1),
    lambda: cleave.moe.permute(a, ids, 1),
    lambda: cleave.moe.gather(a, indices),
    lambda: cleave.moe.unpermute(a, indices),
]
for call in making:
    call()
"""

RUNNING = """
out = np.empty_like(a)
q_out, scale_out = np.empty_like(q), np.empty_like(scale)

def forever(call):
    def repeat():
        call()
        entered.release()
        while True:
            call()
    return repeat

calls = [*making,
    lambda: cleave.gemm(a, a, out=out),
    lambda: plan.run(a, a, out=out),
    lambda: cleave.quantize(a, out=q_out, scale_out=scale_out),
    lambda: cleave.plan_gemm(a, a),
    lambda: cleave.plan_problem(64, 64, 64, dtype="float32", device="cpu"),
    lambda: cleave.epilogue(lambda acc: acc + 1),
]
in_daemons(map(forever, calls))
wait_for(calls)
"""

MAKING_RESULTS = """
np.empty = stay
in_daemons(making)
wait_for(making)
"""

READING_ARRAYS = """
class Array:  # which is never read to its end
    __dlpack_device__ = __dlpack__ = stay

def call_of(function):
    declared = {}
    exec(function.__nb_signature__[0][0] + ": ...", {}, declared)
    parameters = inspect.signature(*declared.values()).parameters
    axes = next((int(digit) for digit in function.__name__ if digit.isdigit()), 0)
    values = {"Array": Array(), "Array | None": Array(), "tuple[int, ...]": (1,) * (2 + axes), "int": 1, "object": None,
              "GemmPlan": plan, "str": "fprop"}
    given = {name: plan if name == "self" else values[parameter.annotation]
             for name, parameter in parameters.items() if parameter.default is parameter.empty}
    named = {name: given.pop(name) for name in [*given] if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY}
    return lambda: function(*given.values(), **named)

functions = [*vars(cleave._core).values(), cleave.GemmPlan.run]
calls = [call_of(f) for f in functions if "Array" in getattr(f, "__nb_signature__", [[""]])[0][0]]
assert len(calls) > 25
in_daemons(calls)
wait_for(calls)
"""


def end(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", SETUP + script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_daemon_threads_that_run() -> None:
    end(RUNNING)


def test_daemon_threads_that_make_results() -> None:
    end(MAKING_RESULTS)


def test_daemon_threads_that_read_arrays() -> None:
    end(READING_ARRAYS)
