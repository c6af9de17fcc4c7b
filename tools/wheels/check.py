"""What a finished wheel must be, found out without running it."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import toolbox

MOST_BYTES = 8_000_000
NEEDED = (r"cleave/_core\.(cpython-\d+-\w+-linux-gnu|abi3)\.so", r"cleave/_core\.pyi", r"cleave/libcleave\.so",
          r"cleave/_torch_ops\.so", r"[^/]+\.dist-info/METADATA")  # fmt: skip
FROM_TORCH = ("libtorch.so", "libtorch_cpu.so")  # beside which the operators are loaded


def contents(wheel: Path) -> None:
    """Exits with what is wrong."""
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"{wheel} has {size / 1e6:.1f} MB; {MOST_BYTES / 1e6:.0f} at most are wanted: is it stripped?")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    missing = [pattern for pattern in NEEDED if not any(re.fullmatch(pattern, name) for name in names)]
    if missing:
        sys.exit(f"{wheel} has no {', '.join(missing)}")


def audited(wheel: Path, platform: str, tools: Path, out: Path) -> Path:
    """The wheel in `out`, with the platform's tag, which auditwheel gives it if what it links with allows that."""
    excluded = [word for name in FROM_TORCH for word in ("--exclude", name)]
    # Nothing is copied into it, so there is nothing to patch.
    subprocess.run(
        [sys.executable, "-m", "auditwheel", "repair", "--plat", platform, "--only-plat", "--patcher", "none",
         *excluded, "--wheel-dir", str(out), str(wheel)],
        env=toolbox.environment(tools), check=True,
    )  # fmt: skip
    name = re.sub(r"linux_\w+\.whl$", f"{platform}.whl", wheel.name)
    return out / name
