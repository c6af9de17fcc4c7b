"""torch.ops.cleave.*: products over the ranks of a group, their results without computing, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _core, gemm, scaled_gemm
from .._torch_precision import precision
from ..torch._operators import activations, autograd
from ..torch._operators.fake import default_dtype
from ..torch._operators.sum_to import sum_to
from . import _agreement, _moe_operators, _rules
from ._cost import is_one_shot
from ._fold import fold, is_fused, onto
from ._peer_memory import bytes_of
from ._peers import Peers, first_rows
from ._transports import Collectives, Multiply, PeerStores, fills_a_gpu, is_large, transport_for

_library = torch.library.Library("cleave", "FRAGMENT")

_SUM = 'str activation="none", ScalarType? out_dtype=None, ScalarType? partial_dtype=None, str order="rank", '
_SUM += 'str transport="auto"'
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


# What all ranks do. The plain forms have no scales, the scaled ones no gradients.


def _partials(
    peers: Peers,
    a: Tensor,
    columns: int,
    multiply: Multiply,
    *,
    fuses: bool,
    scatter: bool,
    bias: Tensor | None,
    c: Tensor | None,
    scale_d: Tensor | None,
    activation: str,
    out_dtype: torch.dtype,
    partial_dtype: torch.dtype,
    order: str,
    transport: str,
    exact: _rules.Scales | None = None,
) -> Tensor:
    """The sum over ranks of their products, which have as many rows as a, whole or this rank's. fuses: whether
    `multiply` takes epilogue functions. exact: the scales of all of K, of int32 partial results."""
    rows = a.shape[0]
    share, own = peers.share(rows), peers.own(rows)
    _rules.check_epilogue(a, columns, bias, activation)
    _rules.check_sum(
        a, order, exact is not None, partial_dtype, own if scatter else rows, columns, c=c, scale_d=scale_d
    )
    _rules.check_out(out_dtype, scale_d)
    shape = _shape(peers.operation, peers.size, rows, columns, a.dtype, partial_dtype, out_dtype, scatter)
    scales = exact or (None, None)
    call = f"{shape.call}, activation={activation}, bias={bias is not None}, c={c is not None})"
    way = _way(peers, a.device, transport, call, shape.bytes)
    product = multiply, a, rows, columns, partial_dtype
    if shape.one_shot:
        parts = way.everyones(*product)
        return fold(
            parts, out_dtype, bias, c, activation, scale_d, most_rows=rows, pushed=True, scales=scales, **way.meeting
        )
    whole = None if scatter else way.whole(a, rows, columns, out_dtype, shape.large)
    made = a.new_empty(own, columns, dtype=out_dtype) if whole is None else first_rows(whole.own, own)
    if whole is not None and c is not None:
        c = c[peers.rank * share : peers.rank * share + own]
    fused = fuses and is_fused(a, peers.size, c, bias, activation, scale_d)
    for part, parts in way.shares(*product, shape.large, fused):
        added = None if c is None else c[part]
        rows_of_a = slice(peers.rank * share + part.start, peers.rank * share + part.stop)
        if parts[peers.rank] is None:
            multiply(_part(made, part), rows_of_a, onto(parts, partial_dtype, added, bias))
        else:
            most = share if part.stop == own else part.stop - part.start
            given = {"out": _part(made, part), "most_rows": most, "scales": _rules.of_rows(scales, rows_of_a)}
            fold(parts, out_dtype, bias, added, activation, scale_d, **given, **way.meeting)
        if whole is not None:
            whole.made(part)
    return made if whole is None else whole.all()


class _Shape(NamedTuple):
    """What follows from sizes alone, for calls that repeat."""

    large: bool  # moved in parts, while others are made
    one_shot: bool  # all ranks sum all
    bytes: int  # of each rank's memory
    call: str  # how ranks name it to each other


@lru_cache(maxsize=1024)
def _shape(
    operation: str,
    size: int,
    rows: int,
    columns: int,
    a: torch.dtype,
    partial: torch.dtype,
    out: torch.dtype,
    scatter: bool,
) -> _Shape:
    share = -(-rows // size)
    large = is_large(rows, size, not scatter) and fills_a_gpu(share, columns)
    one_shot = not scatter and not large and is_one_shot(rows * columns * partial.itemsize, size)
    padded = rows if one_shot else size * share
    gathered = 0 if scatter or one_shot else share
    takes = bytes_of(((padded, columns), partial), ((gathered, columns), out))
    call = f"{operation}(rows={rows}, columns={columns}, a={a}, partial_dtype={partial}, out_dtype={out}"
    return _Shape(large, one_shot, takes, call)


def _way(peers: Peers, device: torch.device, transport: str, call: str, bytes: int) -> Collectives | PeerStores:
    if _agreement.is_checked():
        _agreement.check(call, peers, device)
    return transport_for(peers, device, transport, call, bytes)


def _sum(name: str, scatter: bool) -> Callable[..., Tensor]:
    def implementation(
        a: Tensor, b: Tensor, group_name: str, bias: Tensor | None = None, c: Tensor | None = None, **options: Any
    ) -> Tensor:
        given = _with_dtypes(options, default_dtype(a), a)

        _rules.check_operands(a, b, False, name)

        peers = Peers(group_name, name)
        how = _how(a, a.shape[0], b, peers, False)

        def multiply(out: Tensor | None, rows: slice, epilogue: Any = None) -> Tensor:
            made = _new(out, a, rows, b, given["partial_dtype"])
            return gemm(_part(a, rows), b, epilogue=epilogue, out=made, **how)

        added = {"bias": bias, "c": c, "scale_d": None}
        return _partials(peers, a, b.shape[1], multiply, fuses=True, scatter=scatter, **added, **given)

    return implementation


def _part(x: Tensor, rows: slice) -> Tensor:
    return x if rows.stop - rows.start == x.shape[0] else x[rows]


def _new(out: Tensor | None, a: Tensor, rows: slice, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Where a product of these rows goes."""
    return a.new_empty(rows.stop - rows.start, b.shape[1], dtype=dtype) if out is None else out


