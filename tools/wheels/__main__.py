"""Makes the wheels of every processor and Python, and the source distribution: `make wheels`.

    python tools/wheels [--python 3.12] [--processor aarch64] [--out dist]

Needs pip, a network, and a CPython with its header files for each version that has a wheel; no GPU, no CUDA, no
compiler. Wheels of the other processors are checked as far as that goes without running them.
"""

import argparse
import platform
import shutil
from pathlib import Path

import check
import headers
import interpreters
import toolbox
from wheel import PROCESSORS, Wheel, sdist

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make wheels", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", choices=interpreters.VERSIONS, help="by default all")
    parser.add_argument("--processor", action="append", choices=PROCESSORS, help="by default all")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()

    pythons = {version: interpreters.find(version) for version in options.python or interpreters.VERSIONS}
    work = ROOT / "build" / "wheels"
    tools = toolbox.install(work / "tools")
    unpacked = headers.unpack(work / "headers", ROOT)
    options.out.mkdir(exist_ok=True)

    made = [sdist(ROOT, tools, options.out)]
    # This machine's processor first: its build can import the module, and so writes the stub for all.
    wanted = options.processor or PROCESSORS
    stubs: dict[str, Path] = {}
    for processor in sorted({*wanted, platform.machine()}, key=lambda name: name != platform.machine()):
        for version, python in pythons.items():
            wheel = Wheel(version, processor)
            path = wheel.build(ROOT, work, python, tools, unpacked, stubs.get(version))
            stubs.setdefault(version, wheel.stub(path, work))
            check.contents(path)
            check.granted(path, wheel.platform, tools)
            if processor in wanted:
                made.append(Path(shutil.copy(path, options.out)))
    for path in made:
        print(f"{path.stat().st_size / 1e6:5.1f} MB  {path}")


if __name__ == "__main__":
    main()
