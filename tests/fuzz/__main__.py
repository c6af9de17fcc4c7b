"""The command line."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import torch

from .draw import OPERATIONS, SHARING, draw
from .run import Fuzzer, Settings, summary
from .trial import Place


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Draws calls of every operation, and checks every element they give against "
        "float64, and the memory beside. What fails is made as small as it can be and printed as a "
        "script. Exits with status 1 then, and with 3 if a call hangs.",
        epilog="Every problem follows from the seed, its number, --sharing, --operation and "
        "--device: --first and --count run it again.",
    )
    add = parser.add_argument
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where cleave runs")
    add("--reference", help="where float64 is computed; default: the device")
    add("--seconds", type=float, help="stop after so long")
    add("--count", type=int, help="stop after so many problems")
    add("--seed", type=int, default=0)
    add("--first", type=int, default=0, help="number of the first problem")
    add("--operation", default="", help=f"some of {','.join(OPERATIONS)}; default: all")
    add("--sharing", type=int, default=SHARING, help="problems that share a configuration")
    add("--every", type=int, default=64, help="problems between two waits for the device")
    add("--small", action="store_true", help="no large problems, as always on the CPU")
    add("--threads", type=int, default=Settings().threads, help="that compile")
    add("--sample", type=int, metavar="N", help="N small problems for compute-sanitizer: of as "
        "many configurations, one at a time, in memory that ends where arrays do")  # fmt: skip
    add("--hang", type=float, default=Settings().hang, help="seconds that a problem may last")
    add("--list", action="store_true", help="print the problems, run none")
    arguments = parser.parse_args()

    operations = [name for name in arguments.operation.split(",") if name]
    for name in operations:
        if name not in OPERATIONS:
            parser.error(f"--operation {name}: there is {', '.join(OPERATIONS)}")
    settings = Settings(
        arguments.seed, arguments.first, arguments.count, arguments.seconds, operations,
        arguments.sharing, arguments.every, arguments.small, arguments.threads,
    )  # fmt: skip
    if arguments.sample:
        settings = replace(settings, count=arguments.sample, sharing=1, every=1, small=True)
    if settings.count is None and settings.seconds is None:
        settings.seconds = 60.0
    settings.hang = arguments.hang
    place = Place.of(arguments.device, arguments.reference, tight=bool(arguments.sample))
    fuzzer = Fuzzer(settings, place, lambda text: print(text, flush=True))
    if arguments.list:
        for index in range(settings.first, settings.first + (settings.count or 10)):
            print(index, draw(settings.seed, index, fuzzer.target, operations, settings.sharing))
        return 0
    report = fuzzer.run()
    print(summary(report))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
