"""Cleave against what torch itself offers, in one file that needs only torch and the wheel of cleave-gemm.

    python repeat.py                          # every job, on the first GPU
    python repeat.py --quick --only fp8_rows  # a shape of one job
    python repeat.py --json figures.json
    python repeat.py --device cpu             # no times: every job is checked at a small size

Ours and torch's calls are replayed in turns, as CUDA graphs that walk over so many sets of random normal operands that
each call finds the L2 cold. Before that, each one's result is compared with float64. A ratio is torch's time over ours:
above 1, Cleave is faster. Exit status: 1 where a result of ours is wrong or missing, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cleave

COLD_BYTES = 200_000_000  # several times what an L2 holds
MOST_SETS = 64
REPLAY_US = 2_000.0  # so long that the resolution of events, 0.5 us, does not count
WARM_UP_S = 2.0
GROUP = 128  # elements with a scale of their own, of 4-bit weights


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[job.name for job in JOBS], help="this job; repeatable")
    parser.add_argument("--quick", action="store_true", help="the first shape of each job, and fewer rounds")
    parser.add_argument("--rounds", type=int, help="replays of each contender, of which the median counts")
    parser.add_argument(
        "--between", action="store_true", help="a small kernel follows each call, as in a model; its time is taken off"
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, rows and summaries there as well")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if arguments.device == "cuda" and not (torch.cuda.is_available() and cleave.device_count()):
        print("repeat.py: no NVIDIA GPU that torch and Cleave can use; --device cpu checks results", file=sys.stderr)
        return 2
    torch.backends.cudnn.benchmark = True  # cuDNN's fastest kernel, by its own trials
    rounds = arguments.rounds or (5 if arguments.quick else 9)
    timing = Timing(rounds, arguments.between) if arguments.device == "cuda" else None
    machine = describe(arguments.device)
    for name, value in machine.items():
        print(f"{name:8} {value}")
    if timing:
        warm_up()
    rows = []
    for job in JOBS:
        if arguments.only and job.name not in arguments.only:
            continue
        print(f"\n{job.name}: {job.title}\n{HEADING}")
        for shape in job.shapes_for(arguments.device, arguments.quick):
            row = measured(job, shape, arguments.device, timing)
            print("\n".join(lines_of(row)), flush=True)
            rows.append(row)
    summaries = list(summarised(rows))
    print("\n" + "\n".join(map(summary_line, summaries)) if summaries else "")
    if arguments.json:
        document = {"machine": machine, "method": timing and vars(timing), "rows": rows, "summaries": summaries}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return int(any("failed" in row for row in rows))


# What is compared.


@dataclass(frozen=True)
class Contender:
    """A way to compute: what a call makes, read by `read`, is to equal `expected`."""

    name: str
    call: Callable[[], Any]
    expected: Callable[[], Tensor]
    read: Callable[[Any], Tensor] = lambda made: made


@dataclass(frozen=True)
class Inputs:
    """A set of operands, and the ways to compute with them: Cleave's first."""

    operands: tuple[Tensor, ...]
    contenders: tuple[Contender, ...]

    @property
    def bytes(self) -> int:
        return sum(operand.nbytes for operand in self.operands)


@dataclass(frozen=True)
class Job:
    name: str
    title: str
    make: Callable[..., Inputs]
    shapes: tuple[tuple[int, ...], ...]
    small: tuple[int, ...]  # on the CPU
    allowed: float = 1e-2  # the largest error of a row over the row's largest magnitude

    def shapes_for(self, device: str, quick: bool) -> tuple[tuple[int, ...], ...]:
        return (self.small,) if device == "cpu" else self.shapes[: 1 if quick else None]


def normal(device: str, *shape: int) -> Tensor:
    return torch.randn(shape, device=device)