def _how(a: Tensor, rows: int, b: Tensor, peers: Peers, gathers: bool) -> dict[str, str]:
    """A product's options that do not follow from its operands: float32 is multiplied as torch says."""
    split = {"split_k_mode": _split_of(rows, b, peers, gathers)}
    return split | {"precision": precision()} if a.itemsize == 4 else split


def _split_of(rows: int, b: Tensor, peers: Peers, gathers: bool) -> str:
    """How K is split inside a GPU: alike in sums of all rows and of each rank's, and for all rows where that is asked
    of every product."""
    large = is_large(rows, peers.size, gathers) and fills_a_gpu(peers.share(rows), b.shape[1])
    return "none" if large and not _core.batch_invariant() else "auto"


def _scaled_sum(name: str, scatter: bool) -> Callable[..., Tensor]:
    def implementation(
        a: Tensor,
        b: Tensor,
        scale_a: Tensor | None,
        scale_b: Tensor | None,
        group_name: str,
        bias: Tensor | None = None,
        c: Tensor | None = None,
        scale_d: Tensor | None = None,
        use_fast_accum: bool = False,
        **options: Any,
    ) -> Tensor:
        given = _with_dtypes(options, torch.bfloat16, a)

        _rules.check_operands(a, b, True, name)

        peers = Peers(group_name, name)
        split = _split_of(a.shape[0], b, peers, False)
        by_row = scale_a is not None and scale_a.dim() == 2 and scale_a.shape[0] == a.shape[0]
        exact = given["order"] == "k" and _rules.is_exact(a, b, scale_a, scale_b)
        if exact:
            _rules.check_exact(options.get("partial_dtype"), peers)
            given["partial_dtype"], given["exact"] = torch.int32, (_rules.vector(scale_a), _rules.vector(scale_b))

        def multiply(out: Tensor | None, rows: slice, epilogue: Any = None) -> Tensor:
            scale = _part(scale_a, rows) if by_row else scale_a
            scales = (None, None) if exact else (scale, scale_b)
            made = _new(out, a, rows, b, given["partial_dtype"])
            options = {"use_fast_accum": use_fast_accum, "split_k_mode": split, "out": made}
            return scaled_gemm(_part(a, rows), b, *scales, epilogue=epilogue, **options)

        added = {"bias": bias, "c": c, "scale_d": scale_d}
        return _partials(peers, a, b.shape[1], multiply, fuses=not exact, scatter=scatter, **added, **given)

    return implementation


