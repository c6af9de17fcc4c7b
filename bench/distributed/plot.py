"""A picture of what bench.distributed measured: a panel for each operation at local sizes of TP8 and TP2, over tokens;
how many times as fast as NCCL behind the better product, and, dotted, how many times it could be.

python -m bench.distributed.plot bench/results/distributed.json build/plots/distributed.svg     # needs matplotlib
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from .. import report
from .report import gains


def write(path: Path, result: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("svg")
    # Text as text, and the same file from the same numbers.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "distributed"})
    from matplotlib.figure import Figure

    of = result["machine"]
    shown = gains(result["rows"], of["gpus"])
    panels = [(key, list(found)) for key, found in groupby(shown, lambda gain: (gain.operation, gain.case))]
    width = min(4, len(panels))
    height = -(-len(panels) // width)
    figure = Figure(figsize=(3.6 * width, 3 * height), layout="constrained")
    all_axes = list(figure.subplots(height, width, squeeze=False).flat)
    for ((operation, case), found), axes in zip(panels, all_axes, strict=False):
        tokens = [int(gain.size.split()[0]) for gain in found]
        for label, style, ratios in (
            ("ours", "o-", [gain.unfused / gain.ours for gain in found]),
            ("at most", ":", [gain.most for gain in found]),
        ):
            axes.plot(tokens, ratios, style, label=label)
        axes.axhline(1, color="gray", linewidth=1)
        axes.set(title=f"{operation}, {case}", xlabel="tokens", ylabel="times as fast as NCCL's")
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.2)
        axes.legend(fontsize="small")
    for axes in all_axes[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(f"Products over {of['gpus']} GPUs: {of['gpu']}")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    write(Path(sys.argv[2]), report.load(Path(sys.argv[1])))
