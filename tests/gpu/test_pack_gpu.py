"""A process that starts with a pack runs what another compiled, and has no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import sys, torch, cleave
torch.manual_seed(0)
x, w = torch.randn(64, 1024, device="cuda").bfloat16(), torch.randn(1536, 1024, device="cuda").bfloat16()
(a, scale_a), (b, scale_b) = (cleave.quantize(each, "float8_e4m3fn") for each in (x, w))
made = [cleave.gemm(x, w.T), cleave.scaled_gemm(a, b.T, scale_a, scale_b.T, out_dtype=torch.bfloat16)]
torch.save([each.cpu() for each in made], sys.argv[1])
if len(sys.argv) > 2:
    built = cleave.build_pack(sys.argv[2])
    assert built.kernels >= 3 and not built.problem, built
"""


def run(*arguments: Path, **environment: str) -> None:
    command = [sys.executable, "-c", CODE, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_same_bits_without_a_compiler(tmp_path: Path) -> None:
    import torch

    pack = tmp_path / "all.pack"
    run(tmp_path / "compiled", pack)
    none = {"CLEAVE_NVRTC": "/nowhere/libnvrtc.so", "CLEAVE_CACHE_DIR": str(tmp_path / "empty")}
    run(tmp_path / "packed", CLEAVE_PACKS=str(pack), **none)
    for one, other in zip(torch.load(tmp_path / "compiled"), torch.load(tmp_path / "packed"), strict=True):
        assert torch.equal(one, other)
