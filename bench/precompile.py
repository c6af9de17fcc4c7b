"""Compiling, on all cores, what is to be measured: a GPU should not wait for a compiler."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import cleave
from cleave import _core


def compile_kernels(cases: Iterable[Any], device: str) -> int:
    """Those that `device` will need, into the cache on disk; how many they are.

    What is refused here is refused again, and reported, where it is measured.
    """
    plans = [plan for case in cases if (plan := _plan(case, device)) and plan.kernel_source]
    distinct = {plan.kernel_source: plan for plan in plans}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wait([pool.submit(_core.compile_plan, plan) for plan in distinct.values()])
    return len(distinct)


def _plan(case: Any, device: str) -> Any:
    """None of what is no product, or is refused."""
    if not hasattr(case, "plan"):
        return None
    try:
        return case.plan(device)
    except (ValueError, cleave.CudaError):
        return None
