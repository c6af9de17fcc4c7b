"""The own tests of emitted extensions where there is no GPU: what the operator computes is computed by the library's
CPU backend, and the rest is theirs: shapes, gradients, and what they expect."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from emitted_operations import Convolution, Operation
from torch.overrides import TorchFunctionMode

import cleave
from cleave._epilogue import BoundEpilogue

# What is about graphs, or about the extension's own code.
LEFT_OUT = "not graph and not compiled and not refusals and not hears"


class OnTheCpu(TorchFunctionMode):
    """New tensors that are asked for on a GPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def epilogue_of(operation: Operation | Convolution, inputs: dict[str, Any]) -> dict[str, Any]:
    bound = operation.options["epilogue"]
    values = tuple(inputs[name] for name, _ in bound.function.inputs)
    return {"epilogue": BoundEpilogue(bound.function, bound.text, values)}


def multiply(operation: Operation, call: dict[str, Any]) -> Any:
    a, b = call.pop("a"), call.pop("b")
    bounds = {name: call.pop(name) for name in ("offs", "indptr", "starts", "sizes", "counts") if name in call}
    scales = {name: call.pop(name) for name in ("scale_a", "scale_b") if name in call}
    options = {
        "alpha": call.pop("alpha", 1.0),
        "out_dtype": operation.options.get("out_dtype", operation.options["dtype"]),
    }
    options |= epilogue_of(operation, call)
    if bounds:
        return cleave.grouped_gemm(a, b, **bounds, **scales, **options)
    return cleave.scaled_gemm(a, b, **scales, **options) if scales else cleave.gemm(a, b, **options)


def convolve(operation: Convolution, call: dict[str, Any]) -> Any:
    o = operation.options
    geometry = {name: o[name] for name in ("stride", "padding", "groups") if name in o}
    geometry |= {"alpha": call.pop("alpha", 1.0), "out_dtype": o.get("out_dtype", o["dtype"])}
    operands = [call.pop(name) for name in ("input_size", "input", "weight", "grad_output") if name in call]
    geometry |= epilogue_of(operation, call)
    if o.get("kind") == "dgrad":
        return cleave.conv2d_dgrad(*operands, **geometry)
    if o.get("kind") == "wgrad":
        return cleave.conv2d_wgrad(operands[0], operation.shapes["w"], operands[1], **geometry)
    return cleave.conv2d(*operands, **geometry)


def define(operation: Operation | Convolution, folder: Path, compute: Callable[..., Any]) -> Any:
    """The operator, by the schema of the emitted project."""
    text = (folder / "src/torch_library.cpp").read_text()
    schemas = [
        "".join(re.findall(r'"(.*?)"', part)) for part in re.findall(r"Schema\[\] =\n(.*?);", text, flags=re.DOTALL)
    ]
    name, results = re.search(r'm\.def\(\("(\w+)\(".*?\) -> (.*?)"', text).groups()
    library = torch.library.Library(operation.name, "DEF")
    library.define(f"{name}({schemas[0]}) -> {results}")
    library.define(f"{name}.out({schemas[1]}) -> ()")
    arguments = [
        argument.name for argument in getattr(torch.ops, operation.name).__getattr__(name).default._schema.arguments
    ]

    def run(*given: Any, **named: Any) -> Any:
        with torch.no_grad(), torch.overrides.BaseTorchFunctionMode():
            return compute(operation, dict(zip(arguments, given, strict=False)) | named)

    def run_out(*given: Any, **named: Any) -> None:
        outs = {key: named.pop(key) for key in list(named) if key == "out" or key.startswith("out_")}
        made = run(*given, **named)
        for out, x in zip(outs.values(), made if isinstance(made, tuple) else (made,), strict=True):
            out.copy_(x)

    library.impl(name, run, "CPU")
    library.impl(f"{name}.out", run_out, "CPU")
    return library


def run_own_tests(operation: Operation | Convolution, folder: Path) -> None:
    """In a process of theirs; what they print goes into the file `said`."""
    with open(folder / "said", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    torch.set_num_threads(2)
    torch.cuda.is_available = lambda: True
    torch.cuda.synchronize = lambda: None
    torch.cuda.Stream = lambda: None
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    compute = convolve if isinstance(operation, Convolution) else multiply
    kept = define(operation, folder, compute)
    (folder / operation.name / "_library.py").write_text("def load_library() -> None:\n    pass\n")
    with OnTheCpu():
        code = pytest.main(["-q", "-p", "no:cacheprovider", "-k", LEFT_OUT, f"test_{operation.name}.py"])
    del kept
    sys.exit(code)
