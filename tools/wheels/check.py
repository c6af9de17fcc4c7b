"""What a finished wheel must be, found out without running it."""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import toolbox

MOST_BYTES = 8_000_000
NEEDED = (r"cleave/_core\.(cpython-\d+-\w+-linux-gnu|abi3)\.so", r"cleave/_core\.pyi", r"cleave/libcleave\.so",
          r"cleave/_torch_ops\.so", r"cleave/_jax_ops\.so", r"[^/]+\.dist-info/METADATA")  # fmt: skip
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


def granted(wheel: Path, platform: str, tools: Path) -> None:
    """Exits if auditwheel does not grant what the wheel links with the platform that its name claims."""
    excluded = [word for name in FROM_TORCH for word in ("--exclude", name)]
    with tempfile.TemporaryDirectory() as out:
        # "auto", since it lists the platforms of this machine's processor alone. Nothing is copied into the wheel, so
        # there is nothing to patch.
        subprocess.run(
            [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--only-plat", "--patcher", "none",
             *excluded, "--wheel-dir", out, str(wheel)],
            env=toolbox.environment(tools), check=True,
        )  # fmt: skip
        (renamed,) = Path(out).iterdir()
    if not serves(renamed.name, platform):
        sys.exit(f"{wheel} claims {platform}, and auditwheel grants it {renamed.name}")


def serves(name: str, platform: str) -> bool:
    """Whether a wheel of that name is for the platform's processor, and its glibc or an older one."""
    tag = r"manylinux_2_(\d+)_(\w+)"
    wanted = re.fullmatch(tag, platform)
    has = re.search(tag + r"\.whl$", name)
    return bool(wanted and has) and has[2] == wanted[2] and int(has[1]) <= int(wanted[1])
