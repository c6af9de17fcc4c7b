"""cleave.torch.fuse on CPU tensors: on a decoder of Llama's kind, on others, and on transformers' classes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from decoder import HEADS, HIDDEN, LAYERS, MLP, WIDTH, Attention, Layer, Model  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from cleave.torch import (  # noqa: E402
    GatedMLP,
    NormProjections,
    Projection,
    RMSNormQuantize,
    W8A8Linear,
    W8A8SwiGLU,
    fuse,
    replace_linears,
)

ops = torch.ops.cleave
dtypes = pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])


@pytest.fixture(autouse=True)
def seed() -> Any:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def quantised(model: nn.Module, dtype: str = "int8", **options: Any) -> nn.Module:
    replace_linears(model, dtype, skip=lambda name, _: name == "head", **options)
    return model.bfloat16().eval()


def draw(*batch: int) -> Tensor:
    return torch.randn(*(batch or (2, 7)), WIDTH).bfloat16()


def relative_error(y: Tensor, expected: Tensor) -> float:
    return float((y.double() - expected.double()).norm() / expected.double().norm())


def by_hand(model: Model, x: Tensor, dtype: torch.dtype, granularity: str, mask: Tensor) -> Tensor:
    """The chain of operators that a fused model is, layer by layer. granularity: of activations."""
    shape = x.shape
    stream, added = x.flatten(0, 1), None

    def product(q: Tensor, scale: Tensor, *linears: W8A8Linear) -> Tensor:
        """As one product; two are gates and ups."""
        weight, w_scale = (torch.cat([getattr(each, n) for each in linears]) for n in ("weight", "weight_scale"))
        options = {"activation": "swiglu" if len(linears) == 2 else "none", "out_dtype": torch.bfloat16}
        return ops.scaled_gemm.full(q, weight.t(), scale, w_scale.t(), **options)

    def norm(of: nn.RMSNorm, stream: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if added is None:
            return *ops.quantize_normed(stream, of.weight, dtype, "rms_norm", of.eps, granularity), stream
        return ops.quantize_normed_sum(added, stream, of.weight, dtype, "rms_norm", of.eps, granularity)

    for layer in model.layers:
        attention, mlp = layer.attention, layer.mlp
        q8, scale, stream = norm(layer.first_norm, stream, added)
        q, k, v = (product(q8, scale, each) for each in (attention.q, attention.k, attention.v))
        q, k, v = (each.view(*shape[:2], HEADS, -1).transpose(1, 2) for each in (q, k, v))
        q, k = q * model.rotation, k * model.rotation
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(-1, WIDTH)
        added = product(*ops.quantize(mixed, dtype, granularity), attention.o)
        q8, scale, stream = norm(layer.second_norm, stream, added)
        hidden = product(q8, scale, mlp.gate, mlp.up)
        added = product(*ops.quantize(hidden, dtype, granularity), mlp.down)
    return model.head((stream + added).view(shape))


# --- what it does ---


@dtypes
@pytest.mark.parametrize(("granularity", "across_layers"), [("row", True), ("row", False), ("block_128x128", True)])
def test_a_decoder_is_the_chain_of_its_operators(dtype: str, granularity: str, across_layers: bool) -> None:
    """Bit by bit; and as close to the model of floats as before."""
    model = Model(*(Layer(MLP(hidden=128)) for _ in range(LAYERS)))
    reference = copy.deepcopy(model).double()
    quantised(model, dtype, granularity=granularity)
    x, mask = draw(), torch.ones(7, 7, dtype=torch.bool).tril_()
    of_tokens = "row" if granularity == "row" else "block_1x128"
    before, expected = model(x, mask), by_hand(model, x, getattr(torch, dtype), of_tokens, mask)
    report = fuse(model, across_layers=across_layers)
    assert [name for name, _ in report.left] == [] and len(report.done) == 3 * LAYERS
    after = model(x, mask)
    assert torch.equal(after, expected)
    exact = reference(x.double(), mask)
    assert relative_error(after, exact) < 1.1 * relative_error(before, exact) < 0.1


def test_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    print(fuse(quantised(Model())))
    of_attention = "attention.q, attention.k, attention.v, which are one product"
    assert capsys.readouterr().out.splitlines() == [
        "layers.*.mlp (3): gate and up: one product, with SwiGLU in it",
        f"layers.*.first_norm (3): adds the residual and quantises, once for {of_attention}",
        "layers.*.second_norm (3): adds the residual and quantises, once for mlp.gate_up",
    ]


@dtypes
def test_undo(dtype: str) -> None:
    model = quantised(Model(), dtype)
    before, x = copy.deepcopy(model), draw()
    modules = dict(model.named_modules())
    report = fuse(model)
    layer = model.layers[1]
    assert isinstance(layer, Layer) and type(layer) is not Layer and type(layer).__name__ == "FusedLayer"
    assert isinstance(layer.mlp, GatedMLP) and isinstance(layer.first_norm, NormProjections)
    assert isinstance(layer.attention.k, Projection) and isinstance(layer.second_norm, RMSNormQuantize)
    report.undo()
    assert dict(model.named_modules()) == modules and str(report) == "nothing fused"
    assert {type(layer) for layer in model.layers} == {Layer} and vars(layer).keys() == vars(before.layers[1]).keys()
    assert torch.equal(model(x), before(x))
    assert model.state_dict().keys() == before.state_dict().keys()
    for one, other in zip(model.state_dict().values(), before.state_dict().values(), strict=True):
        assert one.dtype == other.dtype and torch.equal(one.float(), other.float())
    report.undo()  # has nothing left to do
    assert fuse(model).done


def test_undo_has_the_weights_of_then() -> None:
    model, x = quantised(Model()), draw()
    report = fuse(model)
    for module in model.modules():
        if isinstance(module, W8A8Linear):
            module.weight_scale.mul_(0.5)
    fused = model(x)
    report.undo()
    assert relative_error(model(x), fused) < 0.05


def test_compiles_as_one_graph() -> None:
    model = quantised(Model())
    fuse(model)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for x in (draw(), draw(3, 5)):
        assert torch.equal(compiled(x), model(x))


def test_memory_is_that_of_before() -> None:
    """The parts of what became one product are parts of its memory, there again when it is undone."""
    model = quantised(Model())
    linears = {name: each for name, each in model.named_modules() if isinstance(each, W8A8Linear)}
    report = fuse(model)
    whole = {each.weight.untyped_storage().data_ptr() for each in model.modules() if isinstance(each, W8A8Linear)}
    assert {each.weight.untyped_storage().data_ptr() for each in linears.values()} == whole
    report.undo()
    assert {name: each for name, each in model.named_modules() if isinstance(each, W8A8Linear)} == linears


def test_what_else_reads_the_norm_is_told() -> None:
    class Late(Attention):
        """Reads its input again where the trace has ended: there, a value decides."""

        def forward(self, x: Tensor, rotation: Tensor, mask: Tensor | None = None) -> Tensor:
            y = super().forward(x, rotation, mask)
            return y + x.mean() if y.sum() > -1e9 else y

    layer = Layer()
    layer.attention = Late()
    model = quantised(Model(layer))
    fuse(model)
    with pytest.raises(AttributeError, match=r"asked for its mean: something else than linear layers reads the norm"):
        model(draw())


def test_a_copy_is_fused_too() -> None:
    model, x = quantised(Model()), draw()
    fuse(model)
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    again = copy.deepcopy(model)
    again.load_state_dict(model.state_dict())
    assert fuse(model).done == []  # twice is once


def test_layers_hand_sums_on() -> None:
    model, x = quantised(Model()), draw()
    fuse(model)
    between = model.layers[0](x, model.rotation)
    with pytest.raises(AttributeError, match=r"asked for its float: .* use cleave\.torch\.fuse\(model, across_layers="):
        between.float()
    assert isinstance(model.layers[2](between, rotation=model.rotation), Tensor)  # the last one's
    assert torch.equal(model.layers[2](x=between, rotation=model.rotation), model.layers[2](between, model.rotation))


# --- norms ---


class ZeroCentered(nn.Module):
    """As Gemma's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.randn(WIDTH) * 0.3), 1e-6

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (normal * (1.0 + self.weight.float())).to(x.dtype)


