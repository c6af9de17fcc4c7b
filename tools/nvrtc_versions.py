"""Compiles a sample of the kernels with other versions of NVRTC, and compares what comes out with 13.0's.

    .venv/bin/python tools/nvrtc_versions.py 12.4 13.5 --every 10

Prints the table of docs/support.md: for each version how many kernels it was given and how many it refused; how many
instructions all of them have, by 13.0's, and the one that gained most; how many have more than a tenth more
instructions, more than a tenth more registers, or more bytes of spills; and seconds of a processor for a kernel. Exits
with status 1 if a kernel is refused or spills more, or if a version's instructions are a tenth more in total.

NVIDIA's wheels are unpacked in build/nvrtc, and what build/kernel_digests printed of each lies beside them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
sys.path.insert(0, str(ROOT / "python"))

from cleave.testing.nvrtc import COMPARED, REFERENCE, wheel  # noqa: E402

TENTH = 1.1
COLUMNS = ["NVRTC", "kernels", "refused", "instructions", "most in a kernel", "with 10 % more instructions"]
COLUMNS += ["with 10 % more registers", "with more spills", "seconds for a kernel"]


@dataclass(frozen=True)
class Kernel:
    """What a compiler made of one."""

    instructions: int
    registers: int
    spills: int  # bytes, and those of the stack


def parse(digests: str) -> dict[str, Kernel | None]:
    """The lines of build/kernel_digests by architecture and number; None: refused."""
    kernels: dict[str, Kernel | None] = {}
    for line in digests.splitlines():
        fields = line.split(maxsplit=3)
        name = " ".join(fields[:2])
        if fields[2] == "refused":
            kernels[name] = None
            continue
        size, registers, stack, spills = map(int, line.split()[-4:])
        kernels[name] = Kernel(size // 16, registers, stack + spills)
    return kernels


@dataclass(frozen=True)
class Comparison:
    """What another compiler makes of the kernels that both make, by what the reference does."""

    kernels: int
    refused: int
    instructions: float
    most_instructions: float
    many_instructions: int
    many_registers: int
    more_spills: int

    @property
    def holds(self) -> bool:
        return self.refused == self.more_spills == 0 and self.instructions <= TENTH


def compare(reference: dict[str, Kernel | None], other: dict[str, Kernel | None]) -> Comparison:
    pairs = [(known, other[name]) for name, known in reference.items() if known and other.get(name)]
    ratios = [new.instructions / known.instructions for known, new in pairs]
    return Comparison(
        kernels=len(other),
        refused=sum(kernel is None for kernel in other.values()),
        instructions=sum(new.instructions for _, new in pairs) / max(sum(known.instructions for known, _ in pairs), 1),
        most_instructions=max(ratios, default=1.0),
        many_instructions=sum(ratio > TENTH for ratio in ratios),
        many_registers=sum(new.registers > TENTH * known.registers for known, new in pairs),
        more_spills=sum(new.spills > TENTH * known.spills for known, new in pairs),
    )


def troubles(reference: dict[str, Kernel | None], other: dict[str, Kernel | None]) -> list[str]:
    """What is wrong with which kernels."""
    found = [f"{name} is refused" for name, kernel in other.items() if kernel is None]
    for name, known in reference.items():
        new = other.get(name)
        if known and new and new.spills > TENTH * known.spills:
            found.append(f"{name} keeps {new.spills} bytes in local memory")
    return found


def row(version: str, found: Comparison, seconds: float) -> str:
    cells = [version, found.kernels, found.refused, f"{found.instructions:.3f}", f"{found.most_instructions:.2f}"]
    cells += [found.many_instructions, found.many_registers, found.more_spills, f"{seconds / found.kernels:.1f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def library(version: str) -> Path | None:
    """libnvrtc of an unpacked wheel."""
    return next((BUILD / "nvrtc" / version).glob("nvidia/*/lib/libnvrtc.so.1?"), None)


def fetch(version: str) -> None:
    """Has pip unpack the wheel, unless it is there. CalledProcessError without a network."""
    if not library(version):
        folder = BUILD / "nvrtc" / version
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        subprocess.run([*command, "--only-binary=:all:", wheel(version)], check=True)


def digests(version: str, every: int) -> tuple[str, float]:
    """What build/kernel_digests prints with that NVRTC, and how many seconds of processors it took."""
    environment = {**os.environ, "CLEAVE_NVRTC": str(library(version))}
    printed = BUILD / "nvrtc" / f"{version}.txt"
    with printed.open("w") as file:
        process = subprocess.Popen([BUILD / "kernel_digests", str(every)], env=environment, stdout=file)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return printed.read_text(), used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=COMPARED, help=f"default: {' '.join(COMPARED)}")
    parser.add_argument("--every", type=int, default=5, help="takes every so many kernels of the sample (default: 5)")
    parser.add_argument("--at-once", type=int, default=1, help="versions that compile side by side (default: 1)")
    parser.add_argument("--fetch-newest", action="store_true", help="only has pip fetch the newest, for the tests")
    options = parser.parse_args()
    versions = list(dict.fromkeys([REFERENCE, *options.versions]))
    for version in COMPARED[-1:] if options.fetch_newest else versions:
        fetch(version)
    if options.fetch_newest:
        return 0
    with ThreadPoolExecutor(options.at_once) as pool:
        made = dict(zip(versions, pool.map(lambda version: digests(version, options.every), versions), strict=True))
    reference = parse(made[REFERENCE][0])
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    holds = True
    for version in versions:
        text, seconds = made[version]
        found = compare(reference, parse(text))
        holds &= found.holds
        print(row(version, found, seconds))
    for version in versions:
        for trouble in troubles(reference, parse(made[version][0])):
            print(f"{version}: {trouble}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
