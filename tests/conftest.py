"""Makes this folder importable (for gemm_reference), sets how hypothesis draws its examples, and
keeps compiled kernels in the build folder, as the C++ tests do, and out of the user's cache.
"""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# Before anything asks for the cache: where it is, is found out once.
os.environ.setdefault("CLEAVE_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "cache"))

settings.register_profile(
    "cleave",
    database=None,  # a failure prints how to reproduce it
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("cleave")