class OfTransformers(ZeroCentered):
    def __init__(self) -> None:
        super().__init__()
        self.variance_epsilon = self.eps
        del self.eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * normal.to(x.dtype)


class NoNorm(ZeroCentered):
    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


class OfAnotherEps(OfTransformers):
    def __init__(self) -> None:
        super().__init__()
        self.variance_epsilon, self.eps = 1e-2, 1e-6

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)


@pytest.mark.parametrize(("kind", "zero_centered"), [(ZeroCentered, True), (OfTransformers, False)])
def test_norms_are_known_by_what_they_do(kind: type[nn.Module], zero_centered: bool) -> None:
    layer = Layer()
    layer.first_norm, layer.second_norm = kind(), kind()
    model, x = quantised(Model(layer)), draw()
    before = model(x)
    fuse(model)
    assert layer.second_norm.zero_centered == layer.first_norm.norm.zero_centered == zero_centered
    assert relative_error(model(x), before) < 0.02


@pytest.mark.parametrize("kind", [NoNorm, OfAnotherEps])
def test_what_is_no_rms_norm_stays(kind: type[nn.Module]) -> None:
    layer = Layer()
    layer.first_norm = kind()
    report = fuse(quantised(Model(layer)))
    assert report.left == [("layers.0.first_norm", f"{kind.__name__} is no RMS norm with a weight")]
    assert type(layer.first_norm) is kind and isinstance(layer.second_norm, RMSNormQuantize)


