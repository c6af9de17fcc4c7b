"""The experts of a cleave.torch.MoE in training beside float64, with bounds that follow from their roundings."""

from __future__ import annotations

from typing import Any

import torch

from cleave.torch import MoE

FEATURES, HIDDEN = 64, 24
RANGES = [(0, 9), (9, 9), (9, 33)]  # the second expert has no rows; the last three rows belong to none
ROWS = 36


def layer(dtype: Any = torch.bfloat16, hidden: int = HIDDEN, features: int = FEATURES, **options: Any) -> MoE:
    """options: MoE's."""
    torch.manual_seed(0)
    return MoE(len(RANGES), 1, features, hidden, dtype=dtype, **options)


def unfused(moe: MoE) -> MoE:
    """A copy whose layers have a hook, so that torch computes SwiGLU."""
    options = {"recipe": moe.gate_up.recipe, "accumulate_main_grad": moe.gate_up.accumulate_main_grad}
    options |= {"dtype": moe.down.weight.dtype, "device": moe.down.weight.device}
    copy = MoE(len(RANGES), 1, moe.gate_up.in_features, moe.down.in_features, **options)
    copy.load_state_dict(moe.state_dict())
    copy.gate_up.register_forward_hook(lambda *_: None)
    return copy


def operands(dtype: Any = torch.bfloat16, features: int = FEATURES, device: str = "cpu") -> tuple[Any, Any, Any]:
    """Rows, where each expert's end, and y's gradient."""
    torch.manual_seed(1)
    rows, grad = (torch.randn(ROWS, features).to(device, dtype) for _ in range(2))
    return rows.requires_grad_(), torch.tensor([end for _, end in RANGES], dtype=torch.int32, device=device), grad


def gradients(moe: MoE, rows: Any, offs: Any, grad: Any) -> tuple[Any, ...]:
    """y, and the gradients of rows and weights."""
    y = moe.run_experts(rows, offs)
    return y, *torch.autograd.grad(y, (rows, moe.gate_up.weight, moe.down.weight), grad)


def exact_with_bounds(moe: MoE, rows: Any, grad: Any) -> list[tuple[Any, Any]]:
    """What `gradients` gives in float64, and how far off roundings to the dtype may take it."""
    unit = torch.finfo(rows.dtype).eps / 2
    x, w1, w2, dy = (t.detach().double() for t in (rows, moe.gate_up.weight, moe.down.weight, grad))
    made = [(torch.zeros_like(t), torch.zeros_like(t)) for t in (dy, x, w1, w2)]
    for e, (begin, end) in enumerate(RANGES):
        part = slice(begin, end)
        gate, up = (x[part] @ w1[e].T).chunk(2, -1)
        sigmoid = torch.sigmoid(gate)
        silu, slope = gate * sigmoid, sigmoid * (1 + gate * (1 - sigmoid))
        dh = dy[part] @ w2[e]
        dgate, dup, hidden = dh * up * slope, dh * silu, silu * up
        sums = torch.cat([dgate, dup], 1)
        # Gates and ups are kept rounded; silu's slope is below 1.1, and changes by 0.5 at most. Sums are rounded then.
        off_gate = unit * (2 * dgate.abs() + 0.5 * (dh * up * gate).abs())
        off_sums = torch.cat([off_gate, unit * (dup.abs() + 1.1 * (dh * gate).abs())], 1)
        off_hidden = unit * (2 * hidden.abs() + 1.1 * (gate * up).abs())
        results = (
            (part, hidden @ w2[e].T, unit * hidden.abs() @ w2[e].T.abs()),
            (part, sums @ w1[e], off_sums @ w1[e].abs()),
            (e, sums.T @ x[part], off_sums.T @ x[part].abs()),
            (e, dy[part].T @ hidden, dy[part].T.abs() @ off_hidden),
        )
        for (value, bound), (place, result, off) in zip(made, results, strict=True):
            value[place], bound[place] = result, 1.02 * (off + unit * result.abs()) + 1e-6
    return made
