"""transformers' models: checkpoints in 8 and 4 bits, and mixtures of experts.

    import cleave.transformers
    model = cleave.transformers.from_pretrained("Qwen/Qwen3-8B-FP8", device="cuda")

loads what `cleave.torch.load_quantized` knows, from a folder or the Hub. In models of 16 bits

    model = AutoModelForCausalLM.from_pretrained(name, experts_implementation="cleave")

experts are multiplied by Cleave's grouped products; `model.set_experts_implementation("cleave")` changes a model that
is there. Tokens are sorted by expert, all gates and ups are one product, all downs another: nothing is padded, nothing
waits for the GPU, so a step may be captured in a CUDA graph, of any routing. It has gradients; without them
silu(gate) * up is a part of the first product. Needs transformers 5 or newer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from cleave.torch import load_quantized
from cleave.torch._checkpoints.expert_modules import is_swiglu

_log = logging.getLogger(__name__)
_ops = torch.ops.cleave

__all__ = ["experts_forward", "from_pretrained"]


def from_pretrained(
    name: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    revision: str | None = None,
    model_class: Any = AutoModelForCausalLM,
    use_fast_accum: bool = False,
    **options: Any,
) -> PreTrainedModel:
    """A model of transformers with a checkpoint in 8 or 4 bits, ready for inference.

    Args:
        name: a folder, or a model on the Hub, which is downloaded, of that revision.
        dtype: of activations and of what is not quantised; by default the config's, or bfloat16.
        device: where the model goes once it is loaded; by default it stays on the CPU.
        model_class: whose `from_config` makes the model.
        use_fast_accum: as in `cleave.torch.load_quantized`, which says what formats there are.
        options: of `from_config`, such as attn_implementation.

    The names of tensors that the model has no place for are logged. Errors are those of `load_quantized`.
    """
    folder = Path(name) if Path(name).is_dir() else _downloaded(str(name), revision)
    config = AutoConfig.from_pretrained(folder)
    dtype = dtype or config.dtype or torch.bfloat16
    with _parameters_on_meta():
        model = model_class.from_config(config, dtype=dtype, **options)
    dtypes = {parameter: tensor.dtype for parameter, tensor in model.named_parameters()}
    loaded = load_quantized(model, folder, use_fast_accum=use_fast_accum)
    for layer in loaded.layers:
        model.get_submodule(layer).to(dtype)
    for parameter, tensor in model.named_parameters():
        if parameter in dtypes:  # and has the checkpoint's until now
            tensor.data = tensor.data.to(dtypes[parameter])
    if (folder / "generation_config.json").exists() and model.can_generate():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    if loaded.unused:
        _log.info("%s: no use for %s", name, ", ".join(loaded.unused))
    return model.to(device).eval()


def _downloaded(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=revision, allow_patterns=["*.json", "*.safetensors"]))


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Inside, modules keep the shapes of their parameters alone; buffers, of which checkpoints lack some, as usual."""
    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = on_meta
    try:
        yield
    finally:
        nn.Module.register_parameter = register


def experts_forward(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """What an experts module of transformers returns, [tokens, features], of hidden_states' dtype.

    self: the module, with parameters gate_up_proj (or up_proj) and down_proj [experts, out, in], and biases [experts,
    out] where it has them; transposed ones, too. hidden_states: [tokens, features]. top_k_index, top_k_weights:
    [tokens, top_k]; what is no expert's number, as other ranks' experts have, adds nothing.
    """
    first = "gate_up_proj" if self.has_gate else "up_proj"
    rows, offs, indices = _ops.moe_permute(hidden_states, top_k_index.contiguous(), self.num_experts)
    if self.has_gate and is_swiglu(self) and not torch.is_grad_enabled():
        weight, bias = _operands(self, first)
        rows = _ops.grouped_gemm.full(rows, weight, offs, bias, activation="swiglu")
    else:
        rows = _ops.grouped_gemm.default(rows, *_with_offs(self, first, offs))
        rows = self._apply_gate(rows) if self.has_gate else self.act_fn(rows)
    rows = _ops.grouped_gemm.default(rows, *_with_offs(self, "down_proj", offs))
    if self.has_post_expert_norm:
        rows = self.post_expert_norm(rows)
    return _ops.moe_unpermute(rows, indices, top_k_weights.contiguous())


def _operands(experts: Any, name: str) -> tuple[Tensor, Tensor | None]:
    weight = getattr(experts, name)
    return weight if experts.is_transposed else weight.mT, getattr(
        experts, f"{name}_bias"
    ) if experts.has_bias else None


def _with_offs(experts: Any, name: str, offs: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    weight, bias = _operands(experts, name)
    return weight, offs, bias


ALL_EXPERTS_FUNCTIONS.register("cleave", experts_forward)
