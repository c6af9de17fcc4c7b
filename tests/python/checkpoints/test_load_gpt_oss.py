"""gpt-oss's checkpoints, experts in MXFP4, beside transformers' own dequantised model: a tiny random one, on CPUs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", minversion="5", reason="transformers 5 or newer is not installed")
safetensors = pytest.importorskip("safetensors.torch")

from mxfp4_checkpoints import CONFIG, blocks_of, checkpoint  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import Gate, W4A16Experts, load_quantized  # noqa: E402

# Limits that tokens of such a model reach.
GATE = Gate(alpha=1.702, beta=1.0, limit=0.75)
EXPERTS = ["model.layers.0.mlp.experts", "model.layers.1.mlp.experts"]


def gpt_oss(dtype: Any = torch.float32) -> Any:
    sizes = {"vocab_size": 128, "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    ids = {"eos_token_id": None, "pad_token_id": 0, "max_position_embeddings": 64, "sliding_window": 8}
    config = transformers.GptOssConfig(**sizes, **heads, **ids, initializer_range=0.2, swiglu_limit=GATE.limit)
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.GptOssForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith(("_bias", "router.bias")):
            parameter.data.normal_(std=0.5)
    return model.to(dtype)


@pytest.fixture
def files() -> dict[str, Any]:
    return checkpoint(gpt_oss(torch.bfloat16).state_dict())


@pytest.fixture
def folder(files: dict[str, Any], tmp_path: Path) -> Path:
    config = gpt_oss().config.to_dict() | {"quantization_config": CONFIG}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    safetensors.save_file(files, tmp_path / "model.safetensors", {"format": "pt"})
    return tmp_path


def dequantized(folder: Path, dtype: Any) -> Any:
    config = transformers.Mxfp4Config(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, quantization_config=config)
    model.config._experts_implementation = "eager"
    return model


def generate(model: Any, ids: Any) -> Any:
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False)


def gates_before_ups(rows: Any) -> Any:
    """rows: [E, 2 H, ...], a gate's followed by its up's."""
    return torch.cat((rows[:, 0::2], rows[:, 1::2]), 1)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float16, 0.005), (torch.bfloat16, 0.04)], ids=["half", "bfloat16"])
def test_the_same_tokens_as_transformers_dequantised(dtype: Any, near: float, folder: Path) -> None:
    same = dequantized(folder, dtype)
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    loaded = load_quantized(model, folder)
    assert loaded.layers == EXPERTS and loaded.unused == []
    for name in EXPERTS:
        experts, theirs = model.get_submodule(name), same.get_submodule(name)
        assert isinstance(experts, W4A16Experts) and experts.gate == GATE
        gate_up, down = (cleave.dequantize_weights(layer.weights()) for layer in (experts.gate_up, experts.down))
        assert torch.equal(gate_up, gates_before_ups(theirs.gate_up_proj.mT.float()))
        assert torch.equal(down, theirs.down_proj.mT.float())
        assert torch.equal(experts.gate_up.bias, gates_before_ups(theirs.gate_up_proj_bias))
        assert torch.equal(experts.down.bias, theirs.down_proj_bias)
    ids = torch.tensor([[5, 3, 8, 9, 7, 9, 3, 2]])
    with torch.no_grad():
        found, expected = model(ids).logits.float(), same(ids).logits.float()
    assert (found - expected).norm() < near * expected.norm()
    if dtype == torch.float16:  # in bfloat16 a model of so few and random weights has ties
        assert torch.equal(generate(model, ids), generate(same, ids))


def test_codes_and_scales_are_the_checkpoints(files: dict[str, Any]) -> None:
    """Those of e2m1's negative zero, too, and of the smallest and largest scales that are no NaN."""
    name = f"{EXPERTS[1]}.gate_up_proj"
    files[f"{name}_blocks"].random_(0, 256)
    files[f"{name}_scales"].random_(0, 255)
    model = gpt_oss(torch.bfloat16)
    load_quantized(model, files | {f"{name}_scales": files[f"{name}_scales"].view(torch.float8_e8m0fnu)}, CONFIG)
    layer = model.get_submodule(EXPERTS[1]).gate_up
    blocks = gates_before_ups(files[f"{name}_blocks"])
    codes = torch.stack((blocks % 16, blocks // 16), -1).reshape(4, 192, 128)
    assert torch.equal(cleave.unpack_weights(layer.weights()), codes)
    assert torch.equal(layer.scales, gates_before_ups(files[f"{name}_scales"]).mT)


def test_a_state_dict_round_trips(files: dict[str, Any]) -> None:
    model, same = gpt_oss(torch.bfloat16), gpt_oss(torch.bfloat16)
    load_quantized(model, files, CONFIG)
    for name in EXPERTS:
        empty = W4A16Experts(4, 128, 96, format="mxfp4", bias=True, gate=GATE)
        same.set_submodule(name, empty)
    same.load_state_dict(model.state_dict())
    ids = torch.tensor([[5, 3, 8, 9]])
    with torch.no_grad():
        assert torch.equal(same(ids).logits, model(ids).logits)


def test_parameters_on_meta_become_the_checkpoints(files: dict[str, Any]) -> None:
    name = EXPERTS[0]
    with torch.device("meta"):
        on_meta = torch.nn.ModuleDict({"experts": gpt_oss().get_submodule(name)})
    on_meta.to("meta")
    tensors = {key.removeprefix(name.removesuffix("experts")): tensor for key, tensor in files.items() if name in key}
    load_quantized(on_meta.bfloat16(), tensors, CONFIG)
    model = gpt_oss(torch.bfloat16)
    load_quantized(model, files, CONFIG)
    found, expected = on_meta["experts"].state_dict(), model.get_submodule(name).state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in expected)


def test_experts_that_stay_as_they_are() -> None:
    trained, model = gpt_oss(torch.bfloat16), gpt_oss(torch.bfloat16)
    files = checkpoint(trained.state_dict(), lambda name: name.startswith("model.layers.1."))
    listed = CONFIG | {"modules_to_not_convert": [*CONFIG["modules_to_not_convert"], "model.layers.0"]}
    for parameter in model.get_submodule(EXPERTS[0]).parameters():
        parameter.data.zero_()
    assert load_quantized(model, files, listed).layers == EXPERTS[1:]
    found, expected = (each.get_submodule(EXPERTS[0]).state_dict() for each in (model, trained))
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def refused(files: dict[str, Any], error: Any, message: str, config: Any = CONFIG, model: Any = None) -> None:
    """And the model is left as it was."""
    model = gpt_oss(torch.bfloat16) if model is None else model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(error, match=message):
        load_quantized(model, files, config)
    after = model.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[name], before[name]) for name in before)


