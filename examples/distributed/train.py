"""Trains a small language model whose layers are dealt to ranks, and beside it the same model on each rank alone.

    torchrun --nproc-per-node 2 examples/distributed/train.py                    # two GPUs, or two processes of the CPU
    torchrun --nproc-per-node 2 examples/distributed/train.py --model moe --steps 200

`llama`: attention and gated layers by tensor and sequence parallelism. `moe`: experts in the gated layers' place, dealt
to the same ranks. Both begin with the same weights and see the same data. Prints both losses, and fails if they differ
by more than TOLERANCE allows; if ranks do not have the same bits of the loss; or if a layer of experts that are dealt
has other bits than one rank's.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

sys.path.insert(0, str(Path(__file__).parent))

from model import FEATURES, Model, deal, loss_of, sequences

# A share of the loss: sums have another order, and what rounding sends to another expert counts as well.
TOLERANCE = {"llama": 1e-3, "moe": 0.03}


class Trainer:
    """One of the two: `part` is what a rank has of each sequence."""

    def __init__(self, model: Model, rate: float, rank: int = 0, ranks: int = 1) -> None:
        self._model, self._rank, self._ranks = model, rank, ranks
        parameters = list(model.parameters())
        self._whole = [p for p in parameters if not isinstance(p, DTensor)]
        self._optimizer = torch.optim.Adam(parameters, lr=rate, foreach=False)

    def step(self, batch: Tensor) -> Tensor:
        """The loss before it."""
        tokens, targets = (self._part(x) for x in (batch[:, :-1], batch[:, 1:]))
        loss = loss_of(self._model(tokens), targets, batch[:, 1:].numel())
        loss.backward()
        loss = loss.detach()
        if self._ranks > 1:
            for x in (loss, *(p.grad for p in self._whole)):  # of the rank's tokens, what is dealt is of all
                dist.all_reduce(x)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss

    def _part(self, x: Tensor) -> Tensor:
        return x.chunk(self._ranks, 1)[self._rank]


def check_experts(whole: Model, dealt: Model, rank: int, ranks: int) -> None:
    """Each rank's tokens come back with the bits of one rank that has all tokens and experts."""
    x = torch.randn(16 * ranks, FEATURES).to(next(whole.parameters()).device)
    with torch.no_grad():
        expected, made = whole.blocks[0].feed(x), dealt.blocks[0].feed(x.chunk(ranks)[rank])
    if not torch.equal(made, expected.chunk(ranks)[rank]):
        raise SystemExit("experts that are dealt have other bits than one rank's")


def train(name: str, options: argparse.Namespace, mesh: DeviceMesh) -> None:
    rank, ranks = mesh.get_local_rank(), mesh.size()
    torch.manual_seed(0)
    alone = Model(experts=name == "moe").to(mesh.device_type)
    dealt = deal(copy.deepcopy(alone), mesh)
    if name == "moe":
        check_experts(alone, dealt, rank, ranks)
    trainers = Trainer(dealt, options.rate, rank, ranks), Trainer(alone, options.rate)
    generator = torch.Generator().manual_seed(1)
    for step in range(options.steps):
        batch = sequences(options.batch, options.length, generator).to(mesh.device_type)
        loss, expected = (trainer.step(batch) for trainer in trainers)
        everyones = [torch.empty_like(loss) for _ in range(ranks)]
        dist.all_gather(everyones, loss)
        difference = abs(loss.item() / expected.item() - 1)
        if rank == 0 and (step % 10 == 0 or step == options.steps - 1):
            print(f"{name} {step:4}  {loss.item():9.6f}  alone {expected.item():9.6f}  {difference:.1e}", flush=True)
        if not all(torch.equal(other, loss) for other in everyones):
            raise SystemExit(f"ranks have different bits of the loss of step {step}")
        if not difference <= TOLERANCE[name]:  # NaN, too
            raise SystemExit(f"the losses of step {step} differ by more than {TOLERANCE[name]}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Trains a model that is dealt to ranks.")
    parser.add_argument("--model", choices=("llama", "moe", "both"), default="both")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step")
    parser.add_argument("--length", type=int, default=32, help="of a sequence, a multiple of the ranks")
    parser.add_argument("--rate", type=float, default=0.001)
    options = parser.parse_args(arguments)

    ranks = int(os.environ.get("WORLD_SIZE", "0"))
    if ranks == 0:
        raise SystemExit("there are no ranks; begin with torchrun --nproc-per-node 2 examples/distributed/train.py")
    on_gpus = torch.cuda.device_count() >= ranks
    if on_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)
    mesh = init_device_mesh("cuda" if on_gpus else "cpu", (ranks,))
    for name in ("llama", "moe") if options.model == "both" else (options.model,):
        train(name, options, mesh)
    # gloo's threads let go of the last tensors a moment after a call is done; before Python 3.14 the interpreter's end
    # must not come before that, or such a thread aborts the process.
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(1)


if __name__ == "__main__":
    main()
