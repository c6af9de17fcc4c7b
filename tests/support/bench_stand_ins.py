"""A GPU's place taken by the CPU backend, timed by the clock: small cases, and a peer in NumPy."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np

from bench import peers
from bench.operations.products import conv, grouped
from cleave.testing import arrays
from cleave.testing.case import GemmCase


class StandInGpu(arrays.NumpyArrays):
    """Replays are calls, timed by the clock."""

    on_gpu = True

    def on_stream(self, enqueue):
        enqueue()

    def capture(self, enqueue):
        return enqueue

    def microseconds(self, replay):
        start = time.perf_counter()
        replay()
        return (time.perf_counter() - start) * 1e6


class TorchStandIn(arrays.TorchArrays):
    on_stream, capture, microseconds = (getattr(StandInGpu, name) for name in ("on_stream", "capture", "microseconds"))


class InlineCompilers:
    """`pairs.compilers` that compile on the CPU, at once; submitted has their arguments."""

    def __init__(self):
        self.submitted = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, call, *arguments):
        self.submitted.append(arguments)
        call(*arguments, "cpu")
        return SimpleNamespace(result=lambda: None)


class BetweenStandIn:
    """`us` has the microseconds of what calls return the names of, one after the other, the last one again and
    again; what is not there is timed by the clock."""

    stream = None

    def __init__(self, us=None):
        self._us = us or {}

    def timed(self, call):
        name = call(0)
        given = iter(self._us[name]) if isinstance(name, str) else None

        def sample():
            if given is None:
                start = time.perf_counter()
                call(0)
                return (time.perf_counter() - start) * 1e6
            self._last[name] = next(given, self._last.get(name))
            return self._last[name]

        return sample

    @property
    def _last(self):
        return self.__dict__.setdefault("last", {})


CASE = GemmCase(32, 24, 512, dtype="float16")
SCALED = GemmCase(32, 24, 512, dtype="int8", scaling="row", out_dtype="float32")
SMALL = [conv.Case(2, (9, 8), 8, 16, 3, 2, 1, kind=kind) for kind in ("fprop", "dgrad", "wgrad")]


def multiply_real(case, operands):
    a, b = (np.asarray(x, np.float64) for x in (operands.a, operands.b))
    scales = operands.scales
    return (a * scales.get("scale_a", 1)) @ (b * scales.get("scale_b", 1))


def numpy_peer(serves):
    def calls(case, operands):
        def call():
            operands.out[...] = multiply_real(case, operands)

        return {"numpy.matmul": call}

    return peers.Peer("numpy", serves, calls)


ABSENT = peers.Peer("absent", lambda case: None, lambda case, operands: {})


def grouped_cases(**changes):
    return [grouped.Case(4, 90, 32, 48, form=form, **changes) for form in ("forward", "dgrad", "wgrad")]
