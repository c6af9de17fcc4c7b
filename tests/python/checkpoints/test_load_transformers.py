"""Quantised checkpoints of transformers' models: a tiny random Llama and Qwen3-MoE, on the CPU."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", minversion="5", reason="transformers 5 or newer is not installed")
safetensors = pytest.importorskip("safetensors.torch")

import four_bit_checkpoints  # noqa: E402
from doc_snippets import ROOT, python_snippets  # noqa: E402
from quantized_checkpoints import DYNAMIC, FORMATS, Format, activations_in_8_bits, checkpoint, dequantized  # noqa: E402

from cleave.torch import W4A16Experts, W4A16Linear, W8A8Experts, load_quantized  # noqa: E402
from cleave.transformers import from_pretrained  # noqa: E402

SIZES = {
    "vocab_size": 128,
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "eos_token_id": None,
    "pad_token_id": 0,
}


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()


def qwen3_moe(hidden: int = 96) -> Any:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": hidden, "norm_topk_prob": True}
    config = transformers.Qwen3MoeConfig(**SIZES, **experts)
    config._experts_implementation = "eager"  # whose products go through torch's linear
    return transformers.Qwen3MoeForCausalLM(config).eval()


def is_quantized(name: str) -> bool:
    return name.endswith("proj.weight")


def save_quantized(model: Any, folder: Path, made: Format) -> None:
    """As a quantiser would: transformers' files, but for the weights in 8 bits and the config's word of them."""
    model.config.quantization_config = made.config
    model.config.save_pretrained(folder)
    del model.config.quantization_config
    safetensors.save_file(checkpoint(saved(model, folder), made, is_quantized), folder / "model.safetensors")


def saved(model: Any, folder: Path) -> dict[str, Any]:
    """By the names that files have."""
    model.save_pretrained(folder / "float")
    return safetensors.load_file(folder / "float" / "model.safetensors")


def reference(folder: Path, made: Format) -> Any:
    """The model of the checkpoint's values in float32, as transformers loads it."""
    values = dequantized(safetensors.load_file(folder / "model.safetensors"), made)
    safetensors.save_file(values, folder / "float" / "model.safetensors", {"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "float", dtype=torch.float32)
    model.config._experts_implementation = "eager"
    return model


def generate(model: Any, ids: Any) -> Any:
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=10, do_sample=False)


CASES = [(llama, name) for name in FORMATS] + [(qwen3_moe, name) for name in ("int8-channel-token", "deepseek")]


@pytest.mark.parametrize(("make", "name"), CASES)
def test_the_same_tokens_as_the_formats_arithmetic(make: Callable[[], Any], name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = FORMATS[name]
    trained = make()
    save_quantized(trained, tmp_path, made)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    loaded = load_quantized(model, tmp_path)
    assert loaded.unused == [] and len(loaded.layers) == (14 if make is llama else 10)
    ids = torch.tensor([[5, 3, 8, 9, 7, 9, 3, 2]])
    same = reference(tmp_path, made)
    quantized = [w for n, w in same.named_parameters() if n.endswith(("proj.weight", "gate_up_proj", "down_proj"))]
    calls: dict[str, Any] = {}
    hooks = [record(same.get_submodule(name), name, calls) for name in loaded.layers]
    with activations_in_8_bits(quantized, made), torch.no_grad():
        expected = same(ids).logits
        for hook in hooks:
            hook.remove()
        tokens = generate(same, ids)
    with torch.no_grad():
        for name, (given, made_of_it) in calls.items():
            assert relative(model.get_submodule(name)(*given), made_of_it) < 0.02, name
        found, unquantized = model(ids).logits, trained(ids).logits
    # A last bit, which processors differ in, may round an activation to the next of 256 codes: up to 0.01 of what such
    # a small layer makes, and what follows carries it on to up to 0.14 of the logits.
    assert relative(found, expected) < 0.15 and relative(unquantized, expected) < 1
    assert torch.equal(generate(model, ids), tokens)


def record(module: Any, name: str, calls: dict[str, Any]) -> Any:
    """Keeps what a module is given, and what it makes of that."""
    return module.register_forward_hook(lambda _, given, made: calls.__setitem__(name, (given, made)))


def relative(found: Any, expected: Any) -> float:
    return float((found - expected).norm() / expected.norm())


FOUR_BITS = [(llama, name) for name in four_bit_checkpoints.FORMATS]
FOUR_BITS += [(qwen3_moe, name) for name in ("packed-group", "packed-zeros", "awq", "gptq", "gptq-zeros", "nvfp4")]


def save_four_bits(trained: Any, folder: Path, made: four_bit_checkpoints.Format) -> Any:
    """As `save_quantized`; returns the model of what the codes stand for."""
    files, values = four_bit_checkpoints.checkpoint(saved(trained, folder), made, is_quantized)
    trained.config.quantization_config = made.config
    trained.config.save_pretrained(folder)
    safetensors.save_file(files, folder / "model.safetensors")
    safetensors.save_file(values, folder / "float" / "model.safetensors", {"format": "pt"})
    same = transformers.AutoModelForCausalLM.from_pretrained(folder / "float", dtype=torch.float16)
    same.config._experts_implementation = "eager"
    return same


@pytest.mark.parametrize(("make", "name"), FOUR_BITS)
def test_the_same_tokens_as_of_dequantised_weights(make: Callable[[], Any], name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    same = save_four_bits(make(), tmp_path, four_bit_checkpoints.FORMATS[name])
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()
    loaded = load_quantized(model, tmp_path)
    assert loaded.unused == [] and len(loaded.layers) == (14 if make is llama else 10)
    assert all(type(model.get_submodule(layer)) in (W4A16Linear, W4A16Experts) for layer in loaded.layers)
    ids = torch.tensor([[5, 3, 8, 9, 7, 9, 3, 2]])
    with torch.no_grad():
        found, expected = model(ids).logits.float(), same(ids).logits.float()
    assert (found - expected).norm() < 0.005 * expected.norm()
    assert torch.equal(generate(model, ids), generate(same, ids))


PRETRAINED = [(llama, name) for name in ("int8-channel-token", "fp8-block", "deepseek", "awq", "gptq", "nvfp4")]
PRETRAINED += [(qwen3_moe, name) for name in ("int8-channel-token", "deepseek", "packed-group")]


@pytest.mark.parametrize(("make", "name"), PRETRAINED)
def test_from_pretrained(make: Callable[[], Any], name: str, tmp_path: Path) -> None:
    """One call makes what the steps make, whatever the checkpoint's dtypes, and generates as the folder says."""
    torch.manual_seed(0)
    trained = make()
    trained.generation_config.max_new_tokens = 6
    if name in FORMATS:
        save_quantized(trained, tmp_path, FORMATS[name])
    else:
        save_four_bits(trained, tmp_path, four_bit_checkpoints.FORMATS[name])
    trained.generation_config.save_pretrained(tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    steps = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    load_quantized(steps, tmp_path)
    model = from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert not model.training
    expected, found = steps.state_dict(), model.state_dict()
    assert expected.keys() == found.keys()
    for key, tensor in expected.items():
        assert found[key].dtype == tensor.dtype and torch.equal(found[key], tensor), key
    buffers = dict(steps.named_buffers())  # those that no checkpoint has, too
    assert all(torch.equal(tensor, buffers[key]) for key, tensor in model.named_buffers())
    ids = torch.tensor([[5, 3, 8, 9, 7]])
    made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False)
    assert made.shape == (1, 11)
    assert torch.equal(
        made, steps.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=6)
    )


def test_tied_weights_stay_tied_and_unused_ones_are_logged(tmp_path: Path, caplog: Any) -> None:
    trained = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, tie_word_embeddings=True))
    save_quantized(trained, tmp_path, FORMATS["deepseek"])
    path = tmp_path / "model.safetensors"
    safetensors.save_file(safetensors.load_file(path) | {"k_scale": torch.ones(1)}, path)
    with caplog.at_level(logging.INFO):
        model = from_pretrained(str(tmp_path))
    assert model.lm_head.weight is model.model.embed_tokens.weight and not model.lm_head.weight.is_meta
    assert model.dtype == torch.bfloat16  # the config says nothing
    assert "no use for k_scale" in caplog.text


