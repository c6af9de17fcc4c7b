"""`fuse`: moves norms, gates and residuals of a model into the kernels of its layers in 8 and 4 bits."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from .._hooks import has_hooks
from .._packed_experts import PackedExperts
from .._packed_linear import PackedLinear
from .._replace import Skip, check_model, matcher
from .._rms_norm import centrings, has_weight_of_rows
from ..fused import FusedDecoderLayer, GatedMLP, NormProjections, Projection, W8A8SwiGLU, adds
from ..linear import W8A8Linear
from ..mixed_bytes_linear import W4A8Linear
from ..mixed_linear import W4A16Linear
from ..norm import RMSNormQuantize
from . import chains, packed_gates
from .stack import same, stack, unstack, why_apart


@dataclass
class Fused:
    """What `fuse` did to a model; `print` shows it, with one line per kind of layer.

    done, left: pairs of a module's name, and what became of it or why it was left alone.
    """

    done: list[tuple[str, str]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    _undo: list[Callable[[], None]] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Restores the original layers, with the current weights."""
        while self._undo:
            self._undo.pop()()
        self.done, self.left = [], []

    def __str__(self) -> str:
        lines = [*_by_kind(self.done), *(f"{line} (left alone)" for line in _by_kind(self.left))]
        return "\n".join(lines or ["nothing fused"])


def fuse(model: nn.Module, *, skip: Skip = (), across_layers: bool = True) -> Fused:
    """Moves norms, residual sums and gates into the kernels of a model's layers in 8 bits, and gates into those of
    packed weights, in place; for inference.

        cleave.torch.replace_linears(model, "float8_e4m3fn", skip="lm_head")
        print(fused := cleave.torch.fuse(model))
        ...
        fused.undo()

    Modules are recognised by what their forward functions do, whatever their classes and names: the functions are
    traced, one module at a time, and norms are compared with the formula.

    - down(silu(gate(x)) * up(x)), of W8A8Linear layers with equal settings, becomes `GatedMLP`: gate and up are one
      product, whose kernel applies the gate. y is no longer affected by a rounding of gates and ups to 16 bits.
      W4A16Linear layers (W4A8Linear) with equal settings do, too: their codes are packed anew, gates and ups in turns.
      So does one layer in the place of both, whose result's halves (`chunk(2, -1)`) are gates and ups.
    - `W4A16Experts` and `W4A8Experts` have their gate applied in the first product, in the same way.
    - In layers that compute h = x + attention(norm(x)) and h + mlp(norm(h)), as Llama's do, an RMS norm that only
      W8A8Linear layers of one dtype read becomes `RMSNormQuantize`, which adds the residual first, and quantises once
      for all of them; these layers (q, k and v, say) become one product (`NormProjections`). Sums have the same bits;
      the norm is no longer rounded to 16 bits. A norm that something else reads (a router, say) stays. The layer's
      class becomes a subclass of its own.

    Modules with hooks are left alone, and nothing else changes, except the last bits of float8 sums where the wider
    product adds in another order. The state_dict is that of the fused model: undo before saving one to load elsewhere.
    The weights of gates and ups move in memory, so CUDA graphs must be captured afterwards, and again after `undo`.

    Args:
        skip: names of MLPs, experts and decoder layers to leave alone, as in `replace_linears`.
        across_layers: leave a layer's last sum to the norm of the next layer in the same list, so that what passes
            between them is not a tensor. Pass False for models or callers (transformers' output_hidden_states) that
            look at it.

    Raises:
        ValueError: the model has no layers in 8 or 4 bits.
    """
    check_model(model)
    if not any(isinstance(module, (W8A8Linear, PackedLinear, PackedExperts)) for module in model.modules()):
        raise ValueError(
            "model has no layers in 8 or 4 bits (W8A8Linear, W4A16Linear); call "
            'cleave.torch.replace_linears(model, "int8") before'
        )
    report = Fused()
    gated = {name: found for name, module in _modules(model) if (found := chains.find_gated_mlp(module))}
    layers = {name: found for name, module in _modules(model) if (found := chains.find_decoder_layer(module))}
    packed = {name: module for name, module in model.named_modules() if isinstance(module, PackedExperts)}
    skipped = matcher(skip, [*gated, *packed, *layers])
    for name, chain in gated.items():
        if not skipped(name, model.get_submodule(name)):
            _fuse_gates(model, name, chain, report)
    for name, experts in packed.items():
        if not skipped(name, experts):
            _fuse_gate_of_experts(experts, name, report)
    fused = []
    for name, chain in layers.items():
        layer = model.get_submodule(name)
        if not skipped(name, layer) and _fuse_norms(layer, name, chain, report):
            fused.append(layer)
    if across_layers:
        for layer, following in _neighbours(model):
            if layer in fused and following in fused:
                layer.hands_on = adds(getattr(following, following.chain.attention_norm))
    return report


