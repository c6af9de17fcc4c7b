"""`cleave.prepare`: all kernels of a model, before it serves."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _core


@dataclass(frozen=True)
class Prepared:
    """products: how many different ones there are, whatever their tokens. kernels: that they run, all of which are
    compiled and loaded. seconds: that this took."""

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
    """Chooses, compiles and loads all kernels that a model needs for any number of tokens of a range.

    Afterwards a call with a number of tokens that has not been met before compiles nothing, so it may be captured in a
    CUDA graph at once, and is planned in some microseconds.

    what: a torch module, of which the layers W8A8Linear, W8A8Experts, W4A16Linear, W4A16Experts, RMSNormQuantize,
        Float8Linear, GroupedLinear and MoE of `cleave.torch` that are on a GPU are prepared, for calls without
        gradients; or plans, a GemmPlan or several (`plan_gemm`, `plan_scaled_gemm`, `plan_grouped_gemm`,
        `plan_mixed_gemm`, `plan_problem`), each of which stands for its product [M, K] x [K, N] with any M: types,
        layouts, bias, activation and so on must be those of the later calls, while lines of A and D may have other
        strides of the same alignment (up to 16 bytes).
    tokens: the fewest and the most rows M; of an MoE its tokens, each of which is top_k rows; beside W8A8Experts and
        W4A16Experts each is as many rows as the model's config.num_experts_per_tok says, or up to 8.
    dtype: of a module's activations, a torch.dtype; by default bfloat16.
    kernels: "covering" chooses from few kernels that serve all sizes about as well as the whole catalogue does, so
        that a model has some dozens at most; "all" from the whole catalogue.
    stream: of the calls, for which the workspace of split products is allocated: torch.cuda.Stream and its like, or an
        integer; by default, of a module, torch's current one.

    Kernels are compiled side by side, by a process for each processor; what is on disk already is loaded from there.
    Measured choices (`cleave tune`) still have precedence, and are prepared, too. It may be called again, for other
    layers or another range: the last call for a product counts. Results of a product may differ in their last bits
    from those that the unprepared kernel gives; they are as repeatable as ever.

    ValueError names what cannot be prepared: plans for the CPU, of convolutions, or with a split-K mode, slices or
    kernel that were asked for. CudaError where kernels cannot be compiled or loaded.
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
