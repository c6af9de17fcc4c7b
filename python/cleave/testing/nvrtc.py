"""The versions of NVRTC whose kernels were compared (tools/nvrtc_versions.py, docs/support.md)."""

from __future__ import annotations

# What the tests look at registers and spills of, and what others are compared with.
REFERENCE = "13.0"
COMPARED = ("12.4", "12.9", REFERENCE, "13.1", "13.2", "13.5")


def remark(version: str) -> str:
    """What `cleave info` says of one."""
    if version == REFERENCE:
        return "what Cleave is tested with"
    if version in COMPARED:
        return f"its kernels were compared with {REFERENCE}'s"
    return f"not compared with {REFERENCE}, as {', '.join(COMPARED)} were"


def wheel(version: str) -> str:
    """What pip installs it by."""
    package = "nvidia-cuda-nvrtc-cu12" if version.startswith("12.") else "nvidia-cuda-nvrtc"
    return f"{package}=={version}.*"
