"""Host time per call: what the caller's thread spends to enqueue one product."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from cleave.testing import dense
from cleave.testing.arrays import TorchArrays
from cleave.testing.case import GemmCase
from cleave.testing.operands import Operands, make_operands

from .peers import Peer, reason

# Fewer than the launches that a driver queues before it makes the caller wait.
CALLS = 200

Loop = Callable[[], float]


def host_times(arrays: TorchArrays, case: GemmCase, peers: Sequence[Peer], rounds: int) -> list[dict[str, Any]]:
    """One row per way to call; everything on torch's current stream, as an application would."""
    import torch

    stream = torch.cuda.current_stream(arrays.device).cuda_stream
    operands = make_operands(arrays, case)
    loops, without = _ours(arrays, case, operands, stream), {}
    try:
        loops |= _registered(case, operands)
    except ImportError as error:
        without["torch.ops.cleave"] = reason(error)
    for peer in peers:
        served = peer.serves(case)
        if not served:
            continue
        for name, call in peer.calls(served, make_operands(arrays, served)).items():
            try:
                call()
            except (RuntimeError, ValueError) as error:  # some forms are refused only by the call
                without[name] = reason(error)
            else:
                loops[name] = _repeated(call)
    samples: dict[str, list[float]] = {name: [] for name in loops}
    gc.disable()
    try:
        for _ in range(rounds + 1):
            for name, loop in loops.items():
                arrays.synchronize()
                samples[name].append(loop())
    finally:
        gc.enable()
        arrays.synchronize()
    # The first round pays for whatever happens once.
    rows = [{"case": case.title, "call": name, "us": statistics.median(s[1:])} for name, s in samples.items()]
    rows[0]["without"] = without
    return rows


def _repeated(call: Callable[[], object]) -> Loop:
    """Microseconds per call, of CALLS."""

    def loop() -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        return (time.perf_counter() - start) / CALLS * 1e6

    return loop


def _ours(arrays: TorchArrays, case: GemmCase, operands: Operands, stream: int) -> dict[str, Loop]:
    """From the least that any library could spend to the function that allocates its result."""
    import cleave
    from cleave import _core

    a, b, out, scales = operands.a, operands.b, operands.out, operands.scales
    plan = dense.plan_for(case, operands)
    plan.prepare(stream)
    name, inputs, options = _call(case, operands)
    function = getattr(cleave, name)
    return {
        "an empty kernel": lambda: _core.launch_floor(arrays.device.index, CALLS, stream),
        "C++ plan->run": lambda: _core.host_bench(plan, a, b, out, CALLS, stream, **scales),
        "plan.run": _repeated(lambda: plan.run(a, b, out=out, **scales)),
        f"cleave.{name}(out=)": _repeated(lambda: function(*inputs, out=out, **options)),
        f"cleave.{name}": _repeated(lambda: function(*inputs, **options)),
    }


def _registered(case: GemmCase, operands: Operands) -> dict[str, Loop]:
    """As operators of PyTorch. ImportError where the extension is not built."""
    import torch

    import cleave.torch  # noqa: F401  (registers them)

    name, inputs, options = _call(case, operands)
    operator, out = getattr(torch.ops.cleave, name), operands.out
    return {
        f"torch.ops.cleave.{name}.out": _repeated(lambda: operator.out(*inputs, out=out, **options)),
        f"torch.ops.cleave.{name}": _repeated(lambda: operator(*inputs, **options)),
    }


def _call(case: GemmCase, operands: Operands) -> tuple[str, list[Any], dict[str, Any]]:
    """What computes the case, its positional arguments and its options."""
    inputs = [operands.a, operands.b]
    if not case.quantized:
        return "gemm", inputs, {}
    inputs += [operands.scales["scale_a"], operands.scales["scale_b"]]
    return "scaled_gemm", inputs, {"use_fast_accum": True} if case.use_fast_accum else {}
