"""All jobs by name: of dense and grouped products, and of convolutions.

A job has a name, `testing` (the module of cleave.testing that runs its cases), `peers` (who may serve them),
case(shape), shapes(part, count, seed), and weights(shape): what says which part the shape is of.
"""

from __future__ import annotations

from .conv_jobs import CONV_JOBS, ConvJob
from .grouped_jobs import GROUPED_JOBS, GroupedJob
from .jobs import JOBS, Job

AnyJob = Job | GroupedJob | ConvJob
Shape = tuple[int, ...]

EVERY_JOB: dict[str, AnyJob] = JOBS | GROUPED_JOBS | CONV_JOBS
