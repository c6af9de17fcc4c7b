"""The tests that emitted extensions bring, of epilogue functions that reduce and that have a backward of their own,
with the library's CPU backend in the kernel's place. On GPUs all of them run, in tests/gpu."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", minversion="2.10")

from emitted_builds import EVERYTHING, in_child
from emitted_on_cpu import run_own_tests
from emitted_operations import Convolution, Operation

import cleave

NAMES = (
    *("reduced_batch", "reduced_experts", "reduced_columns", "given_backward"),
    *("conv_reduced_groups", "upsampling_reduced", "filters_reduced"),
)
BY_NAME: dict[str, Operation | Convolution] = {operation.name: operation for operation in EVERYTHING}


@pytest.mark.parametrize("name", NAMES)
def test_they_pass(name: str, tmp_path: Path) -> None:
    operation = BY_NAME[name]
    folder = cleave.emit.pytorch(operation.plan(), operation.name, tmp_path / "emitted", archs=["sm_90a"])
    try:
        in_child(run_own_tests, operation, folder, method="spawn")
    finally:
        said = (folder / "said").read_text()
        print(said)
    assert " passed" in said.splitlines()[-1]
