"""Quantised checkpoints into a Llama-like model, by the formats' names: cleave.torch.load_quantized on CPU tensors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from quantized_checkpoints import FORMATS, activations_in_8_bits, checkpoint, dequantized  # noqa: E402
from tiny_llama import TinyLlama, is_quantized  # noqa: E402
from torch import nn  # noqa: E402

from cleave.torch import W8A8Linear, load_quantized  # noqa: E402

formats = pytest.mark.parametrize("name", FORMATS)


@pytest.fixture
def trained() -> TinyLlama:
    torch.manual_seed(0)
    return TinyLlama()


@pytest.fixture
def ids() -> Any:
    return torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def save(folder: Path, tensors: dict[str, Any], config: dict[str, Any]) -> None:
    """In two files, with an index, as large checkpoints are."""
    save_file = pytest.importorskip("safetensors.torch").save_file
    names = list(tensors)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, inside in parts.items():
        save_file({name: tensors[name].contiguous() for name in inside}, folder / file)
    index = {"weight_map": {name: file for file, inside in parts.items() for name in inside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}), "utf-8")


def relative_error(found: Any, expected: Any) -> float:
    return float((found - expected).norm() / expected.norm())


@formats
def test_tokens_are_those_of_the_formats_arithmetic(name: str, trained: TinyLlama, ids: Any) -> None:
    made = FORMATS[name]
    tensors = checkpoint(trained.state_dict(), made, is_quantized)
    model, reference = TinyLlama(), TinyLlama()
    loaded = load_quantized(model, tensors, made.config)
    assert len(loaded.layers) == 14 and loaded.unused == []
    assert all(isinstance(model.get_submodule(layer), W8A8Linear) for layer in loaded.layers)
    assert type(model.lm_head) is nn.Linear and torch.equal(model.lm_head.weight, trained.lm_head.weight)
    reference.load_state_dict(dequantized(tensors, made))
    weights = [weight for part, weight in reference.named_parameters() if is_quantized(part)]
    with activations_in_8_bits(weights, made), torch.no_grad():
        expected, tokens = reference(ids), reference.generate(ids, 12)
    with torch.no_grad():
        found, unquantized = model(ids), trained(ids)
    # Activations are rounded to the neighbour here and there; what 8 bits cost is far more.
    error, cost = relative_error(found, expected), relative_error(expected, unquantized)
    assert error < 0.05 * cost < 0.01
    assert torch.equal(model.generate(ids, 12), tokens)


@formats
def test_elements_and_scales_are_the_checkpoints(name: str, trained: TinyLlama) -> None:
    made = FORMATS[name]
    tensors = checkpoint(trained.state_dict(), made, is_quantized)
    model = TinyLlama()
    load_quantized(model, tensors, made.config)
    layer = model.model.layers[1].self_attn.q_proj
    prefix = "model.layers.1.self_attn.q_proj."
    assert torch.equal(layer.weight.view(torch.uint8), tensors[f"{prefix}weight"].view(torch.uint8))
    assert torch.equal(layer.bias, tensors[f"{prefix}bias"])
    scale = tensors[prefix + made.names[0]].float()
    assert torch.equal(layer.weight_scale, scale.expand(144, 1)[:, 0] if layer.granularity == "row" else scale)
    assert (layer.activation_scale is not None) == made.static


def test_a_folder_is_read_with_its_config(trained: TinyLlama, ids: Any, tmp_path: Path) -> None:
    made = FORMATS["deepseek"]
    tensors = checkpoint(trained.state_dict(), made, is_quantized)
    tensors["model.layers.0.self_attn.k_scale"] = torch.ones(())
    save(tmp_path, tensors, made.config)
    model, same = TinyLlama(), TinyLlama()
    loaded = load_quantized(model, tmp_path)
    assert loaded.unused == ["model.layers.0.self_attn.k_scale"]
    load_quantized(same, tensors, made.config)
    assert torch.equal(model(ids), same(ids))


def test_without_safetensors_a_path_says_what_to_install(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ModuleNotFoundError, match="pip install safetensors"):
        load_quantized(TinyLlama(), tmp_path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    with pytest.raises(FileNotFoundError, match=r"has no \*\.safetensors"):
        load_quantized(TinyLlama(), tmp_path)


def test_parameters_on_meta_become_the_checkpoints_tensors(trained: TinyLlama, ids: Any) -> None:
    made = FORMATS["fp8-block"]
    trained.lm_head.weight = trained.model.embed_tokens.weight  # tied, so that files have one of them
    tensors = checkpoint(trained.state_dict(), made, is_quantized)
    del tensors["lm_head.weight"]
    with torch.device("meta"):
        model = TinyLlama()
    model.lm_head.weight = model.model.embed_tokens.weight
    assert load_quantized(model, tensors, made.config).unused == []
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert not any(tensor.is_meta for tensor in model.state_dict().values())
    same = TinyLlama()
    load_quantized(same, tensors | {"lm_head.weight": trained.lm_head.weight}, made.config)
    assert torch.equal(model(ids), same(ids))


def test_the_models_dtype_stays(trained: TinyLlama, ids: Any) -> None:
    made = FORMATS["int8-channel-token"]
    model = TinyLlama().bfloat16()
    load_quantized(model, checkpoint(trained.state_dict(), made, is_quantized), made.config)
    layer = model.model.layers[0].self_attn.q_proj
    assert layer.bias.dtype == torch.bfloat16
    assert (layer.weight.dtype, layer.weight_scale.dtype) == (torch.int8, torch.float32)
    assert model(ids).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["bytes", "type"])
def test_scales_that_are_exponents(kind: str, trained: TinyLlama, ids: Any) -> None:
    """UE8M0, as DeepSeek's later checkpoints have."""
    made = FORMATS["deepseek"]
    tensors = checkpoint(trained.state_dict(), made, is_quantized)
    rounded, small = dict(tensors), dict(tensors)
    for name, scale in tensors.items():
        if name.endswith("_scale_inv"):
            exponent = scale.log2().ceil()
            rounded[name] = exponent.exp2()
            byte = (exponent + 127).to(torch.uint8)
            small[name] = byte if kind == "bytes" else byte.view(torch.float8_e8m0fnu)
    models = TinyLlama(), TinyLlama()
    for model, given in zip(models, (rounded, small), strict=True):
        load_quantized(model, given, made.config | {"scale_fmt": "ue8m0"})
    assert torch.equal(models[0](ids), models[1](ids))


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy, other in values of group_0, which are named by part and key."""
    copy = json.loads(json.dumps(config))
    for path, value in changes.items():
        *parts, key = path.split("__")
        place = copy["config_groups"]["group_0"]
        for part in parts:
            place = place[part]
        place[key] = value
    return copy


INT8, BLOCK = FORMATS["int8-channel-token"].config, FORMATS["fp8-block"].config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "bitsandbytes"}, '"bitsandbytes": weights of 4 bits, or 8 .*; "compressed-tensors", "fp8"'),
        ({"quant_method": "newest"}, '"newest": a format that is not known'),
        (changed(INT8, weights__num_bits=4), "group_0 has weights of 4 bits"),
        (changed(INT8, format="pack-quantized"), "group_0 has packed weights of 8 bits, int; int of 4 is served"),
        (changed(INT8, input_activations=None), "weights of 8 bits alone"),
        (changed(INT8, input_activations__num_bits=4), "activations of 4 bits"),
        (changed(INT8, input_activations__type="float"), "not the weights' 8 of their type"),
        (changed(INT8, input_activations__symmetric=False), "zero points"),
        (changed(INT8, weights__strategy="block"), 'weights by "block" and dynamic activations by "token"'),
        (changed(BLOCK, weights__block_structure=[64, 64]), r"block_structure is \[64, 64\]"),
        (changed(BLOCK, input_activations__group_size=32), r"group_size is \[32\]"),
        (changed(INT8, targets=["re:model.layers.0.*"]), "no group of config_groups targets model.layers.1"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, r"weight_block_size is \[64, 64\]"),
        (FORMATS["deepseek"].config | {"activation_scheme": "static"}, '"dynamic" is served'),
        ({"quant_method": "fp8", "expert_dtype": "fp4"}, "experts of 4 bits"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, '"MIXED_PRECISION"'),
        ({"quant_algo": "W4A8_AWQ"}, '"W4A8_AWQ"'),
    ],
)
def test_what_is_not_served_is_said(config: dict[str, Any], message: str, trained: TinyLlama) -> None:
    tensors = checkpoint(trained.state_dict(), FORMATS["int8-channel-token"], is_quantized)
    model = TinyLlama()
    before = model.lm_head.weight.clone()
    with pytest.raises(ValueError, match=message):
        load_quantized(model, tensors, config)
    assert torch.equal(model.lm_head.weight, before)
    assert not any(isinstance(layer, W8A8Linear) for layer in model.modules())


def test_groups_of_layers_differ(trained: TinyLlama) -> None:
    """By class, by name and by pattern, the first that fits."""
    config = changed(FORMATS["int8-channel-token"].config, targets=["re:.*layers\\.0\\..*"])
    groups = config["config_groups"]
    groups["group_1"] = changed(FORMATS["int8-channel-static"].config)["config_groups"]["group_0"]
    tensors = checkpoint(trained.state_dict(), FORMATS["int8-channel-static"], is_quantized)
    model = TinyLlama()
    loaded = load_quantized(model, tensors, config)
    first, second = (layer.mlp.up_proj.activation_scale for layer in model.model.layers)
    assert first is None and second is not None
    assert len(loaded.unused) == 7 and all(name.endswith("input_scale") for name in loaded.unused)


def test_what_the_checkpoint_lacks_is_named_before_anything_changes(trained: TinyLlama) -> None:
    made = FORMATS["deepseek"]
    tensors = checkpoint(trained.state_dict(), made, is_quantized)
    for lacking in ("model.norm.weight", "model.layers.0.self_attn.q_proj.bias"):
        model = TinyLlama()
        with pytest.raises(ValueError, match=f"lacks {lacking}, which the model has"):
            load_quantized(model, {name: tensor for name, tensor in tensors.items() if name != lacking}, made.config)
        assert not any(isinstance(layer, W8A8Linear) for layer in model.modules())
    with pytest.raises(ValueError, match=r"lacks model\..* \.\.\., \d+ tensors.*it has body\."):
        load_quantized(TinyLlama(), {name.replace("model", "body"): t for name, t in tensors.items()}, made.config)


def test_another_type_than_the_config_says_is_refused(trained: TinyLlama) -> None:
    tensors = checkpoint(trained.state_dict(), FORMATS["int8-channel-token"], is_quantized)
    with pytest.raises(ValueError, match=r"is torch\.int8, but quantization_config says torch\.float8_e4m3fn"):
        load_quantized(TinyLlama(), tensors, FORMATS["fp8-channel-token"].config)


def test_layers_of_another_class_are_refused(trained: TinyLlama) -> None:
    class Derived(nn.Linear):
        pass

    made = FORMATS["deepseek"]
    model = TinyLlama()
    model.model.layers[0].mlp.up_proj = Derived(144, 200, bias=False)
    with pytest.raises(TypeError, match=r"up_proj is Derived, .* nn.Linear is served"):
        load_quantized(model, checkpoint(trained.state_dict(), made, is_quantized), made.config)


def test_no_quantization_config_is_said(trained: TinyLlama) -> None:
    with pytest.raises(ValueError, match="pass it"):
        load_quantized(TinyLlama(), trained.state_dict())
