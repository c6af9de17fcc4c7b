"""What layers promise that are dealt to ranks: as functions that every rank of a group runs."""

from __future__ import annotations

import copy
import shutil
import tempfile
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils.checkpoint import checkpoint as recomputed

import cleave.torch
from cleave.torch import parallel

from .ranks import Ranks, same_bits


def pair(whole: nn.Module, mesh: Any, layout: Any) -> nn.Module:
    """Two layers, the first dealt by columns and the second by rows, with tokens between dealt by `layout`."""
    first, *_, last = (name for name, _ in whole.named_children())
    styles = parallel.ColwiseParallel(input_layouts=layout), parallel.RowwiseParallel(output_layouts=layout)
    return parallelize_module(copy.deepcopy(whole), mesh, dict(zip((first, last), styles, strict=True)))


def own(x: Tensor, mesh: Any, layout: Any) -> Tensor:
    return distribute_tensor(x.detach(), mesh, [layout]).to_local()


def layers_in_8_bits_are_dealt(ranks: Ranks) -> None:
    """By columns bit by bit; by rows with finer scales than one rank's, as near to the product of floats."""
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    features, hidden = 128 * ranks.size, 256 * ranks.size
    x = ranks.draw(2, 4 * ranks.size, features)
    floats = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, features)).to(ranks.device)
    expected = floats(x)
    settings: list[tuple[str, dict[str, Any]]] = [
        ("int8", {}),
        ("int8", {"activation": 4 / 127, "smooth": torch.rand(features) + 0.5}),
        ("float8_e4m3fn", {"granularity": "block_128x128"}),
    ]
    for dtype, options in settings:
        made = []
        for index, layer in enumerate(floats):
            given = {k: v for k, v in options.items() if k != "smooth" or index == 0}
            made.append(cleave.torch.W8A8Linear.from_linear(layer, dtype, **given) if index != 1 else layer)
        whole = nn.Sequential(*made)
        for layout in (Replicate(), Shard(1)):
            dealt = pair(whole, mesh, layout)
            y, on_one = dealt(own(x, mesh, layout)), own(whole(x), mesh, layout)
            error = [(t - own(expected, mesh, layout)).norm() for t in (y, on_one)]
            assert y.shape == on_one.shape and error[0] < 1.1 * error[1], (dtype, options, error)
            columns = parallelize_module(copy.deepcopy(whole[0]), mesh, parallel.ColwiseParallel(input_layouts=layout))
            assert same_bits(columns(own(x, mesh, layout)), own(whole[0](x), mesh, Shard(2)))
        assert dealt.state_dict().keys() == whole.state_dict().keys()
        assert isinstance(dealt[0].weight, DTensor) and dealt[0].weight.dtype == whole[0].weight.dtype
    if ranks.size == 1:
        return
    narrow = cleave.torch.W8A8Linear.from_linear(nn.Linear(128, 128 * ranks.size), granularity="block_128x128")
    with pytest.raises(ValueError, match=r"in_features is 128 over . ranks, but scales are of blocks of 128"):
        parallelize_module(narrow, mesh, parallel.RowwiseParallel())


