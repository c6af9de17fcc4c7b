"""Cleave's products as functions of jax: under jit, grad, vmap and shard_map, on the CPU and on GPUs.

    import cleave.jax
    d = cleave.jax.gemm(a, b)
    dw = jax.grad(lambda w: cleave.jax.gemm(x, w, activation="silu").sum())(w)

Each call is a custom call of XLA's, which runs on the stream, or CPU thread, that XLA runs the rest on: nothing waits
for it, and its workspace is Cleave's own, of that stream. Kernels are compiled at the first run of a program. Results
have the bits of `cleave.gemm` and its siblings.

jax.vmap multiplies rows that share b as more rows of one matrix, makes a batch of other products, and runs what is no
batch of Cleave's (groups, scales or biases that differ) one after the other. Inside shard_map each device multiplies
its own shards. Under jit alone XLA cannot split a custom call: it gathers operands that are sharded.

Errors are ValueError and TypeError while a program is traced; what only Cleave sees, such as a type that no kernel
serves, is jax.errors.JaxRuntimeError when it runs, in the words of `cleave.gemm`.
"""

import sys

from .. import _mistakes
from . import _library

_library.load()

from .products import gemm, grouped_gemm, scaled_gemm  # noqa: E402

__all__ = ["gemm", "grouped_gemm", "scaled_gemm"]

_mistakes.explain(sys.modules[__name__])
