"""torch.ops.cleave.*: products over the ranks of a group, and their results without computing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..torch._operators import autocast
from ..torch._operators.fake import check_devices, default_dtype
from . import _gathers, _gradients, _moe_operators, _sums
from ._peers import peers_of
from ._rules import columns_of

_library = torch.library.Library("cleave", "FRAGMENT")

_SUM = 'str activation="none", ScalarType? out_dtype=None, ScalarType? partial_dtype=None, str order="rank", '
_SUM += 'str transport="auto", str split_k_mode="auto", int? split_k_slices=None'
_SCALED = "Tensor a, Tensor b, Tensor? scale_a, Tensor? scale_b, str group_name, Tensor? bias=None, "
_REST = "ScalarType? out_dtype=None, bool use_fast_accum=False"
_SCALED_SUM = f"({_SCALED}Tensor? c=None, Tensor? scale_d=None, *, bool use_fast_accum=False, {_SUM}) -> Tensor"
SCHEMAS = {
    "gemm_all_reduce": f"(Tensor a, Tensor b, str group_name, Tensor? bias=None, Tensor? c=None, *, {_SUM}) -> Tensor",
    "gemm_reduce_scatter": (
        f"(Tensor a, Tensor b, str group_name, Tensor? bias=None, Tensor? c=None, *, {_SUM}) -> Tensor"
    ),
    "all_gather_gemm": (
        "(Tensor a, Tensor b, str group_name, Tensor? bias=None, *, SymInt? rows=None, "
        'str activation="none", ScalarType? out_dtype=None, bool save_gathered=True, str transport="auto") '
        "-> (Tensor, Tensor)"
    ),
    "scaled_gemm_all_reduce": _SCALED_SUM,
    "scaled_gemm_reduce_scatter": _SCALED_SUM,
    "all_gather_scaled_gemm": (
        f'({_SCALED}{_REST}, *, SymInt? rows=None, str activation="none", str transport="auto") -> Tensor'
    ),
    "all_reduce_rows": '(Tensor x, str group_name, Tensor? bias=None, *, str transport="auto") -> Tensor',
    "reduce_scatter_rows": '(Tensor x, str group_name, Tensor? bias=None, *, str transport="auto") -> Tensor',
    "all_gather_rows": '(Tensor x, str group_name, *, SymInt? rows=None, str transport="auto") -> Tensor',
}

IMPLEMENTATIONS = {
    "gemm_all_reduce": _sums.of_products("gemm_all_reduce", scatter=False),
    "gemm_reduce_scatter": _sums.of_products("gemm_reduce_scatter", scatter=True),
    "all_gather_gemm": _gathers.all_gather_gemm,
    "scaled_gemm_all_reduce": _sums.of_scaled_products("scaled_gemm_all_reduce", scatter=False),
    "scaled_gemm_reduce_scatter": _sums.of_scaled_products("scaled_gemm_reduce_scatter", scatter=True),
    "all_gather_scaled_gemm": _gathers.all_gather_scaled_gemm,
    "all_reduce_rows": _sums.of_rows("all_reduce_rows", scatter=False),
    "reduce_scatter_rows": _sums.of_rows("reduce_scatter_rows", scatter=True),
    "all_gather_rows": _gathers.all_gather_rows,
}


# Shapes, for torch.compile, meta tensors and export.


def _fake_sum(scatter: bool, scaled: bool) -> Callable[..., Tensor]:
    def fake(a: Tensor, b: Tensor, *arguments: Any, **options: Any) -> Tensor:
        peers = peers_of(arguments[2 if scaled else 0])
        rows = peers.own(a.shape[0]) if scatter else a.shape[0]
        out = options.get("out_dtype") or (torch.bfloat16 if scaled else a.dtype)
        return a.new_empty(rows, columns_of(b, options.get("activation", "none")), dtype=out)

    return fake


def _rows_of(x: Tensor, rows: Any, group_name: str) -> Any:
    return peers_of(group_name).size * x.shape[0] if rows is None else rows


def _fake_gather(a: Tensor, b: Tensor, group_name: str, *_: Any, **options: Any) -> tuple[Tensor, Tensor]:
    rows = _rows_of(a, options.get("rows"), group_name)
    columns = columns_of(b, options.get("activation", "none"))
    made = a.new_empty(rows, columns, dtype=options.get("out_dtype") or a.dtype)
    return made, a.new_empty(rows, a.shape[1])


def _fake_scaled_gather(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    group_name: str,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    **options: Any,
) -> Tensor:
    rows = _rows_of(a, options.get("rows"), group_name)
    columns = columns_of(b, options.get("activation", "none"))
    return a.new_empty(rows, columns, dtype=out_dtype or default_dtype(a, scale_a))


def _fake_scattered_rows(x: Tensor, group_name: str, *_: Any, **__: Any) -> Tensor:
    return x.new_empty(peers_of(group_name).own(x.shape[0]), x.shape[1])


def _fake_rows(x: Tensor, group_name: str, **options: Any) -> Tensor:
    return x.new_empty(_rows_of(x, options.get("rows"), group_name), *x.shape[1:])


def _of_one_device(name: str, fake: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*arguments: Any, **options: Any) -> Any:
        schema = getattr(torch.ops.cleave, name).default._schema
        check_devices({given.name: x for given, x in zip(schema.arguments, arguments, strict=False)})
        return fake(*arguments, **options)

    return checked


_FAKES = {
    "gemm_all_reduce": _fake_sum(scatter=False, scaled=False),
    "gemm_reduce_scatter": _fake_sum(scatter=True, scaled=False),
    "all_gather_gemm": _fake_gather,
    "scaled_gemm_all_reduce": _fake_sum(scatter=False, scaled=True),
    "scaled_gemm_reduce_scatter": _fake_sum(scatter=True, scaled=True),
    "all_gather_scaled_gemm": _fake_scaled_gather,
    "all_reduce_rows": lambda x, *_, **__: x.new_empty(x.shape),
    "reduce_scatter_rows": _fake_scattered_rows,
    "all_gather_rows": _fake_rows,
}


_AUTOCAST = ("gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm")


def register() -> None:
    if not dist.is_available():
        raise ImportError("this torch is built without torch.distributed; products over ranks need it")
    fakes = {name: _of_one_device(name, fake) for name, fake in _FAKES.items()}
    _register(SCHEMAS, IMPLEMENTATIONS, fakes, _gradients.GRADIENTS)
    moe = _moe_operators
    _register(moe.SCHEMAS, moe.IMPLEMENTATIONS, moe.FAKES, moe.GRADIENTS)
    autocast.register(_AUTOCAST)


def _register(
    schemas: dict[str, str],
    implementations: dict[str, Callable[..., Any]],
    fakes: dict[str, Callable[..., Any]],
    gradients: dict[str, tuple[Callable[..., Any], Callable[..., Any]]],
) -> None:
    """Each by an operator's name; what its backward is given, and the backward."""
    for name, schema in schemas.items():
        _library.define(name + schema)
        for device in ("CPU", "CUDA"):
            _library.impl(name, implementations[name], device)
        torch.library.register_fake(f"cleave::{name}", fakes[name], lib=_library)
    for name, (save, backward) in gradients.items():
        torch.library.register_autograd(f"cleave::{name}", backward, setup_context=save, lib=_library)