def _sum_rows(name: str, scatter: bool) -> Callable[..., Tensor]:
    """Sums what each rank has already: for products that have no operator over ranks of their own."""

    def implementation(x: Tensor, group_name: str, bias: Tensor | None = None, *, transport: str = "auto") -> Tensor:
        given = _with_dtypes({"transport": transport}, x.dtype, x)
        added = {"bias": bias, "c": None, "scale_d": None}

        x = x.contiguous()

        def rows_of(out: Tensor | None, rows: slice) -> Tensor:
            return x[rows] if out is None else out.copy_(x[rows])

        peers = Peers(group_name, name)
        return _partials(peers, x, x.shape[1], rows_of, fuses=False, scatter=scatter, **added, **given)

    return implementation


_DEFAULTS = {"activation": "none", "out_dtype": None, "partial_dtype": None, "order": "rank", "transport": "auto"}


def _with_dtypes(options: dict[str, Any], out: torch.dtype, a: Tensor) -> dict[str, Any]:
    given = _DEFAULTS | options
    given["out_dtype"] = given["out_dtype"] or out
    given["partial_dtype"] = given["partial_dtype"] or (torch.bfloat16 if a.itemsize == 1 else a.dtype)
    return given


def _all_rows(a: Tensor, rows: int | None, peers: Peers) -> int:
    rows = peers.size * a.shape[0] if rows is None else rows
    _rules.check_share(a, rows, peers)
    return rows


def _all_gather_gemm(
    a: Tensor,
    b: Tensor,
    group_name: str,
    bias: Tensor | None = None,
    *,
    rows: int | None = None,
    activation: str = "none",
    out_dtype: torch.dtype | None = None,
    save_gathered: bool = True,
    transport: str = "auto",
    kept: bool = True,
) -> tuple[Tensor, Tensor]:
    """kept: whether anybody looks at the gathered a, which is of no use without; the operator always says so."""
    peers = Peers(group_name, "all_gather_gemm")
    _rules.check_operands(a, b, False, "all_gather_gemm")
    _rules.check_epilogue(a, b.shape[1], bias, activation)
    _rules.check_out(out_dtype or a.dtype, None)
    rows = _all_rows(a, rows, peers)
    out = a.new_empty(rows, b.shape[1], dtype=out_dtype or a.dtype)
    how = _how(a, rows, b, peers, True)

    def use(gathered: list[Tensor], part: slice) -> None:
        gemm(gathered[0], b, bias=bias, activation=activation, out=_part(out, part), **how)

    (gathered,) = _gather("all_gather_gemm", rows, peers, transport, a, use=use, columns=b.shape[1], kept=kept)
    return out, gathered


def _all_gather_scaled_gemm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    group_name: str,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    rows: int | None = None,
    activation: str = "none",
    transport: str = "auto",
) -> Tensor:
    peers = Peers(group_name, name := "all_gather_scaled_gemm")
    _rules.check_operands(a, b, True, name)
    _rules.check_scale(a, scale_a)
    _rules.check_epilogue(a, b.shape[1], bias, activation)
    out_dtype = out_dtype or default_dtype(a, scale_a)
    if out_dtype != torch.int32:  # which exact sums of int8 are
        _rules.check_out(out_dtype, None)
    rows = _all_rows(a, rows, peers)
    by_row = []
    if scale_a is not None:
        scale_a = scale_a.reshape(1, 1).expand(a.shape[0], 1) if scale_a.numel() == 1 else scale_a
        by_row = [scale_a.view(a.shape[0], -1)]
    out = a.new_empty(rows, b.shape[1], dtype=out_dtype)
    split = _split_of(rows, b, peers, True)

    def use(gathered: list[Tensor], part: slice) -> None:
        x, scale = gathered if by_row else (*gathered, None)
        options = {"use_fast_accum": use_fast_accum, "activation": activation, "split_k_mode": split}
        scaled_gemm(x, b, scale, scale_b, bias=bias, out=_part(out, part), **options)

    _gather(name, rows, peers, transport, a, *by_row, use=use, columns=b.shape[1], kept=False)
    return out


def _all_gather_rows(x: Tensor, group_name: str, *, rows: int | None = None, transport: str = "auto") -> Tensor:
    peers = Peers(group_name, "all_gather_rows")
    return _gather("all_gather_rows", _all_rows(x, rows, peers), peers, transport, x)[0]


