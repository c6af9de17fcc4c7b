"""Host time per call: what the caller's thread spends to enqueue one product."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cleave.cli import measure
from cleave.cli.arrays import TorchArrays
from cleave.cli.case import GemmCase

# Fewer than the launches that a driver queues before it makes the caller wait.
CALLS = 200


def host_times(
    arrays: TorchArrays, case: GemmCase, peers: list[ModuleType], rounds: int
) -> list[dict[str, Any]]:
    """One row per way to call; everything on torch's current stream, as an application would."""
    import torch

    import cleave
    from cleave import _core

    operands = measure.make_operands(arrays, case)
    a, b, out = operands.a, operands.b, operands.out
    plan = measure.plan_for(case, operands)
    stream = torch.cuda.current_stream(arrays.device).cuda_stream
    plan.prepare(stream)

    def repeated(call: Callable[[], Any]) -> Callable[[], float]:
        def loop() -> float:
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            return (time.perf_counter() - start) / CALLS * 1e6

        return loop

    contenders = {
        "C++ plan->run": lambda: _core.host_bench(plan, a, b, out, CALLS, stream),
        "plan.run": repeated(lambda: plan.run(a, b, out=out)),
        "cleave.gemm(out=)": repeated(lambda: cleave.gemm(a, b, out=out)),
        "cleave.gemm": repeated(lambda: cleave.gemm(a, b)),
        "torch.mm(out=)": repeated(lambda: torch.mm(a, b, out=out)),
        "torch.mm": repeated(lambda: torch.mm(a, b)),
    }
    for peer in peers:
        call = peer.bind(case, operands) if peer.NAME != "cublas" else None  # torch.mm is cuBLAS
        if call:
            contenders[peer.NAME] = repeated(call)

    samples: dict[str, list[float]] = {name: [] for name in contenders}
    gc.disable()
    try:
        for _ in range(rounds + 1):
            for name, loop in contenders.items():
                arrays.synchronize()
                samples[name].append(loop())
    finally:
        gc.enable()
        arrays.synchronize()
    # The first round pays for whatever happens once.
    return [
        {"case": case.title, "call": name, "us": statistics.median(s[1:])}
        for name, s in samples.items()
    ]
