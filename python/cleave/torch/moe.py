"""A mixture of experts: router, SwiGLU experts as grouped products, and back to the tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from . import _dealt, _swiglu_experts
from ._rows import as_rows, check_features
from .dispatch import Dispatcher, OneRank, check_dealt
from .grouped_linear import GroupedLinear
from .router import Router


class MoE(nn.Module):
    """Each token goes through the top_k experts that the router likes best.

        weights = softmax(the top_k largest of router(x)), or what the router's options say
        y = sum of weights[e] * down[e](silu(gate[e](x)) * up[e](x)) over those experts e

    The first of equally good experts are taken. x and y are [..., features], of the parameters' dtype; no token is
    dropped. Nothing waits for the GPU, so a step can be captured in a CUDA graph, of any routing. Repeatable bit
    by bit.

    SwiGLU is a part of the first product. Where gradients are wanted, the first product stores gates and ups as well,
    which are kept for backward: [rows, 2 * hidden_features]; their gradients are made by the product that gives
    SwiGLU's. That is for x of 16 bits, hidden_features that are a multiple of 8 (with a recipe, of 128) and groups
    without gaps; elsewhere, under torch.autocast, and where gate_up or down have hooks, torch computes SwiGLU of gates
    and ups and keeps its steps.

    router: `cleave.torch.router.Router` [features -> num_experts], whose logits are float32, of any recipe.
    gate_up: GroupedLinear [features -> 2 * hidden_features], the gates first, of this rank's experts.
    down: GroupedLinear [hidden_features -> features], of the same.
    dispatcher: what takes tokens to their experts, and back.

    With ep_group, expert parallelism: each rank has x of its own and num_experts / ranks of the experts, and y is that
    of one process with all ranks' x and experts, the same bits where products split K alike. The experts' gradients are
    those of all ranks' x. The router is the same on all ranks; its gradient is that of a rank's own x, to be summed
    over ranks as those of data parallelism are.
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int,
        features: int,
        hidden_features: int,
        *,
        scoring_func: str = "softmax",
        correction_bias: bool = False,
        n_group: int = 1,
        topk_group: int | None = None,
        group_score: str = "top2_sum",
        renormalize: bool = True,
        routed_scaling_factor: float = 1.0,
        router_dtype: torch.dtype | None = None,
        accumulate_main_grad: bool = False,
        recipe: str | None = None,
        grad_dtype: str | torch.dtype | None = None,
        ep_group: Any = None,
        dispatcher: Dispatcher | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """scoring_func, n_group, topk_group, group_score, renormalize, routed_scaling_factor: of the choice, as in
        `cleave.moe.route`; ValueError, in its words, for what it does not take. correction_bias: the choice, but no
        weight, adds `router.e_score_correction_bias`, a buffer of zeros at first, which balances experts. router_dtype:
        of the router's weight, dtype if None; torch.float32 beside 16 bits has logits of unrounded weights.
        accumulate_main_grad, recipe, grad_dtype: of the experts, as in `GroupedLinear`. ep_group: the ranks among
        which experts are dealt, a ProcessGroup, its name or a DeviceMesh of one dimension, for
        `cleave.distributed.AllToAll`. dispatcher: that with options, or another one (`cleave.torch.dispatch`)."""
        super().__init__()
        self.num_experts = num_experts
        self.dispatcher = _dispatcher(ep_group, dispatcher)
        ranks = check_dealt(num_experts, self.dispatcher)
        made = {"device": device, "dtype": dtype}
        in_8_bits = {"recipe": recipe, "grad_dtype": grad_dtype}
        experts = {"bias": False, "accumulate_main_grad": accumulate_main_grad, **in_8_bits, **made}
        self.router = Router(
            features,
            num_experts,
            top_k,
            scoring_func=scoring_func,
            correction_bias=correction_bias,
            n_group=n_group,
            topk_group=topk_group,
            group_score=group_score,
            renormalize=renormalize,
            routed_scaling_factor=routed_scaling_factor,
            device=device,
            dtype=router_dtype or dtype,
        )
        self.gate_up = GroupedLinear(num_experts // ranks, features, 2 * hidden_features, **experts)
        self.down = GroupedLinear(num_experts // ranks, hidden_features, features, **experts)

    def forward(self, x: Tensor) -> Tensor:
        check_features(x, self.gate_up.in_features, "features")
        tokens = as_rows(x.reshape(-1, x.shape[-1]))
        weights, experts = self.route(tokens)
        arrived = self.dispatcher.dispatch(tokens, experts, weights, self.num_experts)
        gaps = {"alignment": arrived.alignment, "counts": arrived.counts}
        made = self.run_experts(arrived.rows, arrived.offs, gather=arrived.gather, top_k=arrived.top_k, **gaps)
        return _dealt.shaped(self.dispatcher.combine(made, arrived), *x.shape)

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The weights, float32 [tokens, top_k], and whose they are."""
        return self.router.route(tokens)

    @property
    def top_k(self) -> int:
        return self.router.top_k

    def run_experts(
        self, rows: Tensor, offs: Tensor | None, *, gather: Tensor | None = None, top_k: int = 1, **gaps: Any
    ) -> Tensor:
        """down of silu(gate) * up, of rows that are sorted by expert; gaps: as GroupedLinear's forward takes them;
        gather, top_k: those of rows that it names, as in `cleave.grouped_gemm`, without gradients."""
        if gather is not None:
            hidden = self.gate_up.multiply(rows, offs, "swiglu", gather, top_k, **gaps)
        elif torch.is_grad_enabled() and _swiglu_experts.serves(self.gate_up, self.down, rows, gaps):
            return _swiglu_experts.run(self.gate_up, self.down, rows, offs)
        else:
            hidden = self.hidden(rows, offs, **gaps)
        return self.down(hidden, offs, **gaps)

    def hidden(self, rows: Tensor, offs: Tensor | None, **gaps: Any) -> Tensor:
        """silu(gate) * up, of such rows."""
        if torch.is_grad_enabled():
            gate, up = self.gate_up(rows, offs, **gaps).chunk(2, dim=-1)
            return nn.functional.silu(gate) * up
        return self.gate_up.multiply(rows, offs, "swiglu", **gaps)

    def extra_repr(self) -> str:
        return f"num_experts={self.num_experts}, top_k={self.top_k}"


def _dispatcher(ep_group: Any, given: Dispatcher | None) -> Dispatcher:
    if ep_group is None:
        return OneRank(gathers=True) if given is None else given
    if given is not None:
        raise ValueError("ep_group and dispatcher are given, and a dispatcher has its group; leave ep_group out")
    from ..distributed import AllToAll  # whose operators are registered where they are wanted

    return AllToAll(ep_group)