def _gather(name: str, rows: int, peers: Peers, transport: str, *parts: Tensor, **use: Any) -> list[Tensor]:
    said = ", ".join(f"{list(x.shape[1:])} of {x.dtype}" for x in parts)
    large = bool(use) and is_large(rows, peers.size, True)  # all rows are written by those who have them
    takes = bytes_of(*(((rows if large else peers.share(rows), *x.shape[1:]), x.dtype) for x in parts))
    way = _way(peers, parts[0].device, transport, f"{name}(rows={rows}, {said})", takes)
    return way.gather_rows(*parts, rows=rows, large=large, **use)


IMPLEMENTATIONS = {
    "gemm_all_reduce": _sum("gemm_all_reduce", scatter=False),
    "gemm_reduce_scatter": _sum("gemm_reduce_scatter", scatter=True),
    "all_gather_gemm": _all_gather_gemm,
    "scaled_gemm_all_reduce": _scaled_sum("scaled_gemm_all_reduce", scatter=False),
    "scaled_gemm_reduce_scatter": _scaled_sum("scaled_gemm_reduce_scatter", scatter=True),
    "all_gather_scaled_gemm": _all_gather_scaled_gemm,
    "all_reduce_rows": _sum_rows("all_reduce_rows", scatter=False),
    "reduce_scatter_rows": _sum_rows("reduce_scatter_rows", scatter=True),
    "all_gather_rows": _all_gather_rows,
}


# Shapes, for torch.compile, meta tensors and export.


def _fake_sum(scatter: bool, scaled: bool) -> Callable[..., Tensor]:
    def fake(a: Tensor, b: Tensor, *arguments: Any, **options: Any) -> Tensor:
        peers = Peers(arguments[2 if scaled else 0])
        rows = peers.own(a.shape[0]) if scatter else a.shape[0]
        out = options.get("out_dtype") or (torch.bfloat16 if scaled else a.dtype)
        return a.new_empty(rows, b.shape[1], dtype=out)

    return fake


def _rows_of(x: Tensor, rows: Any, group_name: str) -> Any:
    return Peers(group_name).size * x.shape[0] if rows is None else rows


def _fake_gather(a: Tensor, b: Tensor, group_name: str, *_: Any, **options: Any) -> tuple[Tensor, Tensor]:
    rows = _rows_of(a, options.get("rows"), group_name)
    made = a.new_empty(rows, b.shape[1], dtype=options.get("out_dtype") or a.dtype)
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
    return a.new_empty(rows, b.shape[1], dtype=out_dtype or default_dtype(a, scale_a))


def _fake_scattered_rows(x: Tensor, group_name: str, *_: Any, **__: Any) -> Tensor:
    return x.new_empty(Peers(group_name).own(x.shape[0]), x.shape[1])


def _fake_rows(x: Tensor, group_name: str, **options: Any) -> Tensor:
    return x.new_empty(_rows_of(x, options.get("rows"), group_name), *x.shape[1:])


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


# Gradients: the sum's are local, a scatter's backward gathers, a gather's scatters.


