"""Whether an installed cleave works, without a GPU: README's example, the command, and, where torch and JAX are
installed, a product by each with its gradients and an error.

    python tools/wheels/smoke.py
"""

import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def readme() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    program: dict = {}
    exec(compile(example, str(README), "exec"), program)
    assert program["dw"].shape == (3, 64, 128)


def doctor() -> None:
    subprocess.run([sys.executable, "-m", "cleave", "doctor"], check=True, stdout=subprocess.DEVNULL)


def torch() -> None:
    import torch

    import cleave.torch

    a, b = torch.randn(8, 64, requires_grad=True), torch.randn(64, 16)
    d = torch.ops.cleave.gemm(a, b)
    d.sum().backward()
    torch.testing.assert_close(d, a @ b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(a.grad, b.sum(1).expand(8, 64), rtol=1e-4, atol=1e-4)
    assert cleave.torch.W8A8Linear.from_linear(torch.nn.Linear(64, 32))(torch.randn(4, 64)).shape == (4, 32)
    refused(lambda: torch.ops.cleave.gemm(a, b, activation="rleu"))


def jax() -> None:
    import jax

    import cleave.jax

    a, b = (jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(8, 64), (64, 16)]))
    d, pull_back = jax.vjp(jax.jit(cleave.jax.gemm), a, b)
    assert abs(d - a @ b).max() < 1e-4
    assert abs(pull_back(d)[0] - d @ b.T).max() < 1e-3
    refused(lambda: jax.block_until_ready(cleave.jax.gemm(a, b, split_k_mode="seriel")), "serial")


def refused(call: Callable[[], object], meant: str = "relu") -> None:
    """In words that came through every library on the way."""
    try:
        call()
    except Exception as error:
        assert f'Did you mean "{meant}"?' in str(error), error
    else:
        raise AssertionError("nothing was refused")


def main() -> None:
    for part in (readme, doctor, torch, jax):
        if part in (torch, jax) and importlib.util.find_spec(part.__name__) is None:
            print(f"{part.__name__}: not installed")
            continue
        begun = time.perf_counter()
        part()
        print(f"{part.__name__}: {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
