"""What hangs on layers that others replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from decoder import Model  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.utils import prune, spectral_norm  # noqa: E402

from cleave.torch import (  # noqa: E402
    Float8Linear,
    RMSNormQuantize,
    W8A8Linear,
    convert_to_float8_training,
    fuse,
    replace_convs,
    replace_linears,
)

replacing = pytest.mark.parametrize(
    ("replace", "layer", "x"),
    [
        (replace_linears, nn.Linear(16, 16), torch.ones(2, 16)),
        (lambda model: replace_linears(model, "int4", group_size=32), nn.Linear(32, 16), torch.ones(2, 32).bfloat16()),
        (convert_to_float8_training, nn.Linear(16, 16), torch.ones(2, 16)),
        (lambda model: replace_convs(model, convert=True), nn.Conv2d(3, 4, 3), torch.ones(1, 3, 8, 8)),
    ],
    ids=["8 bits", "4 bits", "float8", "convolution"],
)


@replacing
def test_hooks_and_the_mode_stay(replace: Callable[..., Any], layer: nn.Module, x: Tensor) -> None:
    model, seen = nn.Sequential(layer).eval(), []
    layer.register_forward_pre_hook(lambda *_: seen.append(1))
    handle = layer.register_forward_hook(lambda _, __, y: y * 0)
    assert replace(model) == ["0"] and model[0] is not layer
    assert not model[0].training
    assert (model(x) == 0).all() and seen == [1]
    handle.remove()
    assert (model(x) != 0).any() and seen == [1, 1]


def with_a_forward_of_its_own(layer: nn.Linear) -> nn.Linear:
    layer.forward = lambda x: nn.functional.linear(x, -layer.weight)
    return layer


@pytest.mark.parametrize("replace", [replace_linears, convert_to_float8_training])
@pytest.mark.parametrize(
    "alter", [spectral_norm, lambda each: prune.l1_unstructured(each, "weight", 0.5), with_a_forward_of_its_own]
)
def test_altered_layers_are_left_alone(alter: Callable[..., nn.Module], replace: Callable[..., Any]) -> None:
    model = nn.Sequential(alter(nn.Linear(16, 16)), nn.Linear(16, 16))
    assert replace(model) == ["1"]
    assert type(model[0]) is nn.Linear


def test_modules_with_hooks_are_not_fused() -> None:
    model = Model()
    replace_linears(model)
    names = [name for name, _ in fuse(model).done]
    hooked = Model()
    replace_linears(hooked)
    for name in names:
        hooked.get_submodule(name).register_forward_hook(lambda _, __, y: y)
    fused = fuse(hooked)
    assert not fused.done
    assert all("hooks" in why for name, why in fused.left if name in names)


def test_layers_of_many_kinds_compile_one_by_one() -> None:
    """torch counts graphs for each function: what says which keyword was meant is none that they share."""
    x = torch.ones(2, 128)
    layers = [Float8Linear(128, 16), W8A8Linear.from_linear(nn.Linear(128, 16)), RMSNormQuantize(128)]
    torch.compiler.reset()
    with torch._dynamo.config.patch(recompile_limit=1), torch.no_grad():
        for layer in layers:
            torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
