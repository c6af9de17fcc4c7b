"""Writes tests/peer_signatures.json: the parameters of other libraries' functions that cleave.compat has by name.

    python tools/peer_signatures.py --vllm DIR --sgl-kernel DIR --deep-gemm DIR

Each DIR is an unpacked wheel or source tree (`pip download --no-deps`, then unzip), which is parsed, never imported:
Python by ast, DeepGEMM's bindings by their `m.def`. What is kept are the functions of vLLM and sgl_kernel that
cleave.compat serves or refuses, and all that DeepGEMM exports.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import cleave.compat as compat

OUT = Path(__file__).parent.parent / "tests" / "support" / "peer_signatures.json"

# Each "name" or "name=default", as Python spells it. None: the function's parameters have no names.
Parameters = list[str] | None

VLLM = (
    "vllm/_custom_ops.py",
    "vllm/model_executor/layers/quantization/utils/fp8_utils.py",
    "vllm/model_executor/layers/quantization/utils/int8_utils.py",
)
# Where the classes are that integrations/vllm derives from.
LINEAR = "vllm/model_executor/kernels/linear/scaled_mm"
VLLM_CLASSES = {
    "FP8ScaledMMLinearKernel": f"{LINEAR}/ScaledMMLinearKernel.py",
    "Fp8BlockScaledMMLinearKernel": f"{LINEAR}/BlockScaledMMLinearKernel.py",
    "CutlassInt8ScaledMMLinearKernel": f"{LINEAR}/cutlass.py",
    "MPLinearKernel": "vllm/model_executor/kernels/linear/mixed_precision/MPLinearKernel.py",
    "FusedMoEExpertsModular": "vllm/model_executor/layers/fused_moe/modular_kernel.py",
}
# What it wraps, of each module.
VLLM_ORACLES = {name: f"vllm/model_executor/layers/fused_moe/oracle/{name}.py" for name in ("fp8", "int8")}
VLLM_ORACLE_FUNCTIONS = ("backend_to_kernel_cls", "_get_priority_backends")
SGL_KERNEL = ("sgl_kernel/gemm.py", "sgl_kernel/moe.py")
# What pybind11 spells otherwise.
CPP_DEFAULTS = {"std::nullopt": "None", "false": "False", "true": "True"}


def functions(folder: Path, files: tuple[str, ...]) -> dict[str, Parameters]:
    return {
        node.name: list(parameters(node.args))
        for file in files
        for node in ast.parse((folder / file).read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }


def methods(folder: Path, classes: dict[str, str]) -> dict[str, Parameters]:
    """Those of these classes, and of those in the same files that they derive from."""
    found: dict[str, Parameters] = {}
    for name, file in classes.items():
        in_file = {node.name: node for node in ast.parse((folder / file).read_text("utf-8")).body if is_class(node)}
        bases = [name, *(base.id if isinstance(base, ast.Name) else base.value.id for base in in_file[name].bases)]
        for base in reversed([in_file[base] for base in bases if base in in_file]):
            made = {f"{name}.{node.name}": list(parameters(node.args)) for node in base.body if is_function(node)}
            found |= made
    return found


def oracles(folder: Path) -> dict[str, Parameters]:
    found = {module: functions(folder, (file,)) for module, file in VLLM_ORACLES.items()}
    return {f"{module}.{name}": named[name] for module, named in found.items() for name in VLLM_ORACLE_FUNCTIONS}


def is_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef)


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef)


def parameters(args: ast.arguments) -> Iterator[str]:
    named = args.posonlyargs + args.args
    defaults = [None] * (len(named) - len(args.defaults)) + args.defaults
    for arg, default in (*zip(named, defaults, strict=True), *zip(args.kwonlyargs, args.kw_defaults, strict=True)):
        yield arg.arg if default is None else f"{arg.arg}={ast.unparse(default)}"


def version(folder: Path) -> str:
    (metadata,) = folder.glob("*.dist-info/METADATA")
    return re.search(r"^Version: (.+)$", metadata.read_text("utf-8"), re.MULTILINE)[1]


def deep_gemm(folder: Path) -> dict[str, object]:
    package = folder / "deep_gemm"
    found = functions(package, ("utils/math.py",))
    for file in sorted((folder / "csrc" / "apis").glob("*.hpp")):
        found |= bindings(file.read_text("utf-8"))
    exported: dict[str, Parameters] = {}
    for file in ("__init__.py", "utils/__init__.py", "utils/layout.py", "utils/math.py"):
        here = (package / file).parent
        for name, original in names(ast.parse((package / file).read_text("utf-8"))):
            if not name.startswith("_") and not (here / name).exists() and not (here / f"{name}.py").exists():
                exported[name] = found.get(original) or exported.get(original)
    text = (package / "__init__.py").read_text("utf-8")
    exported.pop("persistent_envs")  # of the build
    return {"version": re.search(r"__version__ = '(.+)'", text)[1], "functions": exported}


def names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What a module has, and the names that it is of: from imports of its own package, functions and aliases."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names if alias.name != "*")
    for node in [*tree.body, *(part for block in tree.body if isinstance(block, ast.Try) for part in block.body)]:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node.name
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            yield node.targets[0].id, node.value.id


def bindings(text: str) -> dict[str, Parameters]:
    found: dict[str, Parameters] = {}
    for name, arguments in re.findall(r'm\.def\("(\w+)",(.*?)\);\n', text, re.DOTALL):
        made = re.findall(r'py::arg\("(\w+)"\)(?:\s*=\s*(std::make_tuple\([^)]*\)|[^,)\s]+))?', arguments)
        found[name] = [f"{parameter}{default_of(default)}" for parameter, default in made]
    for name, other in re.findall(r'm\.attr\("(\w+)"\) = m\.attr\("(\w+)"\)', text):
        found[name] = found[other]
    return found


def default_of(text: str) -> str:
    spelled = CPP_DEFAULTS.get(text, text.removeprefix("std::make_tuple").replace('"', "'"))
    return f"={spelled}" if text else ""


def kept(found: dict[str, Parameters], module: object) -> dict[str, Parameters]:
    return {name: made for name, made in sorted(found.items()) if name in {*module.__all__, *module.REFUSED}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("vllm", "sgl-kernel", "deep-gemm"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    result = {
        "vllm": {
            "version": version(given.vllm),
            "functions": kept(functions(given.vllm, VLLM), compat.vllm),
            "methods": methods(given.vllm, VLLM_CLASSES),
            "oracles": oracles(given.vllm),
        },
        "sgl_kernel": {
            "version": version(given.sgl_kernel),
            "functions": kept(functions(given.sgl_kernel, SGL_KERNEL), compat.sgl_kernel),
        },
        "deep_gemm": deep_gemm(given.deep_gemm),
    }
    OUT.write_text(spell(result), "utf-8")


def spell(libraries: dict[str, dict[str, object]]) -> str:
    """As JSON, a function a line."""
    parts = []
    for library, found in libraries.items():
        body = [f'  "version": "{found.pop("version")}"']
        for kind, named in found.items():
            lines = (f"   {json.dumps(name)}: {json.dumps(made)}" for name, made in sorted(named.items()))
            body.append(f'  "{kind}": {{\n' + ",\n".join(lines) + "\n  }")
        parts.append(f' "{library}": {{\n' + ",\n".join(body) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