def layers_train_cast_and_recomputed(ranks: Ranks) -> None:
    """Under autocast, and where forward runs again in backward: the gradients of one rank."""
    mesh, features, hidden = init_device_mesh(ranks.device, (ranks.size,)), 16, 8 * ranks.size
    torch.manual_seed(1)
    whole = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features)).to(ranks.device)
    x = ranks.draw(2, 4 * ranks.size, features).requires_grad_()
    for layout, cast in product((Replicate(), Shard(1)), (False, True)):
        dealt, given = pair(whole, mesh, layout), own(x, mesh, layout).requires_grad_()
        x.grad = None
        whole.zero_grad()
        for model, start in ((whole, x), (dealt, given)):
            with torch.autocast(ranks.device, torch.bfloat16, enabled=cast):
                y = recomputed(model, start, use_reentrant=False)
            assert y.dtype == (torch.bfloat16 if cast else torch.float32)
            y.float().square().sum().backward()
        close = {"rtol": 0.1, "atol": 0.2} if cast else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(given.grad, own(x.grad, mesh, layout), **close)
        for one, other in zip(dealt.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(one.grad.full_tensor(), other.grad, **close)


def gradients_of_dealt_weights_may_be_float32(ranks: Ranks) -> None:
    """Made in it, and added up in it: not rounded to the weight's dtype."""
    mesh, w = init_device_mesh(ranks.device, (ranks.size,)), ranks.size
    whole = nn.Sequential(nn.Linear(16, 8 * w), nn.GELU(), nn.Linear(8 * w, 16)).to(ranks.device, torch.bfloat16)
    if not hasattr(whole[0].weight, "grad_dtype"):  # which torch has from 2.13 on
        return
    x = ranks.draw(2, 8 * w, 16, dtype=torch.bfloat16)
    for layout in (Replicate(), Shard(1)):
        dealt = pair(whole, mesh, layout)
        weights = [dealt[0].weight, dealt[2].weight]
        dealt(own(x, mesh, layout)).square().sum().backward()
        rounded = [weight.grad.to_local() for weight in weights]
        for weight in weights:
            weight.grad, weight.grad_dtype = None, torch.float32
        dealt(own(x, mesh, layout)).square().sum().backward()
        once = [weight.grad.to_local().clone() for weight in weights]
        for made, before in zip(once, rounded, strict=True):
            assert same_bits(made.bfloat16(), before) and not same_bits(made, before.float())
        dealt(own(x, mesh, layout)).square().sum().backward()
        assert all(same_bits(weight.grad.to_local(), 2 * made) for weight, made in zip(weights, once, strict=True))


def grouped_layers_are_dealt(ranks: Ranks) -> None:
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    tokens, offs = 8 * ranks.size, torch.tensor([3, 3, 8 * ranks.size], dtype=torch.int32, device=ranks.device)

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = cleave.torch.GroupedLinear(3, 16, 8 * ranks.size, device=ranks.device)
            self.down = cleave.torch.GroupedLinear(3, 8 * ranks.size, 16, bias=False, device=ranks.device)

        def forward(self, x: Tensor) -> Tensor:
            return self.down(self.up(x, offs).relu(), offs)

    whole, x, g = Experts(), ranks.draw(tokens, 16).requires_grad_(), ranks.draw(tokens, 16)
    expected = whole(x)
    expected.backward(g)
    for layout in (Replicate(), Shard(0)):
        style = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel(output_layouts=layout)}
        dealt = parallelize_module(copy.deepcopy(whole), mesh, style)
        dealt.zero_grad()
        given = x.detach().requires_grad_()
        y = dealt(given)
        y.backward(own(g, mesh, layout))
        torch.testing.assert_close(y, own(expected, mesh, layout), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(given.grad, x.grad, rtol=1e-4, atol=1e-5)
        for one, other in zip(dealt.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(one.grad.full_tensor(), other.grad, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="a bias for each group, which a sum over ranks does not add"):
        parallelize_module(copy.deepcopy(whole.up), mesh, parallel.RowwiseParallel())


@cleave.torch.float32_precision("ieee")  # torch lets convolutions on a GPU round to TF32
def convolutions_are_dealt(ranks: Ranks) -> None:
    mesh, w = init_device_mesh(ranks.device, (ranks.size,)), ranks.size
    whole = nn.Sequential(
        cleave.torch.Conv2d(3, 4 * w, 3, padding=1), nn.ReLU(), cleave.torch.Conv2d(4 * w, 6, 3, stride=2)
    ).to(ranks.device)
    x = ranks.draw(2 * w, 3, 8, 8).contiguous(memory_format=torch.channels_last).requires_grad_()
    expected = whole(x)
    g = torch.ones_like(expected) * torch.arange(2 * w, device=x.device).view(-1, 1, 1, 1)
    expected.backward(g)
    for layout in (Replicate(), Shard(0)):
        style = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel(output_layouts=layout)}
        dealt = parallelize_module(copy.deepcopy(whole), mesh, style)
        dealt.zero_grad()
        given = x.detach().requires_grad_()
        y = dealt(given)
        y.backward(own(g, mesh, layout).contiguous(memory_format=torch.channels_last))
        torch.testing.assert_close(y, own(expected, mesh, layout), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(given.grad, x.grad, rtol=1e-4, atol=1e-4)
        for one, other in zip(dealt.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(one.grad.full_tensor(), other.grad, rtol=1e-4, atol=1e-3)
    with pytest.raises(ValueError, match="groups is 3; filters of groups are not dealt"):
        parallelize_module(cleave.torch.Conv2d(3, 6, 3, groups=3), mesh, parallel.ColwiseParallel())


def experts() -> nn.Module:
    torch.manual_seed(3)
    return cleave.torch.MoE(6, 2, 16, 8)


def checkpoints_reload_on_other_numbers_of_ranks(ranks: Ranks) -> None:
    """Saved by all, loaded by two, and by one without a group: 8-bit and grouped layers, convolutions, experts."""
    if ranks.size == 1:
        return
    torch.manual_seed(2)
    linear = cleave.torch.W8A8Linear.from_linear
    whole = nn.ModuleDict(
        {
            "eight": linear(nn.Linear(12, 24), "int8", smooth=torch.rand(12) + 0.5),
            "blocks": linear(nn.Linear(768, 8), "float8_e4m3fn", granularity="block_1x128"),
            "conv": cleave.torch.Conv2d(3, 12, 3),
            "grouped": cleave.torch.GroupedLinear(2, 4, 12),
            "moe": experts(),
        }
    )
    styles = {
        "eight": parallel.ColwiseParallel,
        "blocks": parallel.RowwiseParallel,
        "conv": parallel.ColwiseParallel,
        "grouped": parallel.ColwiseParallel,
        "moe": parallel.ExpertParallel,
    }

    def dealt(model: nn.Module, mesh: Any) -> nn.Module:
        return parallelize_module(copy.deepcopy(model), mesh, {name: style() for name, style in styles.items()})

    def emptied(model: nn.Module) -> nn.Module:
        for x in model.state_dict().values():
            (x.to_local() if isinstance(x, DTensor) else x).zero_()
        return model

    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    saved = dealt(whole, init_device_mesh("cpu", (ranks.size,)))
    checkpoint.save(saved.state_dict(), checkpoint_id=folder[0])
    two = dist.new_group([0, 1])
    if ranks.rank < 2:
        mesh = DeviceMesh.from_group(two, "cpu")
        loaded, expected = emptied(dealt(whole, mesh)), dealt(whole, mesh)
        checkpoint.load(state := loaded.state_dict(), checkpoint_id=folder[0], process_group=two)
        loaded.load_state_dict(state)
        for name, x in loaded.state_dict().items():
            y = expected.state_dict()[name]
            assert same_bits(*(t.to_local() if isinstance(t, DTensor) else t for t in (x, y))), name
    if ranks.rank == ranks.size - 1:
        loaded = emptied(copy.deepcopy(whole))
        checkpoint.load(state := loaded.state_dict(), checkpoint_id=folder[0], no_dist=True)
        loaded.load_state_dict(state)
        for name, x in loaded.state_dict().items():
            assert same_bits(x, whole.state_dict()[name]), name
    dist.barrier()
    if ranks.rank == 0:
        shutil.rmtree(folder[0])


def layers_are_sharded_by_fsdp(ranks: Ranks) -> None:
    """Gradients are the mean of the ranks', bit by bit but for the order of that sum; Adam trains the parts."""
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    floats = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128))
    cleave.torch.convert_to_float8_training(floats, recipe="blockwise")
    for plain in (floats.to(ranks.device), experts().to(ranks.device)):
        features = 128 if plain is floats else 16
        sharded = copy.deepcopy(plain)
        for layer in sharded.children():
            if any(True for _ in layer.parameters()):
                fully_shard(layer, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        x = ranks.draw(ranks.size * 16, features)[ranks.rank * 16 :][:16]
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (plain, sharded)]
        for _ in range(3):
            losses = [model(x).square().mean() for model in (plain, sharded)]
            torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-6)
            for loss in losses:
                loss.backward()
            for one, part in zip(plain.parameters(), sharded.parameters(), strict=True):
                dist.all_reduce(one.grad)
                one.grad /= ranks.size
                torch.testing.assert_close(part.grad.full_tensor(), one.grad, rtol=1e-3, atol=1e-5)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        assert not plain(x)._is_view()  # FSDP would lose sight of one that is added to in place
    fused = cleave.torch.GroupedLinear(2, 8, 8, accumulate_main_grad=True, device=ranks.device)
    fully_shard(fused, mesh=mesh)
    fused.weight.main_grad = torch.zeros_like(fused.weight)
    y = fused(torch.ones(4, 8, device=ranks.device), torch.tensor([2, 4], dtype=torch.int32, device=ranks.device))
    with pytest.raises(RuntimeError, match=r"weight has no main_grad.*under FSDP"):
        y.sum().backward()


