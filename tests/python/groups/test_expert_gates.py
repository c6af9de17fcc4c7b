"""What comes between experts' two products: as transformers' own modules have it, and in layers of 8 bits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)

from four_bit_checkpoints import FORMATS as FOUR_BITS  # noqa: E402
from four_bit_checkpoints import checkpoint as in_4_bits  # noqa: E402
from quantized_checkpoints import FORMATS, activations_in_8_bits, dequantized  # noqa: E402
from quantized_checkpoints import checkpoint as in_8_bits  # noqa: E402

from cleave.torch import Gate, W4A8Experts, W4A16Experts, W8A8Experts, load_quantized  # noqa: E402
from cleave.torch._checkpoints.expert_modules import gate_of  # noqa: E402

EXPERTS, FEATURES, HIDDEN = 4, 128, 128
CLAMPED = Gate(alpha=1.702, beta=1.0, limit=1.5)

# A model and its class of experts in transformers: a module's numbers, and its gate.
MODELS = {
    "gpt_oss.GptOssExperts": ({"swiglu_alpha": 1.5, "swiglu_limit": 7.0}, Gate(1.5, 1.0, 7.0)),
    "openai_privacy_filter.OpenAIPrivacyFilterExperts": (
        {"swiglu_alpha": 1.702, "swiglu_limit": 7.0},
        Gate(1.702, 1.0, 7.0),
    ),
    "minimax_m3_vl.MiniMaxM3VLExperts": ({"swiglu_alpha": 1.702, "swiglu_limit": 7.0}, Gate(1.702, 1.0, 7.0)),
    "deepseek_v4.DeepseekV4Experts": ({"swiglu_limit": 10.0, "hidden_act": "silu"}, Gate(limit=10.0)),
    "qwen3_moe.Qwen3MoeExperts": ({"hidden_act": "silu"}, Gate()),
    "step3p7.Step3p7Experts": ({"hidden_act": "silu"}, Gate()),  # whose limit is infinite
    "beam.BeamExperts": ({"hidden_act": "silu"}, Gate()),
    "qwen2_moe.Qwen2MoeExperts": ({"hidden_act": "gelu"}, None),
}


@pytest.mark.parametrize("name", MODELS)
def test_modules_of_transformers(name: str) -> None:
    folder, kind = name.split(".")
    modeling = pytest.importorskip(f"transformers.models.{folder}.modeling_{folder}", reason=f"no {folder} yet")
    sizes = {"hidden_size": 8, "intermediate_size": 4, "moe_intermediate_size": 4}
    counts = dict.fromkeys(("num_experts", "num_local_experts"), 2)
    numbers, gate = MODELS[name]
    experts = getattr(modeling, kind)(SimpleNamespace(**sizes, **counts, **numbers))
    assert gate_of(experts) == gate


def test_a_limit_after_the_activation_is_another_gate() -> None:
    modeling = pytest.importorskip("transformers.models.step3p7.modeling_step3p7", reason="no step3p7 yet")
    sizes = {"hidden_size": 8, "moe_intermediate_size": 4, "num_local_experts": 2, "hidden_act": "silu"}
    assert gate_of(modeling.Step3p7Experts(SimpleNamespace(**sizes), swiglu_limit=7.0)) is None


class Clamped(torch.nn.Module):
    """Experts as transformers keeps them, with a gate of their own."""

    alpha, limit = CLAMPED.alpha, CLAMPED.limit

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        for name, shape in (("gate_up_proj", (2 * HIDDEN, FEATURES)), ("down_proj", (FEATURES, HIDDEN))):
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(EXPERTS, *shape, dtype=dtype)))

    def _apply_gate(self, gate_up: Any) -> Any:
        gate, up = gate_up.chunk(2, -1)
        gate = gate.clamp(max=self.limit)
        return (up.clamp(-self.limit, self.limit) + 1) * gate * torch.sigmoid(self.alpha * gate)


def one_by_one() -> dict[str, Any]:
    torch.manual_seed(0)
    shapes = {"gate_proj": (HIDDEN, FEATURES), "up_proj": (HIDDEN, FEATURES), "down_proj": (FEATURES, HIDDEN)}
    layers = [(f"experts.{expert}.{part}", shape) for expert in range(EXPERTS) for part, shape in shapes.items()]
    return {f"{layer}.weight": torch.randn(shape) / 6 for layer, shape in layers}


def expected(values: dict[str, Any], x: Any, ids: Any, weights: Any) -> Any:
    y = torch.zeros_like(x)
    linear = torch.nn.functional.linear
    for expert in range(EXPERTS):
        gate, up, down = (values[f"experts.{expert}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        hidden = Clamped._apply_gate(Clamped, torch.cat((linear(x, gate), linear(x, up)), 1))
        y += linear(hidden, down) * (weights * (ids == expert)).sum(1, keepdim=True)
    return y


@pytest.mark.parametrize("name", ["int8-channel-token", "deepseek"])
def test_experts_in_8_bits(name: str) -> None:
    made = FORMATS[name]
    files = in_8_bits(one_by_one(), made, lambda _: True)
    model = torch.nn.ModuleDict({"experts": Clamped(torch.float32)})
    load_quantized(model, files, made.config)
    experts = model["experts"]
    assert isinstance(experts, W8A8Experts) and experts.gate == CLAMPED
    x, ids, weights = torch.randn(9, FEATURES), torch.randint(0, EXPERTS, (9, 2)), torch.rand(9, 2)
    values = dequantized(files, made)
    with activations_in_8_bits(list(values.values()), made):
        reference = expected(values, x, ids, weights)
    assert (experts(x, ids, weights) - reference).norm() < 3e-3 * reference.norm()
    compiled = torch.compile(experts, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, ids, weights), experts(x, ids, weights))


def test_experts_in_4_bits_one_by_one() -> None:
    made = FOUR_BITS["awq"]
    files, values = in_4_bits(one_by_one(), made, lambda _: True)
    model = torch.nn.ModuleDict({"experts": Clamped(torch.float16)})
    load_quantized(model, files, made.config)
    experts = model["experts"]
    assert isinstance(experts, W4A16Experts) and experts.gate == CLAMPED
    x, ids, weights = torch.randn(9, FEATURES).half(), torch.randint(0, EXPERTS, (9, 2)), torch.rand(9, 2)
    reference = expected(values, x.float(), ids, weights)
    assert (experts(x, ids, weights) - reference).norm() < 3e-3 * reference.norm()


@pytest.mark.parametrize("kind", ["int", "float"])
def test_experts_in_4_bits_beside_activations_of_8(kind: str) -> None:
    made = FOUR_BITS["packed-zeros"]
    ((name, group),) = made.config["config_groups"].items()
    eight = {"num_bits": 8, "type": kind, "strategy": "token", "dynamic": True, "symmetric": True}
    config = made.config | {"config_groups": {name: group | {"input_activations": eight}}}
    files, values = in_4_bits(one_by_one(), made, lambda _: True)
    model = torch.nn.ModuleDict({"experts": Clamped(torch.bfloat16)})
    assert load_quantized(model, files, config).layers == ["experts"]
    experts = model["experts"]
    assert isinstance(experts, W4A8Experts) and experts.gate == CLAMPED
    x, ids, weights = torch.randn(9, FEATURES).bfloat16(), torch.randint(0, EXPERTS, (9, 2)), torch.rand(9, 2)
    reference = expected(values, x.float(), ids, weights)
    assert (experts(x, ids, weights) - reference).norm() < 0.06 * reference.norm()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"has_bias": True}, "Clamped, but the checkpoint has experts one by one, which are served without biases"),
        ({"is_transposed": True}, r"of weights \[experts, outputs, inputs\]"),
        ({"has_post_expert_norm": True}, "Clamped, with a norm after each expert; experts without one"),
        ({"_apply_gate": torch.nn.functional.glu}, r"Clamped; experts of silu\(gate\) \* up, or of another"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_what_is_not_served_is_said(change: dict[str, Any], message: str) -> None:
    made = FORMATS["int8-channel-token"]
    experts = Clamped(torch.float32)
    for name, value in change.items():
        setattr(experts, name, value)
    model = torch.nn.ModuleDict({"experts": experts})
    with pytest.raises(TypeError, match=message):
        load_quantized(model, in_8_bits(one_by_one(), made, lambda _: True), made.config)
    assert model["experts"] is experts
