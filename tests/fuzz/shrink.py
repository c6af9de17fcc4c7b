"""A failing problem made as small as it can be and still fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from .problem import Problem
from .trial import Refused


def shrink(problem: Problem, fails: Callable[[Problem], bool], seconds: float = 60.0) -> Problem:
    """Greedily, a few fields at a time, while `fails` says so. What is refused does not fail."""
    deadline = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for fields in problem.smaller():
            if time.monotonic() > deadline:
                return problem
            less = replace(problem, **fields)
            if less != problem and _fails(less, fails):
                problem, found = less, True
                break
    return problem


def _fails(problem: Problem, fails: Callable[[Problem], bool]) -> bool:
    try:
        return fails(problem)
    except Refused:
        return False
