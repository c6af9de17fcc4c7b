"""Trains a mixture of experts with Cleave, and beside it with a loop over the experts.

    python examples/moe/train.py
    python examples/moe/train.py --dtype bfloat16 --experts 64 --tokens 4096 --steps 50

Both start with the same weights and see the same data. The loop is float32 throughout and made of
torch's products, expert by expert; cleave.torch.MoE is one product per layer, in --dtype, with
float32 master weights to which the products add their gradients (accumulate_main_grad). Prints both
losses of every step, and fails if they differ by more than TOLERANCE allows.

What is learnt: tokens lie in regions of space, each of which has a linear map of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from cleave.torch import MoE

# A share of the reference's loss. On a GPU sums have another order, and roundings add up from step
# to step; what a rounding sends to another expert counts as well.
TOLERANCE = {"cpu": {"float32": 1e-4, "bfloat16": 0.03}, "cuda": {"float32": 0.03, "bfloat16": 0.03}}


class Loop(nn.Module):
    """The same layer, expert by expert, in float32."""

    def __init__(self, layer: MoE):
        super().__init__()
        self.top_k = layer.top_k
        self.router = nn.Parameter(layer.router.weight.detach().float().clone())
        self.gate_up = nn.Parameter(layer.gate_up.weight.detach().float().clone())
        self.down = nn.Parameter(layer.down.weight.detach().float().clone())

    def forward(self, x: Tensor) -> Tensor:
        best, experts = (x @ self.router.t()).topk(self.top_k, dim=-1)
        weights = best.softmax(dim=-1)
        y = torch.zeros_like(x)
        for expert, (gate_up, down) in enumerate(zip(self.gate_up, self.down, strict=True)):
            token, choice = (experts == expert).nonzero(as_tuple=True)
            gate, up = (x[token] @ gate_up.t()).chunk(2, dim=-1)
            rows = (nn.functional.silu(gate) * up) @ down.t()
            y = y.index_add(0, token, weights[token, choice, None] * rows)
        return y


class Trainer:
    """A layer of any dtype, trained by Adam on float32 copies of its parameters."""

    def __init__(self, layer: nn.Module, rate: float):
        self.layer = layer
        self._parameters = list(layer.parameters())
        self._masters = [p.detach().float().clone() for p in self._parameters]
        for parameter in self._parameters:
            parameter.main_grad = torch.zeros_like(parameter, dtype=torch.float32)
        self._optimizer = torch.optim.Adam(self._masters, lr=rate)

    def step(self, x: Tensor, target: Tensor) -> float:
        """The loss before the step."""
        y = self.layer(x.to(self._parameters[0].dtype))
        loss = nn.functional.mse_loss(y.float(), target)
        loss.backward()
        with torch.no_grad():
            for parameter, master in zip(self._parameters, self._masters, strict=True):
                if parameter.grad is not None:  # not added to main_grad by a product
                    parameter.main_grad += parameter.grad
                    parameter.grad = None
                master.grad = parameter.main_grad
            self._optimizer.step()
            for parameter, master in zip(self._parameters, self._masters, strict=True):
                parameter.copy_(master)
                parameter.main_grad.zero_()
        return loss.item()


def batches(options: argparse.Namespace, device: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens and what their regions' maps make of them; the same ones in every run."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(options.experts, options.features, generator=generator)
    maps = torch.randn(options.experts, options.features, options.features, generator=generator)
    maps /= options.features**0.5
    for _ in range(options.steps):
        x = torch.randn(options.tokens, options.features, generator=generator)
        region = (x @ centres.t()).argmax(dim=-1)
        target = torch.empty_like(x)
        for i in range(options.experts):
            target[region == i] = x[region == i] @ maps[i]
        yield x.to(device), target.to(device)


def main(arguments: Sequence[str] | None = None) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description="Trains a mixture of experts.")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="bfloat16" if device == "cuda" else "float32"
    )
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=1024, help="of a step")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rate", type=float, default=0.01)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    layer = MoE(
        options.experts,
        options.top_k,
        options.features,
        options.hidden,
        accumulate_main_grad=True,
        dtype=getattr(torch, options.dtype),
    ).to(device)
    ours, loops = Trainer(layer, options.rate), Trainer(Loop(layer), options.rate)
    tolerance = TOLERANCE[device][options.dtype]
    print(f"step  {options.dtype:>9}       loop   difference")
    for step, (x, target) in enumerate(batches(options, device)):
        loss, expected = ours.step(x, target), loops.step(x, target)
        difference = abs(loss / expected - 1)
        print(f"{step:4}  {loss:9.6f}  {expected:9.6f}   {difference:.1e}")
        if not difference <= tolerance:  # NaN, too
            raise SystemExit(f"the losses of step {step} differ by more than {tolerance}")


if __name__ == "__main__":
    main()
