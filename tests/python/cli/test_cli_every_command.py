"""Every form of the `cleave` command to its last line, on a GPU that is not there.

What the forms compute, test_cli_profile.py checks on the CPU and tests/gpu on a GPU. Here kernels
do not run (tests/fake_driver), and nothing between the arguments and the last line may fail.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import EPILOGUES

from cleave import cli

COMMAND = Path(__file__).parents[2] / "fake_driver" / "command.py"
GEMM = ["gemm", "--m", "64", "--n", "48", "--k", "512"]
GROUPED = ["grouped", "--sizes", "20,0,1,47", "--n", "64", "--k", "128"]
CONV = [
    "conv", "--images", "2", "--size", "9x7", "--channels", "64", "--filters", "64",
    "--filter-size", "3", "--padding", "1",
]  # fmt: skip
ROUTE = [
    "route", "--tokens", "9", "--experts", "256", "--top-k", "8", "--scoring-func", "sigmoid", "--n-group", "8",
    "--topk-group", "4", "--bias", "yes",
]  # fmt: skip
LOGITS = ["router_logits", "--tokens", "4", "--experts", "128", "--features", "512", "--dtype", "fp16"]
LORA = ["lora", "--rows", "40", "--features", "96", "--outputs", "72", "--dtype", "fp16"]
MEASURE = ["--no-verify", "--iterations", "1", "--device", "cuda"]
GPU = ["--device", "cuda:0"]
SHAPES = Path(__file__).with_name("shapes.txt")  # as CLEAVE_LOG_SHAPES leaves it
TUNED = Path(__file__).with_name("tuned.txt")
SCALED = ["--dtype", "int8", "--scaling", "row", "--out-dtype", "int8"]
OUT_SCALE = ["--out-dtype", "int8", "--out-scale", "block_1x128", "--scale-major", "mn", "--use-ue8m0", "yes"]
PACKED = ["--weights", "int4", "--group-size", "64", "--zeros", "yes"]
EPILOGUE = ["--epilogue", f"{EPILOGUES}:gelu_residual"]
EMIT = ["--name", "operation", "--sourcedir", "project", "--sources", "cubin"]

# They multiply, and the driver that stands in for a GPU's does not.
CHECKS = [["info"], ["doctor"]]
# Arguments, and what the last line has.
COMMANDS = [
    (["profile", *GEMM, *MEASURE], "sm90"),
    (["profile", *GROUPED, *MEASURE], "sm90"),
    (["profile", *CONV, *MEASURE, "--kind", "fprop,dgrad,wgrad"], "sm90"),
    *((["profile", *operation, *OUT_SCALE, *MEASURE], "ue8m0 ") for operation in (GEMM, GROUPED)),
    (["profile", *CONV, *SCALED, *MEASURE], " int8 scales row to int8 "),
    *((["profile", *operation, *PACKED, *MEASURE], "B int4 64 zeros ") for operation in (GEMM, GROUPED)),
    (["profile", *ROUTE, *MEASURE], "8 of 256 float32 sigmoid"),
    (["profile", *LOGITS, *MEASURE], "4x128x512 float16*float32"),
    (["profile", *LORA, *MEASURE], "40x96x72 rank 16 float16"),
    *((["explain", *operation, *GPU], "roofline") for operation in (ROUTE, LOGITS, LORA)),
    (["explain", *GEMM, *GPU], "%"),
    (["explain", *GROUPED, *GPU], "%"),
    (["explain", *CONV, *GPU], "%"),
    *(
        (["profile", *operation, "--deterministic", "batch_invariant", "--kernel", "portable", *MEASURE], "portable")
        for operation in (GEMM, GROUPED)
    ),
    *((["profile", *operation, "--sum-order", "k", *MEASURE], "sum order k") for operation in (GEMM, GROUPED)),
    (["explain", *CONV, *SCALED, *GPU], "%"),
    *((["explain", *operation, *OUT_SCALE, *GPU], "%") for operation in (GEMM, GROUPED)),
    *((["explain", *operation, "--weights", "nvfp4", *GPU], "%") for operation in (GEMM, GROUPED)),
    (["compile", "--arch", "sm_80"], "kernels, 0 with spills"),
    (["compile", *GEMM, *GPU], "1 kernels, 0 with spills"),
    (["compile", *GROUPED, *GPU], "1 kernels, 0 with spills"),
    (["compile", *CONV, *GPU], "1 kernels, 0 with spills"),
    *((["compile", *operation, *OUT_SCALE, *GPU], "1 kernels, 0 with spills") for operation in (GEMM, GROUPED)),
    *((["compile", *operation, *PACKED, *GPU], "1 kernels, 0 with spills") for operation in (GEMM, GROUPED)),
    *(
        (["emit", target, *operation, *GPU, *EMIT], "project: ")
        for target in ("pytorch", "cpp")
        for operation in (GEMM, GROUPED, CONV)
    ),
    *(
        (["emit", target, *operation, *PACKED, *GPU, *EMIT], "project: ")
        for target in ("pytorch", "cpp")
        for operation in (GEMM, GROUPED)
    ),
    *(
        (["emit", target, *operation, *GPU, *EMIT, *EPILOGUE], "epilogue gelu_residual, sm90")
        for target in ("pytorch", "cpp")
        for operation in (GEMM, GROUPED, CONV)
    ),
    (["pack", "build", "all.pack", "--from", str(SHAPES), *GPU], "all.pack"),
    *(
        (["pack", "build", "some.pack", *operation, *GPU], "1 kernels, ")
        for operation in (GEMM, GROUPED, CONV)
    ),
    (["pack", "ls"], "no packs: CLEAVE_PACKS is not set"),
    (["cache", "ls"], "kernels, "),
    (["cache", "clear"], "removed "),
    *((["tune", *operation, *GPU, "--candidates", "6"], "stored in ") for operation in (GEMM, GROUPED, CONV)),
    (["tune", *CONV, *SCALED, *GPU, "--candidates", "3"], "stored in "),
    *((["tune", *operation, *OUT_SCALE, *GPU, "--candidates", "3"], "stored in ") for operation in (GEMM, GROUPED)),
    *((["tune", *operation, *PACKED, *GPU, "--candidates", "3"], "stored in ") for operation in (GEMM, GROUPED)),
    (["tune", "--from", str(SHAPES), *GPU, "--candidates", "3"], "stored in "),
    (["tune", "merge", str(TUNED)], "1 choices added, 0 replaced"),
]  # fmt: skip


def run(arguments: list[str], folder: Path, environment: dict[str, str], status: int = 0) -> list[str]:
    """The lines of a command that ends with that status."""
    done = subprocess.run(
        [sys.executable, str(COMMAND), *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("arguments", "last"), COMMANDS, ids=lambda it: "-".join(it[:2]))
def test_command_ends(arguments, last, tmp_path, fake_gpu):
    assert last in run(arguments, tmp_path, fake_gpu)[-1]


@pytest.mark.parametrize("arguments", CHECKS, ids=lambda it: it[0])
def test_a_wrong_product_is_found(arguments, tmp_path, fake_gpu):
    assert run(arguments, tmp_path, fake_gpu, status=1)[-1] == "Broken: product on cuda:0"


def forms(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The words of every command that can be run."""
    found = {words} if parser.get_default("run") else set()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                found |= forms(inner, (*words, word))
    return found


def test_every_command_is_here():
    def runs(arguments: list[str], words: tuple[str, ...]) -> bool:
        return tuple(it for it in arguments if not it.endswith(".pack"))[: len(words)] == words

    listed = [*CHECKS, *(arguments for arguments, _ in COMMANDS)]
    missing = {words for words in forms(cli.build_parser()) if not any(runs(it, words) for it in listed)}
    assert not missing