def test_smoothed_layers_share_what_is_divided() -> None:
    names = ("q", "k", "v")
    smooth = 2.0 ** torch.randint(-2, 3, (WIDTH,))
    of_layer = {f"layers.0.attention.{name}": smooth for name in names}
    of_mlp = {f"layers.0.mlp.{name}": 1 / smooth for name in ("gate", "up")}
    model, x = Model(Layer()), draw()
    quantised(model, smooth=of_layer | of_mlp)
    before = model(x)
    report = fuse(model)
    assert not report.left and relative_error(model(x), before) < 0.02
    model = Model(Layer())
    report = fuse(quantised(model, smooth=dict(list(of_layer.items())[:2])))
    assert report.left == [("layers.0.first_norm", "what reads it differs in dtype, granularity or smooth")]


# --- what is left alone, and why ---


def test_static_scales_that_all_share() -> None:
    of_attention = {f"layers.0.attention.{name}": 0.05 for name in "qkv"}
    model, x = Model(Layer()), draw()
    quantised(model, activation=of_attention | {"layers.0.mlp.gate": 0.04, "layers.0.mlp.up": 0.04})
    before = model(x)
    report = fuse(model)
    assert not report.left and model.layers[0].second_norm.activation_scale == pytest.approx(0.04)
    assert relative_error(model(x), before) < 0.02
    report.undo()
    assert torch.equal(model(x), before)
    model = quantised(Model(Layer()), activation=dict(list(of_attention.items())[:2]))
    assert fuse(model).left == [("layers.0.first_norm", "what reads it has static scales that differ")]


def test_blocks_of_gates_and_ups_stay_apart() -> None:
    report = fuse(quantised(Model(Layer()), granularity="block_128x128"))
    why = "their outputs are no multiples of 128, so that a block would be of two of them"
    assert report.left == [("layers.0.mlp", why)] and len(report.done) == 2


def test_layers_that_are_wide() -> None:
    model = Model(Layer())
    replace_linears(model, skip=("head", "*.attention.k", "*.up"))
    report = fuse(model)
    assert not report.done and report.left == [
        ("layers.0.mlp", "up: no layer in 8 or 4 bits"),
        ("layers.0.first_norm", "k: no W8A8Linear"),
        ("layers.0.second_norm", "up: no W8A8Linear"),
    ]


class Routed(MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x)) * x.mean(-1, keepdim=True)


class Gelu(MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.gate(x)) * self.up(x))


class UpFirst(MLP):
    def __init__(self) -> None:
        super().__init__(bias=True)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x) * self.act(self.gate(x)))


def test_a_norm_that_others_read_stays() -> None:
    layer = Layer(Routed())
    report = fuse(quantised(Model(layer)))
    assert report.left == [("layers.0.second_norm", "what reads it is not linear layers alone")]
    assert type(layer.mlp) is Routed


def test_other_gates_are_one_product_without_the_gate() -> None:
    layer = Layer(Gelu())
    model, x = quantised(Model(layer)), draw()
    before = model(x)
    assert not fuse(model).left and type(layer.mlp) is Gelu and layer.second_norm.sizes == (HIDDEN, HIDDEN)
    assert relative_error(model(x), before) < 0.02


def test_gates_in_any_order_with_biases() -> None:
    model, x = quantised(nn.Sequential(UpFirst(), UpFirst()), "float8_e4m3fn"), draw()
    expected = model(x)
    report = fuse(model, skip="1")
    assert report.done == [("0", "gate and up: one product, with SwiGLU in it")] and type(model[1]) is UpFirst
    assert relative_error(model(x), expected) < 0.03


class PostNorm(Layer):
    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.first_norm(self.attention(x, rotation, mask=mask))
        return x + self.second_norm(self.mlp(x))


class Parallel(Layer):
    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor | None = None) -> Tensor:
        return x + self.attention(self.first_norm(x), rotation, mask=mask) + self.mlp(self.second_norm(x))


class Scaled(Layer):
    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + 0.5 * self.attention(self.first_norm(x), rotation, mask=mask)
        return x + self.mlp(self.second_norm(x))


@pytest.mark.parametrize("kind", [PostNorm, Parallel, Scaled])
def test_layers_of_another_kind_stay(kind: type[Layer]) -> None:
    model, x = quantised(Model(kind())), draw()
    before = model(x)
    report = fuse(model)
    assert [name for name, _ in report.done] == ["layers.0.mlp"] and type(model.layers[0]) is kind
    report.undo()
    assert torch.equal(model(x), before)


