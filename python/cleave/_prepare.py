"""`cleave.prepare`: all kernels of a model, before it serves."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _core


@dataclass(frozen=True)
class Prepared:
    """What `prepare` did.

    products: how many different ones there are, not counting numbers of tokens. kernels: how many they need, all of
    them compiled and loaded now. seconds: how long it took.
    """

    products: int
    kernels: int
    seconds: float


def prepare(
    what: Any,
    tokens: tuple[int, int] = (1, 8192),
    *,
    dtype: Any = None,
    kernels: str = "covering",
    stream: Any = None,
) -> Prepared:
    """Chooses, compiles and loads all kernels that a model needs for any number of tokens in a range.

    Afterwards a call with a new number of tokens compiles nothing and is planned within microseconds, so it may be
    captured in a CUDA graph at once.

    Args:
        what: a torch module, or one or several plans. A module's layers of `cleave.torch` that are on a GPU
            (W8A8Linear, W8A8Experts, W4A16Linear, W4A16Experts, W4A8Linear, W4A8Experts, RMSNormQuantize, Float8Linear,
            GroupedLinear and MoE) are prepared for calls without gradients. A GemmPlan (of `plan_gemm`,
            `plan_scaled_gemm`, `plan_grouped_gemm`, `plan_mixed_gemm` or `plan_problem`) stands for its product
            [M, K] x [K, N] with any M: types, layouts, bias, activation and so on must be those of the later calls;
            only lines of A and D may have other strides of the same alignment (up to 16 bytes).
        tokens: the smallest and the largest number of rows M. For an MoE these are tokens, top_k rows each; for
            W8A8Experts, W4A16Experts and W4A8Experts, tokens of as many rows as the model's config.num_experts_per_tok
            says, or up to 8.
        dtype: a module's activations, a torch.dtype; defaults to bfloat16.
        kernels: "covering" chooses from a few kernels that serve all sizes about as well as the whole catalogue, so
            that a model needs some dozens at most; "all" chooses from the whole catalogue.
        stream: the stream of the calls, for which the workspace of split products is allocated: torch.cuda.Stream and
            its like, or an integer. For a module it defaults to torch's current stream.

    Kernels are compiled in parallel, by one process per processor, and loaded from the disk cache where they are there.
    Measured choices (`cleave tune`) still come first, and are prepared as well. Call it again for other layers or
    another range; the last call for a product counts. Results may differ in the last bits from those of the kernel
    that would be chosen without it, and are as repeatable.

    Raises:
        ValueError: something that cannot be prepared: plans for the CPU, for convolutions, or with a split-K mode,
            slices or kernel that were asked for.
        CudaError: kernels cannot be compiled or loaded.
    """
    begun = time.monotonic()
    first, last = _range(tokens)
    plans = [what] if isinstance(what, _core.GemmPlan) else what
    if not isinstance(plans, Sequence):
        from .torch import _prepare as of_torch

        with of_torch.device_of(what):
            stream = stream or of_torch.current_stream(what)
            return _prepare(of_torch.products(what, first, last, dtype), kernels, stream, begun)
    return _prepare([(plan, first, last) for plan in plans], kernels, stream, begun)


def _range(tokens: Any) -> tuple[int, int]:
    if isinstance(tokens, Sequence) and len(tokens) == 2 and all(isinstance(x, int) for x in tokens):
        if not 1 <= tokens[0] <= tokens[1]:
            raise ValueError(
                f"tokens are {tokens[0]} to {tokens[1]}; the first must be at least 1, and the last no less"
            )
        return tokens[0], tokens[1]
    raise TypeError(f"tokens is {tokens!r}; it must be two integers, the fewest and the most, as (1, 8192)")


def _prepare(products: Iterable[tuple[Any, int, int]], kernels: str, stream: Any, begun: float) -> Prepared:
    """products: plans, each with its range of rows."""
    from ._compile_ahead import CompileAhead  # processes and threads, which `import cleave` need not load

    count, wanted, others = 0, [], []
    with CompileAhead() as compilers:
        for plan, first, last in products:
            count += 1
            if isinstance(plan, _core.QuantizePlan):
                others += _core.prepare_quantize_rows(plan, first, last)
                continue
            of_product = _core.prepare_rows(plan, first, last, kernels)
            wanted += of_product
            for each in of_product:
                compilers.submit(each)
        for plan in others:  # few, and small
            plan.prepare(stream)
        compilers.wait(wanted)
    for plan in wanted:
        plan.prepare(stream)
    sources = {plan.kernel_source for plan in (*wanted, *others)}
    return Prepared(count, len(sources), time.monotonic() - begun)
