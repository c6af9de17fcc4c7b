"""What torch's autograd hears of tensors that Cleave writes to: `out` and its like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import torch_operators  # noqa: E402

import cleave.torch  # noqa: E402
from cleave._mistakes import parameters_of  # noqa: E402

WRITTEN = (*torch_operators.WRITTEN, "workspace")


def out_forms() -> list[Any]:
    torch.manual_seed(0)
    return [
        pytest.param(call, id=f"{name}-{i}")
        for name, listed in torch_operators.calls("cpu").items()
        if name.endswith(".out")
        for i, call in enumerate(listed)
    ]


every_out_form = pytest.mark.parametrize("call", out_forms())


def function_calls() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    """A call of every function of `cleave` that writes to what it is given."""
    a, b = torch.ones(8, 16), torch.ones(16, 4)
    q, one = a.to(torch.int8), torch.ones(1)
    offs = torch.tensor([3, 8], dtype=torch.int32)
    image = torch.ones(1, 8, 5, 5).to(memory_format=torch.channels_last)
    weight = torch.ones(4, 8, 3, 3).to(memory_format=torch.channels_last)
    grad = torch.ones(1, 4, 3, 3).to(memory_format=torch.channels_last)
    long = torch.ones(8, 64), torch.ones(64, 4)
    split = {"split_k_mode": "serial", "split_k_slices": 2}
    plan = cleave.plan_gemm(*long, **split)
    workspace = torch.zeros(plan.workspace_size, dtype=torch.uint8)
    d = torch.empty
    packed = cleave.pack_weights(torch.ones(4, 64), 64)
    return {
        "gemm": (cleave.gemm, (a, b), {"out": d(8, 4)}),
        "gemm with a workspace": (cleave.gemm, long, {"workspace": workspace, **split}),
        "a plan": (plan.run, long, {"out": d(8, 4), "workspace": workspace}),
        "scaled_gemm": (
            cleave.scaled_gemm, (q, q.t(), one, one), {"out": d(8, 8), "amax": torch.zeros(1)}
        ),
        "scaled_gemm with out_scale": (
            cleave.scaled_gemm, (q, q.t(), one, one),
            {"out": d(8, 8, dtype=torch.int8), "out_scale": "row"},
        ),
        "grouped_gemm": (cleave.grouped_gemm, (a, b.expand(2, 16, 4), offs), {"out": d(8, 4)}),
        "grouped_gemm_wgrad": (cleave.grouped_gemm_wgrad, (a, a, offs), {"out": d(2, 16, 16)}),
        "mixed_gemm": (
            cleave.mixed_gemm, (torch.ones(8, 64, dtype=torch.bfloat16), packed),
            {"out": d(8, 4, dtype=torch.bfloat16)},
        ),
        "scaled_conv2d": (
            cleave.scaled_conv2d, (image.to(torch.int8), weight.to(torch.int8), one, one),
            {"out": torch.empty_like(grad), "amax": torch.zeros(1)},
        ),
        "conv_transpose2d": (
            cleave.conv_transpose2d, (grad, weight), {"out": torch.empty_like(image)}
        ),
        "conv2d": (cleave.conv2d, (image, weight), {"out": torch.empty_like(grad)}),
        "conv2d_dgrad": (
            cleave.conv2d_dgrad, (image.shape, weight, grad), {"out": torch.empty_like(image)}
        ),
        "conv2d_wgrad": (
            cleave.conv2d_wgrad, (image, weight.shape, grad), {"out": torch.empty_like(weight)}
        ),
        "quantize": (
            cleave.quantize, (a,), {"out": torch.empty_like(q), "scale_out": d(8, 1)}
        ),
        "compat.torch._int_mm": (
            cleave.compat.torch._int_mm, (q, q.t()), {"out": d(8, 8, dtype=torch.int32)}
        ),
    }  # fmt: skip


every_function = pytest.mark.parametrize("name", function_calls())


def test_every_function_with_an_out_is_here() -> None:
    """Convolutions of two dimensions stand for all."""
    called = {function for function, _, _ in function_calls().values()}
    public = {name: getattr(cleave, name) for name in cleave.__all__}
    functions = {name: f for name, f in public.items() if callable(f) and not isinstance(f, type)}
    takes_out = {name for name, f in functions.items() if {"out", "stream"} <= {*parameters_of(f)}}
    assert len(takes_out) > 15
    assert not {name for name in takes_out if "1d" not in name and "3d" not in name and functions[name] not in called}


def versions(arguments: tuple[Any, ...], options: dict[str, Any]) -> dict[Any, int]:
    given = {**dict(enumerate(arguments)), **options}
    return {key: x._version for key, x in given.items() if isinstance(x, torch.Tensor)}


def check_versions(op: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """What was written has a new version, and nothing else."""
    before = versions(arguments, options)
    op(*arguments, **options)
    after = versions(arguments, options)
    changed = {key for key, version in after.items() if version > before[key]}
    assert changed == before.keys() & WRITTEN
    assert changed


@every_out_form
def test_operators_count_writes(call: torch_operators.Call) -> None:
    check_versions(*call)


@every_function
def test_functions_count_writes(name: str) -> None:
    check_versions(*function_calls()[name])


@every_out_form
def test_operators_count_no_write_that_was_refused(call: torch_operators.Call) -> None:
    op, arguments, options = call
    bad = options | {"out": torch.empty(2, 2, 2, 2, 2, 2)}
    before = versions(arguments, bad)
    with pytest.raises(RuntimeError, match="out"):
        op(*arguments, **bad)
    assert versions(arguments, bad) == before


@pytest.mark.parametrize("multiply", [cleave.gemm, torch.ops.cleave.gemm.out])
def test_backward_over_what_was_overwritten_raises(multiply: Callable[..., Any]) -> None:
    x, w = torch.randn(4, 4, requires_grad=True), torch.ones(4, 4)
    y = (x * w).sum()
    multiply(torch.ones(4, 8), torch.ones(8, 4), out=w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@every_out_form
def test_operators_refuse_what_requires_grad(call: torch_operators.Call) -> None:
    """As torch.mm(out=) does, each tensor by its name, outputs too; but not without gradients."""
    op, arguments, options = call
    names = [argument.name for argument in op._schema.arguments]
    given = dict(zip(names, arguments, strict=False)) | options
    tried = 0
    for name, x in given.items():
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            continue
        tracked = given | {name: x.detach().requires_grad_()}
        with pytest.raises(RuntimeError, match=f"^{name} requires grad"):
            op(**tracked)
        with torch.no_grad():
            op(**tracked)
        tried += 1
    assert tried


def test_tensors_of_inference_mode_have_no_version() -> None:
    with torch.inference_mode():
        out = torch.zeros(4, 4)
    a = torch.ones(4, 4)
    torch.ops.cleave.gemm.out(a, a, out=out)
    cleave.gemm(a, a, out=out)
    with torch.inference_mode():
        torch.ops.cleave.gemm.out(a, a, out=out)
        cleave.gemm(a, a, out=out)
    assert (out == 4).all()


@every_out_form
def test_operators_name_a_negated_view(call: torch_operators.Call) -> None:
    op, arguments, options = call
    negated = torch.ones(3, 3, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    with pytest.raises(RuntimeError, match=r"^out is a lazily negated view.*out\.resolve_neg\(\)"):
        op(*arguments, **options | {"out": negated})
    name = op._schema.arguments[0].name
    if isinstance(arguments[0], torch.Tensor):
        with pytest.raises(RuntimeError, match=f"^{name} is a lazily negated view"):
            op(negated, *arguments[1:], **options)
