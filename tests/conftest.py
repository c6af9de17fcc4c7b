"""Makes this folder importable (for gemm_reference) and sets how hypothesis draws its examples."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "cleave",
    database=None,  # a failure prints how to reproduce it
    print_blob=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("cleave")
