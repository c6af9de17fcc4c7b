"""A compiler of _compile_ahead.py: into the disk cache, what each line of standard input has, a source and its
architecture."""

from __future__ import annotations

import json
import os
import sys

from . import _core


def main() -> None:
    os.nice(5)
    for line in sys.stdin:
        source, arch = json.loads(line)
        try:
            _core.compile_source(source, arch)
        except (RuntimeError, ValueError) as error:
            print(str(error).splitlines()[0], flush=True)
        else:
            print(flush=True)


if __name__ == "__main__":
    main()
