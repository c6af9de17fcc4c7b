"""Products, and sorts of tokens, on a GPU that cannot run all of a launch's CTAs together: does every launch end?

    python tests/gpu/provocations.py WHAT MODE ROUNDS

runs one of them in this process and prints what came of it. A launch whose CTAs wait for others
that never start hangs the process: `test_liveness_gpu.py` runs each in a child that it can kill.

green       a green context of half the GPU's multiprocessors
priorities  two streams of different priority, while another kernel holds half of the GPU: each gets
            the half that the other would need
dependents  a chain of dependent launches beside a second one: CTAs start in the holes that a
            predecessor leaves, a few at a time
storm       products of all modes on streams of all priorities
alone       products one after the other: for several processes at once, which share the GPU

MODE "sort" sorts instead.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable

import torch

import cleave
from cleave import _core

# Plans that fill the GPU: M, N, K, slices, which say nothing to stream_k.
SHAPES = {
    "parallel": (512, 512, 8192, 8),
    "serial": (512, 512, 16384, 24),
    "stream_k": (1000, 1000, 4096, None),
    "auto": (512, 512, 8192, None),
}


class Product:
    """One plan, its operands, and what it should give."""

    def __init__(self, mode: str, seed: int = 0) -> None:
        torch.manual_seed(seed)
        m, n, k, slices = SHAPES[mode]
        self.a = torch.randint(-2, 3, (m, k), device="cuda").half()
        self.b = torch.randint(-2, 3, (n, k), device="cuda").half().T
        self.out = torch.full((m, n), torch.nan, device="cuda", dtype=torch.float16)
        self.expected = (self.a.double() @ self.b.double()).half()
        self.plan = cleave.plan_gemm(self.a, self.b, out=self.out, split_k_mode=mode, split_k_slices=slices)
        # Slices that meet in clusters never wait for other CTAs: here those that do not are wanted.
        if mode != "auto":
            names = [candidate["kernel"] for candidate in self.plan.candidates]
            self.plan = _core.plan_as(self.plan, next(name for name in names if "clusters" not in name))

    def run(self, stream: torch.cuda.Stream | int) -> None:
        self.plan.run(self.a, self.b, out=self.out, stream=stream)

    def check(self) -> None:
        torch.cuda.synchronize()
        assert torch.equal(self.out, self.expected), "wrong sums"
        self.out.fill_(torch.nan)
        torch.cuda.synchronize()


class Sort:
    """Tokens that CTAs sort together, as a product."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.ids = torch.randint(-1, 256, (4096, 8), dtype=torch.int32, device="cuda")
        self.expected = cleave.moe.sort_tokens(self.ids.cpu(), 256)
        torch.cuda.synchronize()

    def run(self, stream: torch.cuda.Stream | int) -> None:
        on = torch.cuda.ExternalStream(stream) if isinstance(stream, int) else stream
        with torch.cuda.stream(on):
            self.made = cleave.moe.sort_tokens(self.ids, 256)

    def check(self) -> None:
        torch.cuda.synchronize()
        for one, other in zip(self.made, self.expected, strict=True):
            assert torch.equal(one.cpu(), other), "wrong rows"


def work(mode: str, seed: int = 0) -> Product | Sort:
    return Sort(seed) if mode == "sort" else Product(mode, seed)


def in_rounds(rounds: int, each: Callable[[], None], products: list[Product | Sort]) -> None:
    """Checks the first rounds one by one, then some."""
    for i in range(rounds):
        each()
        if i < 10 or i % 500 == 0 or i + 1 == rounds:
            for product in products:
                product.check()


def hold_half_of_the_gpu() -> Callable[[torch.cuda.Stream, int], None]:
    """A function that keeps half of the multiprocessors busy for some microseconds."""
    import cupy

    kernel = cupy.RawKernel(
        r"""
        extern "C" __global__ void hold(long long nanoseconds) {
          extern __shared__ char memory[];
          long long start, now;
          asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
          do {
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
          } while (now - start < nanoseconds);
        }""",
        "hold",
    )
    most = 220 * 1024  # of shared memory: no other CTA fits beside
    kernel.max_dynamic_shared_size_bytes = most
    half = torch.cuda.get_device_properties(0).multi_processor_count // 2

    def hold(stream: torch.cuda.Stream, us: int) -> None:
        with cupy.cuda.Stream.from_external(stream):
            kernel((half,), (128,), (us * 1000,), shared_mem=most)

    return hold


def green(mode: str, rounds: int) -> None:
    from cuda.bindings import driver

    def call(result: tuple) -> object:
        error, *values = result
        assert error == driver.CUresult.CUDA_SUCCESS, error
        return values[0] if len(values) == 1 else values

    product = work(mode)
    product.run(torch.cuda.current_stream())
    product.check()
    device = call(driver.cuDeviceGet(0))
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    whole = call(driver.cuDeviceGetDevResource(device, kind))
    half = whole.sm.smCount // 2
    groups, _, _ = call(driver.cuDevSmResourceSplitByCount(1, whole, 0, half))
    descriptor = call(driver.cuDevResourceGenerateDesc(groups, 1))
    flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    context = call(driver.cuGreenCtxCreate(descriptor, device, flags))
    plain = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    stream = call(driver.cuGreenCtxStreamCreate(context, plain, 0))
    print(f"green context of {groups[0].sm.smCount} multiprocessors", flush=True)
    in_rounds(rounds, lambda: product.run(int(stream)), [product])


def priorities(mode: str, rounds: int) -> None:
    hold = hold_half_of_the_gpu()
    low, high = torch.cuda.Stream(priority=0), torch.cuda.Stream(priority=-5)
    holder = torch.cuda.Stream(priority=0)
    first, second = work(mode, 1), work(mode, 2)

    def each() -> None:
        hold(holder, 40)
        first.run(low)
        second.run(high)

    in_rounds(rounds, each, [first, second])


def dependents(mode: str, rounds: int) -> None:
    hold = hold_half_of_the_gpu()
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    predecessor, first, second = Product("auto", 1), work(mode, 2), work(mode, 3)

    def each() -> None:
        hold(one, 20)
        predecessor.run(one)
        first.run(one)
        second.run(two)

    in_rounds(rounds, each, [first, second])


def storm(mode: str, rounds: int) -> None:
    hold = hold_half_of_the_gpu()
    modes = ["parallel", "stream_k", "auto"] if mode == "all" else [mode]
    streams = [torch.cuda.Stream(priority=p) for p in (0, 0, -1, -2, -3, -5)]
    products = [work(modes[i % len(modes)], i) for i in range(len(streams))]
    draw = random.Random(1)

    def each() -> None:
        if draw.random() < 0.2:
            hold(draw.choice(streams), draw.randint(1, 60))
        order = list(zip(products, streams, strict=True))
        draw.shuffle(order)
        for product, stream in order:
            product.run(stream)

    in_rounds(rounds, each, products)


def alone(mode: str, rounds: int) -> None:
    product = work(mode)
    in_rounds(rounds, lambda: product.run(torch.cuda.current_stream()), [product])


def main() -> None:
    what, mode, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for module in ("cupy", "cuda.bindings"):
        if importlib.util.find_spec(module) is None:
            print(f"needs {module}")
            sys.exit(77)
    kinds = (green, priorities, dependents, storm, alone)
    next(kind for kind in kinds if kind.__name__ == what)(mode, rounds)
    print(f"{what} {mode}: {rounds} rounds ended", flush=True)


if __name__ == "__main__":
    main()
