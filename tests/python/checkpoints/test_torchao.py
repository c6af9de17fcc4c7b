"""cleave.torchao: quantize_ makes W8A8Linear, or W4A16Linear, of the layers that the filter names."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)
pytest.importorskip("torchao.quantization.transform_module", reason="torchao is not installed")

from torch import nn  # noqa: E402
from torchao.quantization import quantize_  # noqa: E402

from cleave.torch import W4A16Linear, W8A8Linear  # noqa: E402
from cleave.torchao import CleaveW4A16Config, CleaveW8A8Config  # noqa: E402


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(192, 200), nn.GELU(), nn.Linear(200, 64, bias=False))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "float8_e4m3fn", "use_fast_accum": True},
        {"dtype": "float8_e4m3fn", "granularity": "block_128x128"},
        {"activation": 0.05},
    ],
    ids=str,
)
def test_layers_are_those_of_from_linear(options: dict[str, Any], model: nn.Sequential) -> None:
    x = torch.randn(5, 192)
    expected = nn.Sequential(
        *(W8A8Linear.from_linear(part, **options) if type(part) is nn.Linear else part for part in model)
    )(x)
    quantize_(model, CleaveW8A8Config(**options))
    assert [type(part) for part in model] == [W8A8Linear, nn.GELU, W8A8Linear]
    assert torch.equal(model(x), expected)


def test_weights_of_4_bits(model: nn.Sequential) -> None:
    x = torch.randn(5, 192).bfloat16()
    model = model.bfloat16()
    expected = W4A16Linear.from_linear(model[0], 64)(x)
    quantize_(model, CleaveW4A16Config(group_size=64), lambda module, name: name == "0")
    assert [type(part) for part in model] == [W4A16Linear, nn.GELU, nn.Linear]
    assert torch.equal(model[0](x), expected)
    with pytest.raises(ValueError, match="does not divide K = 200"):
        quantize_(model, CleaveW4A16Config(), lambda module, name: name == "2")


def test_the_filter_chooses(model: nn.Sequential) -> None:
    quantize_(model, CleaveW8A8Config(), lambda module, name: name == "2")
    assert [type(part) for part in model] == [nn.Linear, nn.GELU, W8A8Linear]


def test_what_from_linear_refuses_is_refused(model: nn.Sequential) -> None:
    with pytest.raises(ValueError, match="granularity"):
        quantize_(model, CleaveW8A8Config(granularity="tensor"))


def test_derived_layers_are_refused() -> None:
    class Derived(nn.Linear):
        pass

    with pytest.raises(TypeError, match=r"Derived; nn\.Linear is served"):
        quantize_(
            nn.Sequential(Derived(32, 32)), CleaveW8A8Config(), lambda module, name: isinstance(module, nn.Linear)
        )
    with pytest.raises(TypeError, match=r"Derived; nn\.Linear is served"):
        quantize_(
            nn.Sequential(Derived(32, 32)), CleaveW4A16Config(-1), lambda module, name: isinstance(module, nn.Linear)
        )
