"""Styles of tensor parallelism."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module

from cleave.torch import parallel

from .ranks import Ranks, same_bits


def styles_are_the_layers_of_one_rank(ranks: Ranks) -> None:
    """Outputs and all gradients, in every layout that has a product of its own, and by way of DTensors."""
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    features, hidden, length = 16, 8 * ranks.size, 4 * ranks.size
    for layout, input_dtensor in ((Replicate(), False), (Shard(1), False), (Shard(-2), True), (Shard(0), False)):
        torch.manual_seed(1)
        shape = (2 * ranks.size, length, features) if layout == Shard(0) else (2, length, features)
        whole = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features)).to(ranks.device)
        x, g = ranks.draw(*shape).requires_grad_(), ranks.draw(*shape)
        dealt = parallelize_module(
            copy.deepcopy(whole),
            mesh,
            {
                "0": parallel.ColwiseParallel(input_layouts=layout),
                "2": parallel.RowwiseParallel(output_layouts=layout, use_local_output=not input_dtensor),
            },
        )
        expected = whole(x)
        expected.backward(g)

        def own(t: Tensor, layout: Any = layout) -> Tensor:
            return distribute_tensor(t.detach(), mesh, [layout])

        given = (own(x) if input_dtensor else own(x).to_local()).requires_grad_()
        made = dealt(given)
        assert isinstance(made, DTensor) == input_dtensor
        made.backward(own(g) if input_dtensor else own(g).to_local())
        for y, z in ((made, expected), (given.grad, x.grad)):
            y = y.to_local() if isinstance(y, DTensor) else y
            torch.testing.assert_close(y, own(z).to_local(), rtol=1e-4, atol=1e-5)
        for y, z in zip(dealt.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(y.grad.full_tensor(), z.grad, rtol=1e-4, atol=1e-4)
        assert dealt.state_dict().keys() == whole.state_dict().keys()
        if not input_dtensor:
            compiled = torch.compile(dealt, fullgraph=True, backend="aot_eager")
            again = given.detach().clone().requires_grad_()
            y = compiled(again)
            y.backward(own(g).to_local())
            assert same_bits(y, made) and same_bits(again.grad, given.grad)
    if ranks.size > 1:
        row = parallel.RowwiseParallel(output_layouts=Shard(0))
        with pytest.raises(ValueError, match=r"dimension 0 has 1 elements for . ranks; pad"):
            parallelize_module(nn.Linear(hidden, 4).to(ranks.device), mesh, row)(ranks.draw(1, 8))
    for features in (8 * ranks.size + 1, 1):  # dealt unevenly; some ranks have none
        whole = nn.Linear(16, features).to(ranks.device)
        column = parallel.ColwiseParallel(output_layouts=Replicate(), use_local_output=False)
        x = ranks.draw(4, 16)
        made = parallelize_module(copy.deepcopy(whole), mesh, column)(x)
        assert made.shape == (4, features)
        torch.testing.assert_close(made.to_local(), whole(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"a layout is S.*\(.*5\), but x has 2 dimensions"):
        parallelize_module(whole, mesh, parallel.ColwiseParallel(input_layouts=Shard(5)))(x)
    with pytest.raises(NotImplementedError, match=r"Conv3d, but the module is Embedding; use torch"):
        parallelize_module(nn.Embedding(4, 4), mesh, parallel.ColwiseParallel())
    with pytest.raises(ValueError, match=r"output_layouts is P.*; it must be Replicate"):
        parallel.RowwiseParallel(output_layouts=Partial())


CHECKS = (styles_are_the_layers_of_one_rank,)
