"""All jobs by name: of dense and grouped products, and of convolutions.

A job has a name, `testing` (the module of cleave.testing that runs its cases), `peers` (who may serve them),
case(shape), shapes(part, count, seed), and weights(shape): what says which part the shape is of.
"""

from __future__ import annotations

from . import JOBS, Job
from .conv import CONV_JOBS, ConvJob
from .grouped import GROUPED_JOBS, GroupedJob

AnyJob = Job | GroupedJob | ConvJob
Shape = tuple[int, ...]

EVERY_JOB: dict[str, AnyJob] = JOBS | GROUPED_JOBS | CONV_JOBS