def test_tensors_that_do_not_fit_are_named(files: dict[str, Any]) -> None:
    name = f"{EXPERTS[1]}.gate_up_proj"
    blocks, scales, bias = (files[f"{name}_{part}"] for part in ("blocks", "scales", "bias"))
    beside = r"; of the model's weight \[4, 192, 128\] .*, in blocks of 32 inputs, it must be "
    fits = rf"{beside}torch\.uint8 \[4, 192, 4, 16\]"
    for part, tensor, message in (
        ("blocks", blocks.reshape(4, 192, 8, 8), rf"uint8 \[4, 192, 8, 8\]{fits}"),  # of 16 inputs
        ("blocks", blocks[:, :96], rf"uint8 \[4, 96, 4, 16\]{fits}"),
        ("blocks", blocks.view(torch.int8), rf"int8 \[4, 192, 4, 16\]{fits}"),
        ("scales", scales.mT, rf"uint8 \[4, 4, 192\]{beside}.* \[4, 192, 4\]"),
        ("scales", scales.float(), rf"float32 \[4, 192, 4\]{beside}torch\.uint8 or torch\.float8_e8m0fnu"),
        ("bias", bias[:, :96], rf"bfloat16 \[4, 96\]{beside}.* \[4, 192\]"),
    ):
        refused(files | {f"{name}_{part}": tensor}, ValueError, rf"1\.mlp.*_proj_{part} is torch\.{message}")
    scales[2, 3, 1] = 255
    refused(files, ValueError, r"1\.mlp\.experts\.gate_up_proj, expert 2: scales\[1, \d+\] is NaN")


@pytest.mark.parametrize("part", ["gate_up_proj_bias", "down_proj_bias", "down_proj_scales", "gate_up_proj_blocks"])
def test_tensors_that_are_missing_are_named(part: str, files: dict[str, Any]) -> None:
    lost = f"{EXPERTS[0]}.{part}"
    refused({name: t for name, t in files.items() if name != lost}, ValueError, f"the checkpoint lacks {lost}, which")


def test_configs_that_contradict_the_files_are_refused(files: dict[str, Any]) -> None:
    for pattern in ("model.layers.1", "model.layers.*.mlp.experts", "experts", r"model\.layers\.[01]\.mlp"):
        config = CONFIG | {"modules_to_not_convert": ["lm_head", pattern]}
        message = rf'modules_to_not_convert has "{re.escape(pattern)}", but .* blocks of .*\d.mlp.experts; take it out'
        refused(files, ValueError, message, config)
    awq = {"quant_method": "awq", "bits": 4, "group_size": 32}
    refused(files, ValueError, 'experts has blocks of MXFP4, but .*; pass one whose quant_method is "mxfp4"', awq)
    scale = {"model.layers.0.self_attn.q_proj.weight_scale": torch.ones(1)}
    refused(files | scale, ValueError, r'"mxfp4", but .*q_proj is a linear layer; experts in blocks are served')
    refused(files, ValueError, r"experts is torch\.float32, .* call model\.bfloat16\(\) first", model=gpt_oss())


def test_another_gate_is_refused(files: dict[str, Any]) -> None:
    model = gpt_oss(torch.bfloat16)
    model.get_submodule(EXPERTS[1])._apply_gate = lambda gate_up: gate_up[..., ::2].relu() * gate_up[..., 1::2]
    refused(files, TypeError, r"1\.mlp\.experts is GptOssExperts; experts of silu\(gate\) \* up", model=model)


def test_blocks_of_other_modules_than_gpt_oss() -> None:
    """Gates before ups, no biases, weights [experts, outputs, inputs]."""
    torch.manual_seed(0)
    experts = torch.nn.Module()
    experts.act_fn = torch.nn.SiLU()
    shapes = {"gate_up_proj": (4, 128, 64), "down_proj": (4, 64, 64)}
    files, values = {}, {}
    for name, shape in shapes.items():
        experts.register_parameter(name, torch.nn.Parameter(torch.empty(shape, dtype=torch.bfloat16)))
        files[f"experts.{name}_blocks"], files[f"experts.{name}_scales"], values[name] = blocks_of(torch.randn(shape))
    model = torch.nn.ModuleDict({"experts": experts})
    load_quantized(model, files, {"quant_method": "mxfp4"})
    found = model["experts"]
    assert found.gate == Gate() and found.gate_up.bias is None
    for layer, expected in zip((found.gate_up, found.down), values.values(), strict=True):
        assert torch.equal(cleave.dequantize_weights(layer.weights()).double(), expected)