def _save_sum(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    a, b, ctx.group_name, bias, c = inputs
    ctx.options = keyword_only_inputs
    ctx.save_for_backward(a, b, bias, c, output if ctx.options["activation"] == "relu" else None)


def _before_activation(ctx: Any, op: Any, grad: Tensor) -> Tensor:
    """The gradient of the sum itself, from that of the result."""
    a, b, bias, c, output = ctx.saved_tensors
    activation = ctx.options["activation"]
    if activation == "none":
        return grad
    if activation != "relu":  # whose output says enough; of others the input is made again, by all ranks
        linear = ctx.options | {"activation": "none", "out_dtype": grad.dtype}
        output = op(a, b, ctx.group_name, bias, c, **linear)
    return activations.backward(activation, grad, output)


def _backward_all_reduce(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad = _before_activation(ctx, torch.ops.cleave.gemm_all_reduce, grad)
    needed = _needed(ctx)
    made = autograd.of_operands(grad, ctx.saved_tensors[:4], needed, 1.0, None)
    return made[0], made[1], None, made[2], made[3]


def _backward_reduce_scatter(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad = _before_activation(ctx, torch.ops.cleave.gemm_reduce_scatter, grad)
    a, b, bias, c = ctx.saved_tensors[:4]
    needs_a, needs_b, needs_bias, needs_c = _needed(ctx)
    of_a = of_b = of_bias = None
    transport = {"rows": a.shape[0], "transport": ctx.options["transport"]}
    operand = grad.to(a.dtype).contiguous()
    if needs_a:
        of_a, gathered = torch.ops.cleave.all_gather_gemm(operand, b.mT, ctx.group_name, **transport)
    elif needs_b or needs_bias:
        gathered = torch.ops.cleave.all_gather_rows(operand, ctx.group_name, **transport)
    if needs_b:
        of_b = autograd.product(a.mT, gathered, b, 1.0)
    if needs_bias:
        of_bias = gathered.sum(0, dtype=torch.float32).to(bias.dtype)
    return of_a, of_b, None, of_bias, grad.to(c.dtype) if needs_c else None


def _needed(ctx: Any) -> tuple[bool, ...]:
    """Whether a, b, bias and c need gradients. torch says nothing of trailing arguments that the caller left out."""
    needs_a, needs_b, _, *rest = ctx.needs_input_grad
    return needs_a, needs_b, *(*rest, False, False)[:2]


def _save_gather(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: tuple[Tensor, Tensor]
) -> None:
    a, b, ctx.group_name, bias = inputs
    d, gathered = output
    ctx.options, ctx.rows = keyword_only_inputs, d.shape[0]
    ctx.mark_non_differentiable(gathered)
    ctx.set_materialize_grads(False)
    kept = gathered if ctx.options["save_gathered"] else None
    ctx.save_for_backward(a, b, bias, kept, d if ctx.options["activation"] == "relu" else None)


def _backward_gather(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return None, None, None, None
    a, b, bias, gathered, output = ctx.saved_tensors
    needs_a, needs_b, _, needs_bias = (*ctx.needs_input_grad, False)[:4]
    transport = ctx.options["transport"]
    activation = ctx.options["activation"]
    again = activation not in ("none", "relu")
    if gathered is None and (needs_b or again):
        gathered = torch.ops.cleave.all_gather_rows(a, ctx.group_name, rows=ctx.rows, transport=transport)
    if again:
        output = torch.ops.cleave.gemm(gathered, b, bias, out_dtype=grad.dtype)
    if activation != "none":
        grad = activations.backward(activation, grad, output)
    operand = grad.to(a.dtype).contiguous()
    return (
        torch.ops.cleave.gemm_reduce_scatter(operand, b.mT, ctx.group_name, transport=transport) if needs_a else None,
        autograd.product(gathered.mT, operand, b, 1.0) if needs_b else None,
        None,
        sum_to(grad, bias.shape, bias.dtype) if needs_bias else None,
    )


def _save_rows(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    x, ctx.group_name, bias = inputs
    ctx.rows, ctx.transport = x.shape[0], keyword_only_inputs["transport"]
    ctx.save_for_backward(bias)


def _backward_all_reduce_rows(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (bias,) = ctx.saved_tensors
    needs_bias = (*ctx.needs_input_grad, False)[2]
    return grad, None, sum_to(grad, bias.shape, bias.dtype) if needs_bias else None


def _backward_reduce_scatter_rows(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    given = {"rows": ctx.rows, "transport": ctx.transport}
    gathered = torch.ops.cleave.all_gather_rows(grad.contiguous(), ctx.group_name, **given)
    return _backward_all_reduce_rows(ctx, gathered)


def _save_gathered_rows(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Tensor) -> None:
    _, ctx.group_name = inputs
    ctx.transport = keyword_only_inputs["transport"]


def _backward_gathered_rows(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return torch.ops.cleave.reduce_scatter_rows(grad.contiguous(), ctx.group_name, transport=ctx.transport), None


_GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gemm_all_reduce": (_save_sum, _backward_all_reduce),
    "gemm_reduce_scatter": (_save_sum, _backward_reduce_scatter),
    "all_gather_gemm": (_save_gather, _backward_gather),
    "all_reduce_rows": (_save_rows, _backward_all_reduce_rows),
    "reduce_scatter_rows": (_save_rows, _backward_reduce_scatter_rows),
    "all_gather_rows": (_save_gathered_rows, _backward_gathered_rows),
}


def register() -> None:
    if not dist.is_available():
        raise ImportError("this torch is built without torch.distributed; products over ranks need it")
    _register(SCHEMAS, IMPLEMENTATIONS, _FAKES, _GRADIENTS)
    moe = _moe_operators
    _register(moe.SCHEMAS, moe.IMPLEMENTATIONS, moe.FAKES, moe.GRADIENTS)


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