class _Joining(NamedTuple):
    """How a gate and an up of one class become one layer."""

    why_apart: Callable[[Sequence[Any]], str]
    stack: Callable[[Sequence[Any]], nn.Module]
    unstack: Callable[[Any, Sequence[Any]], None]


_PACKED = _Joining(packed_gates.why_apart, packed_gates.stack, packed_gates.unstack)
_JOINING = {
    W8A8Linear: _Joining(why_apart, partial(stack, kind=W8A8SwiGLU), unstack),
    W4A16Linear: _PACKED,
    W4A8Linear: _PACKED,
}


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """What has children but no kernels of ours."""
    for name, module in model.named_modules():
        if name and next(module.children(), None) and not isinstance(module, (FusedDecoderLayer, GatedMLP)):
            yield name, module


def _neighbours(model: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    for module in model.modules():
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            yield from itertools.pairwise(module)


def _fuse_gates(model: nn.Module, name: str, chain: chains.GatedMLP, report: Fused) -> None:
    mlp = model.get_submodule(name)
    linears = [mlp.get_submodule(each) for each in chain.gates]
    joining = _JOINING.get(type(linears[0]))
    wide = [each for each, linear in zip(chain.gates, linears, strict=True) if type(linear) not in _JOINING]
    joined = (each for each in mlp.modules() if each is not mlp.get_submodule(chain.down))
    if any(map(has_hooks, joined)):
        why = "it has hooks, or what would be joined has"
    elif wide or joining is None:
        why = f"{', '.join(wide)}: no layer in 8 or 4 bits"
    elif len({type(each) for each in linears}) > 1:
        why = "they are of different classes"
    else:
        why = joining.why_apart(linears)
    if why or joining is None:
        report.left.append((name, why))
        return
    made = GatedMLP(joining.stack(linears), mlp.get_submodule(chain.down)).train(mlp.training)
    model.set_submodule(name, made)

    def undo() -> None:
        joining.unstack(made.gate_up, linears)
        model.set_submodule(name, mlp)

    report._undo.append(undo)
    report.done.append((name, f"{' and '.join(chain.gates)}: one product, with SwiGLU in it"))


def _fuse_gate_of_experts(experts: PackedExperts, name: str, report: Fused) -> None:
    if experts.gate_up.gated:
        return
    why = packed_gates.why_not_gated(experts.gate_up.out_features // 2)
    if why:
        report.left.append((name, why))
        return
    packed_gates.join_experts(experts, gated=True)
    report._undo.append(lambda: packed_gates.join_experts(experts, gated=False))
    report.done.append((name, "the gate in the first product"))


def _fuse_norms(layer: nn.Module, name: str, chain: chains.DecoderLayer, report: Fused) -> bool:
    """Whether one of both is fused."""
    by_name = [name for name, given in chain.kwargs.items() if given == ""]
    argument = by_name[0] if by_name else chain.args.index("")
    undone = [
        _fuse_norm(layer, name, chain.attention_norm, chain.attention, argument, report),
        _fuse_norm(layer, name, chain.mlp_norm, chain.mlp, 0, report),
    ]
    if not any(undone):
        return False
    own = type(layer)
    layer.__class__ = type(f"Fused{own.__name__}", (FusedDecoderLayer, own), {})
    layer.chain, layer.hands_on = chain, False

    def undo() -> None:
        layer.__class__ = own
        del layer.chain, layer.hands_on
        for each in filter(None, undone):
            each()

    report._undo.append(undo)
    return True


def _fuse_norm(
    layer: nn.Module, name: str, norm_name: str, reader_name: str, argument: int | str, report: Fused
) -> Callable[[], None] | None:
    """What undoes it; None where the norm is left alone."""
    norm, reader = layer.get_submodule(norm_name), layer.get_submodule(reader_name)
    places = chains.find_readers(reader, argument) or []
    linears = [reader.get_submodule(place) for place in places]
    quantising, why = _quantising(norm, dict(zip(places, linears, strict=True)))
    if quantising is None:
        report.left.append((f"{name}.{norm_name}", why))
        return None
    parts = [f"{reader_name}.{place}" for place in places]
    text = f"adds the residual and quantises, once for {', '.join(parts)}"
    fused: nn.Module = quantising
    joined = len(linears) > 1 and {type(each) for each in linears} == {W8A8Linear} and not why_apart(linears)
    if joined:
        text += ", which are one product"
        sizes = [each.out_features for each in linears]
        fused = NormProjections(quantising, stack(linears, W8A8Linear), sizes).train(norm.training)
        for part, place in enumerate(places):
            reader.set_submodule(place, Projection(part))
    layer.set_submodule(norm_name, fused)
    report.done.append((f"{name}.{norm_name}", text))

    def undo() -> None:
        layer.set_submodule(norm_name, norm.to(quantising.weight.device))
        if joined:
            unstack(fused.linear, linears)
            for place, linear in zip(places, linears, strict=True):
                reader.set_submodule(place, linear)

    return undo


def _quantising(norm: nn.Module, readers: dict[str, nn.Module]) -> tuple[RMSNormQuantize | None, str]:
    """What takes a norm's place, or why nothing does."""
    if not readers:
        return None, "what reads it is not linear layers alone"
    wide = [name for name, linear in readers.items() if not isinstance(linear, W8A8Linear)]
    if wide:
        return None, f"{', '.join(wide)}: no W8A8Linear"
    if any(map(has_hooks, (norm, *readers.values()))):
        return None, "it has hooks, or what reads it"
    first, *others = readers.values()
    for each in others:
        kinds = (each.weight.dtype, each.activation_granularity), (first.weight.dtype, first.activation_granularity)
        if kinds[0] != kinds[1] or not same(each.smooth, first.smooth):
            return None, "what reads it differs in dtype, granularity or smooth"
        if not same(each.activation_scale, first.activation_scale):
            return None, "what reads it has static scales that differ"
    found = centrings(norm) if has_weight_of_rows(norm) else ()
    if not found:
        return None, f"{type(norm).__name__} is no RMS norm with a weight"
    made = RMSNormQuantize.from_norm(
        norm,
        first.weight.dtype,
        granularity=first.activation_granularity,
        activation="dynamic" if first.activation_scale is None else first.activation_scale,
        zero_centered=found[0],
        smooth=first.smooth,
    )
    return made.train(norm.training), ""


def _by_kind(lines: list[tuple[str, str]]) -> Iterator[str]:
    """Layers of one list on one line, as model.layers.*.mlp (32)."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, text in lines:
        kinds.setdefault((re.sub(r"(?<![^.])\d+(?![^.])", "*", name), text), []).append(name)
    for (kind, text), names in kinds.items():
        shown = names[0] if len(names) == 1 else f"{kind} ({len(names)})"
        yield f"{shown}: {text}"