def gradients_under_fsdp_are_summed_in_float32(ranks: Ranks) -> None:
    """By the products of 16 and 8 bits, over two steps and over the ranks."""
    mesh, features = init_device_mesh(ranks.device, (ranks.size,)), 128 * ranks.size
    if not hasattr(torch.Tensor, "grad_dtype"):
        return
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    whole = nn.Sequential(
        cleave.torch.Float8Linear(128, features),
        nn.ReLU(),
        cleave.torch.MoE(4, 2, features, 64),
        cleave.torch.Float8Linear(features, features, recipe="rowwise"),
    ).to(ranks.device)
    x = ranks.draw(2, ranks.size * 16, 128).bfloat16()[:, ranks.rank * 16 :][:, :16]

    def train(model: nn.Module, synchronises: bool) -> list[Tensor]:
        for step, given in enumerate(x):
            if synchronises:
                model.set_requires_gradient_sync(step == 1)
            model(given).square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    plain = copy.deepcopy(whole).bfloat16()
    for parameter in plain.parameters():
        parameter.grad_dtype = torch.float32
    expected = train(plain, False)
    for grad in expected:
        dist.all_reduce(grad)
        grad /= ranks.size
    for in_8_bits in (False, True):
        sharded = copy.deepcopy(whole)
        for layer in (sharded[0], sharded[2], sharded):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        if in_8_bits:
            sharded[3].recipe = "tensorwise"
            assert parallel.gather_in_8_bits(sharded) == ["0", "3"]
        names = parallel.sum_gradients_in_float32(sharded)
        assert sorted(names) == sorted(name for name, _ in whole.named_parameters())
        for name, one, other in zip(names, train(sharded, True), expected, strict=False):
            made = one.full_tensor()
            assert one.dtype == torch.float32 and not same_bits(made, made.bfloat16().float()), name
            if not in_8_bits:
                torch.testing.assert_close(made, other, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="no layer of this model is sharded"):
        parallel.sum_gradients_in_float32(plain)
    halves = nn.Sequential(nn.Linear(8, 8, dtype=torch.bfloat16))
    fully_shard(halves, mesh=mesh)
    with pytest.raises(ValueError, match=r"0.weight is torch.bfloat16, to which FSDP rounds its gradient; make"):
        parallel.sum_gradients_in_float32(halves)