def unwritten(device: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """An output that no correct kernel leaves as it is."""
    return torch.full(shape, math.nan, device=device, dtype=dtype)


def once(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Several contenders may expect it; most sets of operands are never asked."""
    known: list[Tensor] = []

    def value() -> Tensor:
        if not known:
            known.append(compute())
        return known[0]

    return value


def dense(device: str, m: int, n: int, k: int) -> Inputs:
    a, b = normal(device, m, k).bfloat16(), normal(device, n, k).bfloat16().t()
    ours, theirs = unwritten(device, m, n), unwritten(device, m, n)
    expected = once(lambda: a.double() @ b.double())
    return Inputs(
        (a, b),
        (
            Contender("cleave.gemm", lambda: cleave.gemm(a, b, out=ours), expected),
            Contender("torch.mm", lambda: torch.mm(a, b, out=theirs), expected),
        ),
    )


def quantised(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """8 bits, with a float32 scale for each row."""
    largest = 127.0 if dtype == torch.int8 else torch.finfo(dtype).max
    scale = x.abs().amax(1, keepdim=True) / largest
    q = x / scale
    return (q.round() if dtype == torch.int8 else q).to(dtype), scale


def eight_bits(device: str, dtype: torch.dtype, m: int, n: int, k: int) -> tuple[Tensor, ...]:
    """A and its scales of rows, B and its scales of columns."""
    (a, scale_a), (b, scale_b) = (quantised(normal(device, rows, k), dtype) for rows in (m, n))
    return a, scale_a, b.t(), scale_b.t()


def fp8_rows(device: str, m: int, n: int, k: int) -> Inputs:
    a, scale_a, b, scale_b = eight_bits(device, torch.float8_e4m3fn, m, n, k)
    ours, theirs = unwritten(device, m, n), unwritten(device, m, n)
    expected = once(lambda: (a.double() @ b.double()) * scale_a * scale_b)
    options = {"out_dtype": torch.bfloat16, "use_fast_accum": True, "out": theirs}

    def multiply() -> Tensor:
        return cleave.scaled_gemm(a, b, scale_a, scale_b, out=ours, use_fast_accum=True)

    return Inputs(
        (a, b),
        (
            Contender("cleave.scaled_gemm", multiply, expected),
            Contender("torch._scaled_mm", lambda: torch._scaled_mm(a, b, scale_a, scale_b, **options), expected),
        ),
    )


def int8_rows(device: str, m: int, n: int, k: int) -> Inputs:
    a, scale_a, b, scale_b = eight_bits(device, torch.int8, m, n, k)
    ours = unwritten(device, m, n)
    sums = once(lambda: a.double() @ b.double())
    expected = once(lambda: sums() * scale_a * scale_b)

    def dequantise() -> Tensor:
        return (torch._int_mm(a, b) * scale_a * scale_b).bfloat16()

    return Inputs(
        (a, b),
        (
            Contender("cleave.scaled_gemm", lambda: cleave.scaled_gemm(a, b, scale_a, scale_b, out=ours), expected),
            Contender("torch._int_mm, then scales", dequantise, expected),
            Contender("torch._int_mm alone, int32", lambda: torch._int_mm(a, b), sums),
        ),
    )


def ends_of(experts: int, tokens: int) -> list[int]:
    """Where each expert's tokens end, who has 0.7 to 1.3 of the mean: the same in every run."""
    weights = [0.7 + 0.6 * (i * 0.618034 % 1) for i in range(1, experts + 1)]
    return [round(tokens * part / sum(weights)) for part in itertools.accumulate(weights)]


def grouped_forward(device: str, experts: int, tokens: int, n: int, k: int) -> Inputs:
    x = normal(device, tokens, k).bfloat16()
    w = torch.stack([normal(device, n, k).bfloat16() for _ in range(experts)]).transpose(1, 2)
    ends = ends_of(experts, tokens)
    offs = torch.tensor(ends, dtype=torch.int32, device=device)
    out = unwritten(device, tokens, n)
    rows = list(itertools.pairwise([0, *ends]))
    expected = once(lambda: torch.cat([x[i:j].double() @ w[g].double() for g, (i, j) in enumerate(rows)]))
    return Inputs(
        (x, w),
        (
            Contender("cleave.grouped_gemm", lambda: cleave.grouped_gemm(x, w, offs, out=out), expected),
            Contender("torch._grouped_mm", lambda: torch._grouped_mm(x, w, offs=offs), expected),
        ),
    )


def grouped_wgrad(device: str, experts: int, tokens: int, n: int, k: int) -> Inputs:
    dy, x = normal(device, tokens, n).bfloat16(), normal(device, tokens, k).bfloat16()
    ends = ends_of(experts, tokens)
    offs = torch.tensor(ends, dtype=torch.int32, device=device)
    out = unwritten(device, experts, n, k)
    rows = list(itertools.pairwise([0, *ends]))
    expected = once(lambda: torch.stack([dy[i:j].double().t() @ x[i:j].double() for i, j in rows]))
    return Inputs(
        (dy, x),
        (
            Contender("cleave.grouped_gemm_wgrad", lambda: cleave.grouped_gemm_wgrad(dy, x, offs, out=out), expected),
            Contender("torch._grouped_mm", lambda: torch._grouped_mm(dy.t(), x, offs=offs), expected),
        ),
    )


def strided_dgrad(device: str, images: int, side: int, channels: int, filters: int, size: int, pad: int) -> Inputs:
    """The gradient of a convolution of stride 2 by its input."""
    last = {"memory_format": torch.channels_last}
    pixels = (side + 2 * pad - size) // 2 + 1
    w = normal(device, filters, channels, size, size).half().contiguous(**last)
    dy = normal(device, images, filters, pixels, pixels).half().contiguous(**last)
    shape = (images, channels, side, side)
    out = unwritten(device, *shape, dtype=torch.float16).contiguous(**last)
    like = torch.empty_like(out)  # torch looks at its shape alone
    geometry = ((2, 2), (pad, pad), (1, 1), False, (0, 0), 1, (True, False, False))

    def reference() -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):  # float64 by products
            return torch.nn.grad.conv2d_input(shape, w.double(), dy.double(), stride=2, padding=pad)

    expected = once(reference)

    def cudnn() -> Tensor:
        return torch.ops.aten.convolution_backward(dy, like, w, None, *geometry)[0]

    return Inputs(
        (w, dy, out),
        (
            Contender("cleave.conv2d_dgrad", lambda: cleave.conv2d_dgrad(shape, w, dy, 2, pad, out=out), expected),
            Contender("aten.convolution_backward", cudnn, expected),
        ),
    )


def four_bits(device: str, m: int, n: int, k: int) -> Inputs:
    x, w = normal(device, m, k).bfloat16(), normal(device, n, k // GROUP, GROUP)
    steps = (w.abs().amax(2, keepdim=True) / 7.5).bfloat16()
    codes = (w / steps).round().clamp(-8, 7)
    weight = (codes * steps).bfloat16().view(n, k)
    codes, scales = codes.view(n, k).to(torch.int8), steps[:, :, 0].t().contiguous()
    packed = cleave.pack_weights(codes, GROUP, scales=scales)
    ours, theirs = unwritten(device, m, n), unwritten(device, m, n)
    expected = once(lambda: x.double() @ weight.double().t())
    return Inputs(
        (x, packed.packed, packed.scales),  # as many sets as leave the L2 cold for who reads least
        (
            Contender("cleave.mixed_gemm", lambda: cleave.mixed_gemm(x, packed, out=ours), expected),
            Contender("torch.mm of bfloat16 weights", lambda: torch.mm(x, weight.t(), out=theirs), expected),
            Contender("torch._weight_int4pack_mm", four_bits_of_torch(x, codes, scales), expected),
        ),
    )


def four_bits_of_torch(x: Tensor, codes: Tensor, scales: Tensor) -> Callable[[], Tensor]:
    """Torch's own order of codes, which it takes from 0 to 15, and its pairs of scale and zero point."""
    codes, factors = codes + 8, torch.stack([scales, torch.zeros_like(scales)], 2)
    if x.is_cuda:
        nibbles = codes[:, ::2].to(torch.uint8) << 4 | codes[:, 1::2].to(torch.uint8)
        tiles = torch._convert_weight_to_int4pack(nibbles, 8)
        return lambda: torch._weight_int4pack_mm(x, tiles, GROUP, factors)
    tiles = torch._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
    return lambda: torch._weight_int4pack_mm_for_cpu(x, tiles, GROUP, factors)


def router(device: str, tokens: int, experts: int, top_k: int) -> Inputs:
    logits = normal(device, tokens, experts)

    def of_torch(scores: Tensor) -> tuple[Tensor, Tensor]:
        best, ids = scores.topk(top_k, dim=-1)
        return best.softmax(-1), ids

    def spread(made: tuple[Tensor, Tensor]) -> Tensor:
        """A weight for each expert: the order of the chosen ones does not matter."""
        weights, ids = made
        return torch.zeros(logits.shape, device=device, dtype=torch.float64).scatter_(1, ids.long(), weights.double())

    expected = once(lambda: spread(of_torch(logits.double())))
    return Inputs(
        (logits,),
        (
            Contender("cleave.moe.route", lambda: cleave.moe.route(logits, top_k), expected, spread),
            Contender("torch.topk, softmax", lambda: of_torch(logits), expected, spread),
        ),
    )


JOBS = (
    Job(
        "split_k",
        "K much larger than M and N, bf16, M x N x K",
        dense,
        ((128, 128, 16384), (256, 256, 8192), (512, 512, 32768)),
        (48, 40, 2048),
    ),
    Job(
        "dense",
        "layers and a square, bf16, M x N x K",
        dense,
        ((64, 2112, 7168), (16, 7168, 2048), (128, 4096, 7168), (4096, 4096, 4096), (4096, 7168, 2048)),
        (33, 96, 64),
    ),
    Job(
        "fp8_rows",
        "fp8, a scale for each row and column, fast accumulation, M x N x K",
        fp8_rows,
        ((64, 2112, 7168), (128, 7168, 16384), (4096, 4096, 4096), (4096, 7168, 2048)),
        (32, 64, 256),
        allowed=3e-2,  # sums of fp8 in the tensor cores have 14 bits
    ),
    Job(
        "int8_rows",
        "W8A8 in int8, a scale for each row and column, to bf16, M x N x K",
        int8_rows,
        ((32, 4096, 4096), (128, 4096, 4096), (4096, 4096, 4096)),
        (32, 64, 256),
    ),
    Job(
        "grouped_forward",
        "experts' forward, bf16, experts x tokens x N x K",
        grouped_forward,
        ((32, 8192, 4096, 7168), (8, 32768, 7168, 2048), (128, 2048, 7168, 2048)),
        (3, 50, 32, 64),
    ),
    Job(
        "grouped_wgrad",
        "experts' weight gradients, bf16, experts x tokens x N x K",
        grouped_wgrad,
        ((8, 32768, 7168, 2048), (32, 8192, 7168, 2048)),
        (3, 50, 32, 64),
    ),
    Job(
        "strided_dgrad",
        "data gradients of stride 2, fp16, images x side x channels x filters x filter's side x padding",
        strided_dgrad,
        ((32, 56, 128, 128, 3, 1), (32, 56, 256, 128, 1, 0), (16, 64, 256, 512, 4, 1)),
        (2, 10, 16, 24, 3, 1),
    ),
    Job(
        "four_bits",
        "int4 weights with a scale for 128, bf16 activations, M x N x K",
        four_bits,
        ((16, 4096, 4096), (1, 28672, 4096), (64, 4096, 14336), (256, 4096, 4096)),
        (5, 64, 256),
    ),
    Job(
        "router",
        "the best experts of float32 logits and their weights, tokens x experts x chosen",
        router,
        ((64, 128, 8), (4096, 128, 8)),
        (20, 32, 4),
    ),
)


# How it is measured.


@dataclass(frozen=True)
class Timing:
    rounds: int
    between: bool


def measured(job: Job, shape: tuple[int, ...], device: str, timing: Timing | None) -> dict[str, Any]:
    """A row: everybody's error and, if asked for, time. "failed" says what is wrong with ours, "without" who is left
    out, and why."""
    row: dict[str, Any] = {"job": job.name, "shape": "x".join(map(str, shape)), "peers": {}, "without": {}}
    torch.manual_seed(0)
    try:
        contest(row, job.allowed, lambda: job.make(device, *shape), timing)
    except (RuntimeError, ValueError, AttributeError) as error:
        row["failed"] = first_line(error)
    if timing:
        cleave.release_workspaces()
        torch.cuda.empty_cache()
    return row


def contest(row: dict[str, Any], allowed: float, make: Callable[[], Inputs], timing: Timing | None) -> None:
    """Fills in the row."""
    sets = [make()]
    ours, *peers = sets[0].contenders
    row["cleave"] = ours.name
    row["error"], reason = error_of(ours, allowed)
    if reason:
        row["failed"] = reason
        return
    taking_part = [0]
    for i, peer in enumerate(peers, 1):
        error, reason = error_of(peer, allowed)
        if reason:
            row["without"][peer.name] = reason
        else:
            row["peers"][peer.name] = {"error": error}
            taking_part.append(i)
    if timing is None:
        return
    count = min(MOST_SETS, max(2, math.ceil(COLD_BYTES / sets[0].bytes)))
    sets += [make() for _ in range(count - 1)]
    row["us"], *times = times_of([[inputs.contenders[i].call for inputs in sets] for i in taking_part], timing)
    for peer, us in zip(row["peers"].values(), times, strict=True):
        peer |= {"us": us, "ratio": us / row["us"]}


def error_of(contender: Contender, allowed: float) -> tuple[float | None, str | None]:
    """The largest error of a row over the row's largest magnitude, and what is wrong, if anything is."""
    try:
        made = contender.read(contender.call()).double()
        expected = contender.expected()
    except (RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
        return None, first_line(error)
    largest = expected.abs().amax(-1).clamp_min(torch.finfo(torch.float32).tiny)
    error = float(((made - expected).abs().amax(-1) / largest).max())
    return (error, None) if error <= allowed else (None, f"wrong: an error of {error:.2g}, {allowed:.2g} is allowed")


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]


def times_of(contenders: Sequence[Sequence[Callable[[], Any]]], timing: Timing) -> list[float]:
    """Each contender's median microseconds per call. Rounds alternate direction: none always follows the same other."""
    sets = len(contenders[0])
    trial = [Replay(calls, sets, timing.between) for calls in contenders]
    for replay in trial:
        replay.sample()
    fastest = min(replay.sample() for replay in trial)
    passes = math.ceil(REPLAY_US / (fastest * sets))
    replays = trial if passes == 1 else [Replay(calls, passes * sets, timing.between) for calls in contenders]
    nothing = Replay([lambda: None], passes * sets, True) if timing.between else None
    samples: list[list[float]] = [[] for _ in replays]
    taken_off = []
    for replay in replays:
        replay.sample()
    for round_ in range(timing.rounds):
        order = range(len(replays))
        for i in order if round_ % 2 == 0 else reversed(order):
            samples[i].append(replays[i].sample())
        taken_off.append(nothing.sample() if nothing else 0.0)
    return [statistics.median(times) - statistics.median(taken_off) for times in samples]


class Replay:
    """A CUDA graph of `count` calls, which take turns; with a small kernel behind each if `between`."""

    def __init__(self, calls: Sequence[Callable[[], Any]], count: int, between: bool):
        self._count = count
        self._graph = torch.cuda.CUDAGraph()
        self._small = torch.zeros(1024, device="cuda") if between else None
        with torch.cuda.graph(self._graph):
            for i in range(count):
                calls[i % len(calls)]()
                if self._small is not None:
                    self._small.add_(1.0)

    def sample(self) -> float:
        """Microseconds per call of one replay."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        self._graph.replay()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / self._count


def warm_up() -> None:
    """A GPU that has been idle runs at another clock."""
    a = normal("cuda", 4096, 4096).bfloat16()
    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        for _ in range(50):
            torch.mm(a, a)
        torch.cuda.synchronize()


# What is said about it.


def describe(device: str) -> dict[str, str]:
    versions = f"cleave {cleave.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    if device == "cpu":
        return {"device": f"CPU, {platform.machine()}", "versions": versions, "date": now}
    gpu = f"--id=GPU-{torch.cuda.get_device_properties(0).uuid}"
    query = [gpu, "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"]
    try:
        asked = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, timeout=30, check=True)
        driver, power, clock = asked.stdout.strip().split(", ")
    except (OSError, subprocess.SubprocessError, ValueError):
        driver = power = clock = "unknown"
    return {
        "device": f"{torch.cuda.get_device_name(0)}, at most {power}, {clock}",
        "versions": f"{versions}, CUDA {torch.version.cuda}, driver {driver}",
        "date": now,
    }


HEADING = f"{'shape':24}{'against':30}{'cleave us':>11}{'its us':>11}{'ratio':>8}   errors: cleave, its"


def lines_of(row: dict[str, Any]) -> Iterator[str]:
    if "failed" in row:
        yield f"{row['shape']:24}FAILED: {row['failed']}"
    ours = row.get("us")
    for name, peer in row["peers"].items():
        figures = f"{'-':>11}{'-':>11}{'-':>8}"
        if ours:
            figures = f"{ours:11.2f}{peer['us']:11.2f}{peer['ratio']:8.2f}"
        errors = f"{row['error']:.1e}, {peer['error']:.1e}"
        yield f"{row['shape']:24}{name:30}{figures}   {errors}" + ("   slower" if peer.get("ratio", 1) < 1 else "")
    for name, reason in row["without"].items():
        yield f"{row['shape']:24}{name:30}left out: {reason}"


def summarised(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each job and peer: the ratios' geometric mean, the worst and the best, and where Cleave is slower."""
    ratios: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        for name, peer in row["peers"].items():
            if "ratio" in peer:
                ratios.setdefault((row["job"], name), {})[row["shape"]] = peer["ratio"]
    for (job, peer), by_shape in ratios.items():
        yield {
            "job": job,
            "peer": peer,
            "shapes": len(by_shape),
            "geomean": statistics.geometric_mean(by_shape.values()),
            "worst": min(by_shape.values()),
            "best": max(by_shape.values()),
            "slower": [shape for shape, ratio in by_shape.items() if ratio < 1],
        }


def summary_line(summary: dict[str, Any]) -> str:
    figures = f"geomean {summary['geomean']:.2f}, worst {summary['worst']:.2f}, best {summary['best']:.2f}"
    slower = f"; slower at {', '.join(summary['slower'])}" if summary["slower"] else ""
    return f"{summary['job']:16}{summary['peer']:30}{figures}{slower}"


if __name__ == "__main__":
    sys.exit(main())