class KeywordLayer(Layer):
    """As transformers' are."""

    def forward(self, hidden_states: Tensor, rotation: Tensor | None = None, **kwargs: Any) -> Tensor:
        residual = hidden_states
        hidden_states, _ = self.attend(hidden_states=self.first_norm(hidden_states), rotation=rotation, **kwargs)
        hidden_states = residual + hidden_states
        return hidden_states + self.mlp(self.second_norm(hidden_states))


class Attend(Attention):
    def forward(self, hidden_states: Tensor, rotation: Tensor, **kwargs: Any) -> tuple[Tensor, None]:
        self.given = set(kwargs)
        return super().forward(hidden_states, rotation, kwargs.get("mask")), None


def test_every_keyword_reaches_attention() -> None:
    layer = KeywordLayer()
    layer.attend = Attend()
    del layer.attention
    model, x = quantised(nn.Sequential(layer)), draw()
    options = {"rotation": torch.ones(WIDTH // HEADS).bfloat16(), "mask": None, "other": 1}
    before = layer(x, **options)
    report = fuse(model)
    assert not report.left and relative_error(layer(x, **options), before) < 0.02
    assert layer.attend.given == {"mask", "other"}


def test_wrong_calls() -> None:
    with pytest.raises(ValueError, match=r"model has no layers in 8 or 4 bits .*; call cleave\.torch\.replace_lin"):
        fuse(Model())
    with pytest.raises(ValueError, match=r"skip has 'layers\.9\.mlp', which no layer that would"):
        fuse(quantised(Model()), skip="layers.9.mlp")
    report = fuse(quantised(Model()), skip="layers.*")
    assert not report.done and str(report) == "nothing fused"


# --- W8A8SwiGLU ---


@dtypes
def test_both_halves_are_layers_of_their_own(dtype: str) -> None:
    """The sums are those of the layers; rounded after the gate instead of before."""
    linears = [W8A8Linear.from_linear(nn.Linear(WIDTH, HIDDEN), dtype) for _ in range(2)]
    x = draw()
    gate, up = (linear(x.float()) for linear in linears)
    parts = (linears[0].weight, linears[1].weight), (linears[0].weight_scale, linears[1].weight_scale)
    bias = torch.cat([linear.bias for linear in linears])
    layer = W8A8SwiGLU.from_quantized(*map(torch.cat, parts), bias)
    y = layer(x.float())
    torch.testing.assert_close(y, functional.silu(gate) * up, rtol=1e-5, atol=1e-6)
    assert torch.equal(layer(ops.quantize(x.flatten(0, 1), layer.weight.dtype)), layer(x.flatten(0, 1)))
    empty = W8A8SwiGLU(WIDTH, 2 * HIDDEN, dtype=dtype)
    empty.load_state_dict(layer.state_dict())
    assert torch.equal(empty(x), layer(x)) and empty(x).shape == (2, 7, HIDDEN)


# --- transformers ---

SIZES = {
    "vocab_size": 99,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


@pytest.mark.parametrize("kind", ["Llama", "Qwen3", "Mixtral"])
def test_classes_of_transformers(kind: str) -> None:
    transformers = pytest.importorskip("transformers", minversion="4.56")
    config = getattr(transformers, f"{kind}Config")(**SIZES)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    tokens = torch.randint(0, 99, (2, 17))
    exact = model(tokens).logits
    model = model.bfloat16()
    replace_linears(model, "int8", skip="lm_head")
    before = model(tokens).logits
    report = fuse(model)
    projections = ", ".join(f"self_attn.{each}_proj" for each in "qkv")
    text = f"adds the residual and quantises, once for {projections}, which are one product"
    assert ("model.layers.2.input_layernorm", text) in report.done
    left = [name for name, _ in report.left]
    if kind == "Mixtral":  # whose router and experts stay
        assert left == [f"model.layers.{i}.post_attention_layernorm" for i in range(3)]
    else:
        assert left == [] and isinstance(model.model.layers[0].mlp, GatedMLP)
    after = model(tokens).logits
    if kind != "Mixtral":  # whose router may choose otherwise
        assert relative_error(after, exact) < 1.2 * relative_error(before, exact)
    assert relative_error(after, before) < 0.1
    assert type(model.model.layers[0]).__mro__[2].__name__ == f"{kind}DecoderLayer"
    generated = model.generate(tokens, max_new_tokens=4, do_sample=False, attention_mask=torch.ones_like(tokens))
    assert generated.shape == (2, 21)
    report.undo()
    assert torch.equal(model(tokens).logits, before)
    fuse(model, across_layers=False)
    hidden = model(tokens, output_hidden_states=True).hidden_states
    assert len(hidden) == 4 and all(isinstance(each, Tensor) for each in hidden)
