"""Checkpoints in 4 bits by the formats' names, written by code of the tests' own: cleave.torch.load_quantized."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from four_bit_checkpoints import FORMATS, checkpoint, compressed_format, gptq_format  # noqa: E402
from torch import nn  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import W4A8Linear, W4A16Linear, load_quantized  # noqa: E402


def model_of(dtype: Any = torch.bfloat16, device: str | None = None) -> nn.Sequential:
    """Two layers in 4 bits, and one that stays as it is."""
    layers = nn.Linear(256, 96), nn.SiLU(), nn.Linear(96, 72, bias=False), nn.Linear(72, 10)
    return nn.Sequential(*layers).to(dtype=dtype, device=device)


def is_quantized(name: str) -> bool:
    return name in ("0.weight", "2.weight")


@pytest.fixture
def trained() -> dict[str, Any]:
    torch.manual_seed(0)
    return model_of(torch.float32).state_dict()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_layers_multiply_what_the_checkpoint_stands_for(name: str, dtype: Any, trained: dict[str, Any]) -> None:
    files, values = checkpoint(trained, FORMATS[name], is_quantized)
    model, reference = model_of(dtype), model_of(torch.float32)
    loaded = load_quantized(model, files, FORMATS[name].config)
    assert loaded.layers == ["0", "2"] and loaded.unused == []
    reference.load_state_dict(values)
    for layer in ("0", "2"):
        found = cleave.dequantize_weights(model.get_submodule(layer).weights())
        expected = reference.get_submodule(layer).weight
        # float16 scales are kept, and those of NVFP4; bfloat16 ones are rounded.
        kept = dtype == torch.float16 or FORMATS[name].nvfp4
        torch.testing.assert_close(found, expected, rtol=0 if kept else 2**-8, atol=0)
    x = torch.randn(5, 256).to(dtype)
    with torch.no_grad():
        found, expected = model(x).float(), reference(x.float())
    assert (found - expected).norm() < (0.002 if dtype == torch.float16 else 0.02) * expected.norm()
    assert model[0].bias.dtype == dtype and type(model[3]) is nn.Linear


def test_activations_that_nvfp4_has_in_4_bits_keep_their_16(trained: dict[str, Any]) -> None:
    """What scales them is of no use then."""
    made = FORMATS["nvfp4"]
    files, _ = checkpoint(trained, made, is_quantized)
    (group,) = made.config["config_groups"].values()
    activations = group["weights"] | {"dynamic": "local"}
    config = made.config | {"config_groups": {"group_0": group | {"input_activations": activations}}}
    model, same = model_of(), model_of()
    loaded = load_quantized(model, files | {"0.input_global_scale": torch.ones(1)}, config)
    load_quantized(same, files, made.config)
    assert loaded.unused == ["0.input_global_scale"]
    x = torch.randn(5, 256).bfloat16()
    with torch.no_grad():
        assert torch.equal(model(x), same(x))


@pytest.mark.parametrize(("kind", "dtype"), [("int", torch.int8), ("float", torch.float8_e4m3fn)])
def test_activations_of_8_bits(kind: str, dtype: Any, trained: dict[str, Any]) -> None:
    activations = {"num_bits": 8, "type": kind, "strategy": "token", "dynamic": True, "symmetric": True}

    def config(**changes: Any) -> dict[str, Any]:
        (group,) = made.config["config_groups"].values()
        return made.config | {"config_groups": {"group_0": group | {"input_activations": activations | changes}}}

    made = FORMATS["packed-zeros"]
    files, values = checkpoint(trained, made, is_quantized)
    model, reference = model_of(), model_of(torch.float32)
    load_quantized(model, files, config())
    reference.load_state_dict(values)
    for layer in (model[0], model[2]):
        assert isinstance(layer, W4A8Linear) and layer.activation_dtype == dtype
    torch.testing.assert_close(cleave.dequantize_weights(model[0].weights()), reference[0].weight, rtol=0, atol=0)
    x = torch.randn(5, 256).bfloat16()
    with torch.no_grad():
        found, expected = model(x).float(), reference(x.float())
    assert (found - expected).norm() < 0.06 * expected.norm()
    for changes in ({"dynamic": False}, {"strategy": "tensor"}, {"num_bits": 4}, {"symmetric": False}):
        with pytest.raises(ValueError, match=r"group_0 has .* activations of . bits, .* beside 4 bits symmetric ones"):
            load_quantized(model_of(), files, config(**changes))


def test_symmetric_zero_points_cost_nothing(trained: dict[str, Any]) -> None:
    for name, zeros in (("gptq", False), ("gptq-zeros", True), ("awq", True)):
        model = model_of()
        load_quantized(model, checkpoint(trained, FORMATS[name], is_quantized)[0], FORMATS[name].config)
        assert (model[0].zeros is not None) == zeros


def test_zero_points_of_gptq_wrap_around(trained: dict[str, Any]) -> None:
    """Its first form stores them less 1: 0 as 15."""
    made = FORMATS["gptq-zeros"]
    files, _ = checkpoint(trained, made, is_quantized)
    files["0.qzeros"] = torch.full_like(files["0.qzeros"], -1)
    model = model_of()
    load_quantized(model, files, made.config)
    assert model[0].zeros.eq(0).all()


def test_parameters_on_meta_become_the_checkpoints(trained: dict[str, Any]) -> None:
    files, _ = checkpoint(trained, FORMATS["awq"], is_quantized)
    files = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in files.items()}
    model, same = model_of(torch.float16, "meta"), model_of(torch.float16)
    for each in (model, same):
        load_quantized(each, files, FORMATS["awq"].config)
    assert model[0].scales.dtype == torch.float16 and not any(t.is_meta for t in model.state_dict().values())
    x = torch.randn(3, 256, dtype=torch.float16)
    with torch.no_grad():
        assert torch.equal(model(x), same(x))


GPTQ, PACKED = FORMATS["gptq"].config, FORMATS["packed-group"].config


def packed(**changes: Any) -> dict[str, Any]:
    (group,) = PACKED["config_groups"].values()
    changed = {"group_0": group | {"weights": group["weights"] | changes}}
    return PACKED | {"config_groups": changed}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GPTQ | {"bits": 8}, '"gptq" with 8 bits; 4 are served'),
        (GPTQ | {"bits": 3}, '"gptq" with 3 bits'),
        (GPTQ | {"group_size": 16}, "groups of 16; 32, 64, multiples of 128"),
        (GPTQ | {"checkpoint_format": "marlin"}, '"marlin"; "gptq" and "gptq_v2" are served'),
        (GPTQ | {"dynamic": {"-:.*gate.*": {}}}, "dynamic gives some layers other settings"),
        (FORMATS["awq"].config | {"version": "gemv"}, '"gemv"; AWQ\'s "gemm" is served'),
        (FORMATS["awq"].config | {"bits": 8}, '"awq" with 8 bits'),
        (packed(num_bits=8), "packed weights of 8 bits, int; int of 4 is served"),
        (packed(type="float"), "4 bits, float; int of 4 is served"),
        (packed(strategy="block"), 'weights by "block"'),
        (packed(group_size=48), "groups of 48"),
        (packed(strategy="tensor", symmetric=False), "one zero point for a whole weight"),
        ({"quant_method": "nvfp4"}, '"nvfp4": weights of 4 bits; "compressed-tensors"'),
        (packed(num_bits=4, group_size=32) | {"format": "nvfp4-pack-quantized"}, 'int, by "group" of 32, .* of 16 is'),
        (FORMATS["modelopt-nvfp4"].config | {"group_size": 32}, "NVFP4 has groups of 32; 16 are served"),
        (FORMATS["modelopt-nvfp4"].config | {"quant_algo": "NVFP4_AWQ"}, '"NVFP4_AWQ"; of ModelOpt'),
    ],
)
def test_what_is_not_served_is_said(config: dict[str, Any], message: str, trained: dict[str, Any]) -> None:
    files, _ = checkpoint(trained, FORMATS["gptq"], is_quantized)
    files["0.weight_scale"] = files["0.scales"]
    model = model_of()
    before = model[3].weight.clone()
    with pytest.raises(ValueError, match=message):
        load_quantized(model, files, config)
    assert torch.equal(model[3].weight, before) and type(model[0]) is nn.Linear


@pytest.mark.parametrize("name", ["gptq-actorder", "packed-actorder"])
def test_act_order_without_its_groups_is_refused(name: str, trained: dict[str, Any]) -> None:
    made = FORMATS[name]
    files, _ = checkpoint(trained, made, is_quantized)
    lost = {name: tensor for name, tensor in files.items() if not name.endswith("g_idx")}
    model = model_of()
    with pytest.raises(ValueError, match=r"no 0\.(weight_)?g_idx, but .* act-order; without it their groups"):
        load_quantized(model, lost, made.config)
    assert type(model[0]) is nn.Linear
    # A place for one that nobody filled is no g_idx.
    empty = {name: torch.full_like(t, -1) if name.endswith("g_idx") else t for name, t in files.items()}
    if made.config["quant_method"] == "compressed-tensors":
        with pytest.raises(ValueError, match="act-order"):
            load_quantized(model_of(), empty, made.config)


def test_what_does_not_fit_names_the_layer(trained: dict[str, Any]) -> None:
    made = FORMATS["gptq"]
    files, _ = checkpoint(trained, made, is_quantized)
    files["2.scales"][1, 3] = float("nan")
    with pytest.raises(ValueError, match=r"2: scales\[1, 3\] is nan"):
        load_quantized(model_of(), files, made.config)
    with pytest.raises(ValueError, match=r"0: g_idx has column 32 in group 1, .* group_size that it was made with"):
        load_quantized(model_of(), files, made.config | {"group_size": 64})
    awq, _ = checkpoint(trained, FORMATS["awq"], is_quantized)
    with pytest.raises(ValueError, match=r"0: scales is \[8, 96\]; it must be .* = \[4, 96\]"):
        load_quantized(model_of(), awq, FORMATS["awq"].config | {"group_size": 64})
    with pytest.raises(ValueError, match=r"the checkpoint lacks 0\.scales"):
        load_quantized(model_of(), {k: v for k, v in files.items() if k != "0.scales"}, made.config)
    wide = nn.Sequential(nn.Linear(320, 96), *model_of()[1:]).bfloat16()
    with pytest.raises(ValueError, match=r"0's codes are \[96, 256\]; the model's weight is \[96, 320\]"):
        load_quantized(wide, files, made.config)


def test_a_model_is_left_as_it_was_by_what_does_not_fit(trained: dict[str, Any]) -> None:
    made = FORMATS["gptq"]
    files, _ = checkpoint(trained, made, is_quantized)
    scales = files["2.scales"].clone()
    scales[1, 3] = float("inf")
    for change in ({"2.scales": scales}, {"3.weight": trained["3.weight"][:, :8]}, {"3.bias": torch.ones(1)}):
        model = model_of()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with pytest.raises(ValueError, match=next(iter(change))[:1]):
            load_quantized(model, files | change, made.config)
        after = model.state_dict()
        assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)


def test_models_of_32_bits_are_refused(trained: dict[str, Any]) -> None:
    files, _ = checkpoint(trained, FORMATS["awq"], is_quantized)
    with pytest.raises(ValueError, match=r"0 is torch.float32, .* call model.bfloat16\(\) first"):
        load_quantized(model_of(torch.float32), files, FORMATS["awq"].config)


def test_layers_of_another_class_are_refused(trained: dict[str, Any]) -> None:
    class Derived(nn.Linear):
        pass

    files, _ = checkpoint(trained, FORMATS["awq"], is_quantized)
    model = model_of()
    model[2] = Derived(96, 72, bias=False)
    with pytest.raises(TypeError, match=r"2 is Derived, but its weight is quantised; nn\.Linear"):
        load_quantized(model, files, FORMATS["awq"].config)


def test_groups_of_other_sizes(trained: dict[str, Any]) -> None:
    for made in (compressed_format("group", 128), gptq_format(128, desc_act=True, sym=False, form="gptq")):
        quantized = {name: tensor for name, tensor in trained.items() if name != "2.weight"}
        files, values = checkpoint(quantized, made, is_quantized)
        model = model_of(torch.float16)
        load_quantized(model, files | {"2.weight": trained["2.weight"]}, made.config)
        assert isinstance(model[0], W4A16Linear) and model[0].group_size == 128
        torch.testing.assert_close(cleave.dequantize_weights(model[0].weights()), values["0.weight"], rtol=0, atol=0)
