"""Streams that are not the current one, and launches that have to wait for room in the queue."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import cleave  # noqa: E402

BUSY = 2_000_000_000  # cycles: about a second, since other tests may share the GPU

FULL_QUEUE = """
import ctypes
import torch
import cleave

# ctypes takes the GIL to call it.
host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: calls.append(1))
calls = []
launch_host_function = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc
launch_host_function.argtypes = [ctypes.c_void_p] * 3

a = torch.ones(64, 64, device="cuda", dtype=torch.float16)
out, q, scale = torch.empty_like(a), a.to(torch.int8), torch.empty(64, 1, device="cuda")
indices = torch.zeros(64, device="cuda", dtype=torch.int32)
plan = cleave.plan_gemm(a, a)
for call in (
    lambda: cleave.gemm(a, a, out=out),
    lambda: plan.run(a, a, out=out),
    lambda: cleave.quantize(a, out=q, scale_out=scale),
    lambda: cleave.moe.gather(a, indices),
):
    call()
    torch.cuda.synchronize()
    torch.cuda._sleep(500_000_000)
    stream = torch.cuda.current_stream().cuda_stream
    assert launch_host_function(stream, host_function, None) == 0
    for _ in range(3000):  # more than the queue takes
        call()
    torch.cuda.synchronize()
assert len(calls) == 4
"""


def test_a_full_queue_waits_for_a_host_function_without_the_gil() -> None:
    """In a child, since the two would wait for each other for ever."""
    subprocess.run([sys.executable, "-c", FULL_QUEUE], check=True, timeout=60)


def test_the_result_is_memory_of_the_stream_given() -> None:
    """Not memory that the current stream is still to write."""
    a = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    expected = cleave.gemm(a, a)
    side = torch.cuda.Stream()
    cleave.gemm(a, a, stream=side)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()

    dying = torch.empty_like(expected)
    address = dying.data_ptr()
    torch.cuda._sleep(BUSY)
    dying.fill_(7)  # after which nobody needs it, and the current stream may use it again
    del dying
    d = cleave.gemm(a, a, stream=side)
    assert d.data_ptr() != address
    torch.cuda.synchronize()
    assert torch.equal(d, expected)


@pytest.mark.parametrize("multiply", ["gemm", "plan", "quantize"])
def test_what_the_stream_given_reads_is_kept_for_it(multiply: str) -> None:
    """A temporary's memory is not used again on the current stream before it was read."""
    x = torch.randn(1024, 1024, device="cuda")
    b = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    side = torch.cuda.Stream()
    a = x.half()
    plan = cleave.plan_gemm(a, b)

    def run(a: torch.Tensor, stream: object) -> torch.Tensor:
        if multiply == "quantize":
            return cleave.quantize(a, stream=stream)[0]
        return (cleave.gemm if multiply == "gemm" else plan.run)(a, b, stream=stream)

    expected = run(a, None)
    run(a, side)
    torch.cuda.synchronize()
    del a
    torch.cuda.empty_cache()

    a = x.half()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(BUSY)
    d = run(a, side)
    address = a.data_ptr()
    del a
    others = [torch.full_like(b, 7) for _ in range(4)]
    assert address not in [other.data_ptr() for other in others]
    torch.cuda.synchronize()
    assert torch.equal(d, expected)


def test_a_stream_may_be_the_current_one() -> None:
    a = torch.randn(256, 256, device="cuda", dtype=torch.float16)
    expected = cleave.gemm(a, a)
    assert torch.equal(cleave.gemm(a, a, stream=torch.cuda.current_stream()), expected)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        d = cleave.gemm(a, a, stream=side)
    torch.cuda.synchronize()
    assert torch.equal(d, expected)