def weights_are_gathered_in_8_bits(ranks: Ranks) -> None:
    """Results have the bits of a model that is not sharded; gradients are the mean of the ranks'."""
    mesh = init_device_mesh(ranks.device, (ranks.size,))
    hybrid = init_device_mesh(ranks.device, (1, ranks.size), mesh_dim_names=("replicated", "sharded"))
    for recipe, of in (("blockwise", mesh), ("tensorwise", mesh), ("blockwise", hybrid), ("tensorwise", hybrid)):
        hidden = 128 * ranks.size
        plain = nn.Sequential(nn.Linear(128, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        cleave.torch.convert_to_float8_training(plain.to(ranks.device), recipe=recipe)
        sharded = copy.deepcopy(plain)
        for layer in (*sharded, sharded):
            fully_shard(layer, mesh=of)
        assert parallel.gather_in_8_bits(sharded) == ["0", "2"]
        seen: list[str] = []
        for layer in (sharded[0], sharded[2]):
            layer.register_forward_pre_hook(lambda layer, _, seen=seen: seen.append(type(layer.weight).__name__))
        x = ranks.draw(ranks.size * 16, 128)[ranks.rank * 16 :][:16].requires_grad_()
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in (plain, sharded)]
        for step in range(3):
            made = [model(x) for model in (plain, sharded)]
            assert same_bits(*made), recipe
            grads = [torch.autograd.grad(y.square().mean(), x, retain_graph=True)[0] for y in made]
            assert same_bits(*grads), recipe
            for y in made:
                y.square().mean().backward()
            for (name, one), part in zip(plain.named_parameters(), sharded.parameters(), strict=True):
                dist.all_reduce(one.grad)
                one.grad /= ranks.size
                where = f"{recipe}, {of}, step {step}, {name}"
                torch.testing.assert_close(
                    part.grad.full_tensor(), one.grad, rtol=1e-5, atol=1e-6, msg=lambda text, at=where: f"{at}: {text}"
                )
                one.grad.copy_(part.grad.full_tensor())  # so that the same is trained
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            assert same_bits(plain(x), sharded(x))
        assert set(seen) == {"Gathered"}
        for name, saved in sharded.state_dict().items():
            assert same_bits(saved.full_tensor(), plain.state_dict()[name]), name
    uneven = cleave.torch.Float8Linear(128, 128 * ranks.size + 16, device=ranks.device)
    fully_shard(uneven, mesh=mesh)
    with pytest.raises(ValueError, match="ranks; they must be dealt in equal multiples of 128"):
        parallel.gather_in_8_bits(uneven)
    by_rows = cleave.torch.Float8Linear(128, 128 * ranks.size, recipe="rowwise", device=ranks.device)
    fully_shard(by_rows, mesh=mesh)
    with pytest.raises(ValueError, match="quantised twice"):
        parallel.gather_in_8_bits(by_rows)


CHECKS = (
    layers_in_8_bits_are_dealt,
    layers_train_cast_and_recomputed,
    gradients_of_dealt_weights_may_be_float32,
    grouped_layers_are_dealt,
    convolutions_are_dealt,
    checkpoints_reload_on_other_numbers_of_ranks,
    layers_are_sharded_by_fsdp,
    gradients_under_fsdp_are_summed_in_float32,
    weights_are_gathered_in_8_bits,
)
