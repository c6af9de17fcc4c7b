"""experts_implementation="cleave" beside transformers' own loop over the experts, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
pytest.importorskip("cleave.torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", minversion="5", reason="transformers 5 or newer is not installed")

from transformers.integrations.moe import use_experts_implementation  # noqa: E402

import cleave.transformers  # noqa: E402

EXPERTS, FEATURES, HIDDEN = 4, 64, 48


class Experts(torch.nn.Module):
    """transformers' form of them, of any kind."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.num_experts = EXPERTS
        self.act_fn = config.act_fn
        wide = 2 * HIDDEN if config.has_gate else HIDDEN
        first = "gate_up_proj" if config.has_gate else "up_proj"
        for name, rows, cols in ((first, wide, FEATURES), ("down_proj", FEATURES, HIDDEN)):
            shape = (EXPERTS, cols, rows) if config.is_transposed else (EXPERTS, rows, cols)
            setattr(self, name, torch.nn.Parameter(torch.randn(shape) / 8))
            if config.has_bias:
                setattr(self, f"{name}_bias", torch.nn.Parameter(torch.randn(EXPERTS, rows)))
        if config.has_post_expert_norm:
            self.post_expert_norm = torch.nn.RMSNorm(FEATURES)

    def forward(self, *_: Any) -> Any:
        raise AssertionError("this is the loop's place")


class Config:
    _experts_implementation = "cleave"

    def __init__(self, act_fn: Any, **kind: bool) -> None:
        kinds = ("has_gate", "has_bias", "is_transposed", "has_post_expert_norm")
        self.act_fn = act_fn
        self.kind = {"has_gate": True} | dict.fromkeys(kinds[1:], False) | kind

    def __getattr__(self, name: str) -> bool:
        return self.kind[name]


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"has_bias": True},
        {"is_transposed": True},
        {"has_gate": False},
        {"has_gate": False, "has_bias": True, "is_transposed": True},
        {"has_post_expert_norm": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("activation", [torch.nn.SiLU(), torch.nn.GELU()], ids=["silu", "gelu"])
@pytest.mark.parametrize("grad", [False, True])
def test_as_transformers_grouped_products(kind: dict[str, bool], activation: Any, grad: bool) -> None:
    torch.manual_seed(0)
    config = Config(activation, **kind)
    decorated = use_experts_implementation(type("Decorated", (Experts,), {}), **config.kind)
    experts = decorated(config)
    x = torch.randn(9, FEATURES, requires_grad=grad)
    ids, weights = torch.randint(0, EXPERTS, (9, 2)), torch.rand(9, 2)
    results = []
    for implementation in ("grouped_mm", "cleave"):
        config._experts_implementation = implementation
        with torch.set_grad_enabled(grad):
            y = experts(x, ids, weights)
        results.append([y, *torch.autograd.grad(y.square().sum(), [x, *experts.parameters()])] if grad else [y])
    for found, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.detach().abs().max()))


def test_experts_of_other_ranks_add_nothing() -> None:
    config = Config(torch.nn.SiLU())
    experts = use_experts_implementation(type("Decorated", (Experts,), {}))(config)
    x, weights = torch.randn(3, FEATURES), torch.ones(3, 2)
    with torch.no_grad():
        y = experts(x, torch.tensor([[0, EXPERTS], [EXPERTS, EXPERTS], [1, 2]]), weights)
        alone = experts(x, torch.tensor([[0], [1], [1]]), weights[:, :1])
    torch.testing.assert_close(y[0], alone[0])
    assert torch.equal(y[1], torch.zeros(FEATURES))


def test_a_model_takes_it_by_name() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}
    experts = {"num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    config = transformers.Qwen3MoeConfig(**sizes, **experts, intermediate_size=64, initializer_range=0.2)
    model = transformers.Qwen3MoeForCausalLM(config).eval()
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    logits = []
    for implementation in ("eager", "cleave"):
        model.set_experts_implementation(implementation)
        with torch.no_grad():
            logits.append(model(ids).logits)
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)


def test_it_compiles_in_one_graph() -> None:
    experts = use_experts_implementation(type("Decorated", (Experts,), {}))(Config(torch.nn.SiLU()))
    x, ids, weights = torch.randn(5, FEATURES), torch.randint(0, EXPERTS, (5, 2)), torch.rand(5, 2)

    def forward(*arguments: Any) -> Any:
        return cleave.transformers.experts_forward(experts, *arguments)

    with torch.no_grad():
        compiled = torch.compile(forward, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x, ids, weights), forward(x, ids, weights))
