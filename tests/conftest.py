"""Sets how hypothesis draws its examples, keeps compiled kernels in the build folder, as the C++ tests do, and out of
the user's cache, has each of several processes use one core, and gives JAX four devices on the CPU.
"""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# Before anything asks for the cache: where it is, is found out once.
os.environ.setdefault("CLEAVE_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "cache"))

# Before PyTorch is imported: threads of its own would only be in the way of the other processes.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # processes; each would import PyTorch

# Before JAX is imported: what shard_map needs of a CPU.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

settings.register_profile(
    "cleave",
    database=None,  # a failure prints how to reproduce it
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("cleave")