def test_experts_in_act_order_are_refused(tmp_path: Path) -> None:
    made = four_bit_checkpoints.FORMATS["gptq-actorder"]
    save_four_bits(qwen3_moe(), tmp_path, made)
    model = qwen3_moe().half()
    with pytest.raises(ValueError, match="experts has columns in act-order; experts without it are served"):
        load_quantized(model, safetensors.load_file(tmp_path / "model.safetensors"), made.config)


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("hidden", [96, 256])
def test_experts_of_any_width(hidden: int, name: str, tmp_path: Path) -> None:
    """Blocks that would have gates and ups are cut: rows then have scales of their own."""
    torch.manual_seed(0)
    made = FORMATS[name]
    trained = qwen3_moe(hidden)
    tensors = checkpoint(saved(trained, tmp_path), made, is_quantized)
    model = qwen3_moe(hidden)
    load_quantized(model, tensors, made.config)
    experts = model.model.layers[0].mlp.experts
    assert isinstance(experts, W8A8Experts)
    values = dequantized(tensors, made)
    prefix = "model.layers.0.mlp.experts"
    x = torch.randn(7, 128)
    ids, weights = torch.randint(0, 5, (7, 2)), torch.rand(7, 2)  # 4 is no expert's number
    expected = torch.zeros(7, 128)
    for expert in range(4):
        gate, up, down = (values[f"{prefix}.{expert}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        with activations_in_8_bits([gate, up, down], made):
            linear = torch.nn.functional.linear
            y = linear(torch.nn.functional.silu(linear(x, gate)) * linear(x, up), down)
        expected += y * (weights * (ids == expert)).sum(1, keepdim=True)
    assert (experts(x, ids, weights) - expected).norm() < 3e-3 * expected.norm()


def test_experts_in_float_are_stacked_beside_quantised_layers() -> None:
    made = FORMATS["deepseek"]
    trained, model = qwen3_moe(), qwen3_moe()
    tensors = {}
    for name, tensor in trained.state_dict().items():
        *_, leaf = name.split(".")
        if leaf == "gate_up_proj":
            for expert, (gate, up) in enumerate(t.chunk(2) for t in tensor):
                tensors |= {name.replace(leaf, f"{expert}.gate_proj.weight"): gate}
                tensors |= {name.replace(leaf, f"{expert}.up_proj.weight"): up}
        elif leaf == "down_proj":
            tensors |= {name.replace(leaf, f"{expert}.down_proj.weight"): down for expert, down in enumerate(tensor)}
        else:
            tensors[name] = tensor
    quantized = checkpoint(tensors, made, lambda name: "self_attn" in name and is_quantized(name))
    assert len(load_quantized(model, quantized, made.config).layers) == 8
    for mine, theirs in zip(model.model.layers, trained.model.layers, strict=True):
        assert torch.equal(mine.mlp.experts.gate_up_proj, theirs.mlp.experts.gate_up_proj)
        assert torch.equal(mine.mlp.experts.down_proj, theirs.mlp.experts.down_proj)


def test_experts_of_another_activation_are_refused(tmp_path: Path) -> None:
    made = FORMATS["deepseek"]
    trained, model = qwen3_moe(), qwen3_moe()
    model.model.layers[0].mlp.experts.act_fn = torch.nn.GELU()
    with pytest.raises(TypeError, match=r"Qwen3MoeExperts; experts of silu\(gate\) \* up"):
        load_quantized(model, checkpoint(saved(trained, tmp_path), made, is_quantized), made.config)


def test_experts_with_given_scales_of_activations_are_refused(tmp_path: Path) -> None:
    made = FORMATS["fp8-static"]
    tensors = checkpoint(saved(qwen3_moe(), tmp_path), made, is_quantized)
    with pytest.raises(ValueError, match="experts with dynamic ones"):
        load_quantized(qwen3_moe(), tensors, made.config)


def test_the_pages_snippets_run(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_quantized(llama(), tmp_path, FORMATS["fp8-block"])
    program: dict[str, Any] = {"folder": tmp_path}
    for source in python_snippets(ROOT / "docs" / "checkpoints.md"):
        exec(compile(source, "docs/checkpoints.md", "exec"), program)
    assert len(program["loaded"].layers) == 14 and program["y"].shape == program["z"].shape == (16, 96)
