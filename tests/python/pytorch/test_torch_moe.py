"""cleave.torch.MoE on CPU tensors, beside a loop over its experts; examples/moe/train.py."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import doc_snippets  # noqa: E402

import cleave  # noqa: E402
from cleave.torch import MoE  # noqa: E402
from cleave.torch.dispatch import Arrived, OneRank  # noqa: E402
from cleave.torch.router import Router  # noqa: E402

EXPERTS, TOP_K, FEATURES, HIDDEN = 6, 2, 16, 24
ROUTERS: dict[str, dict[str, object]] = {
    "softmax before": {"renormalize": False},
    "DeepSeek-V2": {"n_group": 3, "topk_group": 2, "group_score": "max", "renormalize": False,
                    "routed_scaling_factor": 16.0},
    "DeepSeek-V3": {"scoring_func": "sigmoid", "correction_bias": True, "n_group": 3, "topk_group": 2,
                    "routed_scaling_factor": 2.5},
    "sigmoid": {"scoring_func": "sigmoid"},
    "sigmoid as it is": {"scoring_func": "sigmoid", "renormalize": False},
    "corrected softmax": {"correction_bias": True},
}  # fmt: skip
routers = pytest.mark.parametrize("kind", ROUTERS)
PATH = Path(__file__).parents[3] / "examples" / "moe" / "train.py"


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def layer(**options: object) -> MoE:
    return MoE(EXPERTS, TOP_K, FEATURES, HIDDEN, **options)


def choose(router: Router, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and experts, of float64; each step by an operator of torch's."""
    options = {"scoring_func": "softmax", "n_group": 1, "topk_group": None, "group_score": "top2_sum"}
    options |= {"renormalize": True, "routed_scaling_factor": 1.0} | router.options
    scores = logits.softmax(-1) if options["scoring_func"] == "softmax" else logits.sigmoid()
    bias = router.e_score_correction_bias
    ranked = scores.detach() if bias is None else scores.detach() + bias.double()
    groups = ranked.view(len(ranked), options["n_group"], -1)
    best = groups.amax(-1) if options["group_score"] == "max" else groups.topk(2).values.sum(-1)
    kept = torch.zeros_like(best, dtype=torch.bool)
    kept.scatter_(1, best.topk(options["topk_group"] or options["n_group"]).indices, True)
    experts = groups.masked_fill(~kept[..., None], -torch.inf).flatten(1).topk(router.top_k).indices
    weights = scores.gather(1, experts)
    if options["renormalize"]:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * options["routed_scaling_factor"], experts


def loop(moe: MoE, x: torch.Tensor) -> torch.Tensor:
    """float64, expert by expert, differentiable in the parameters."""
    tokens = x.double().reshape(-1, FEATURES)
    weights, experts = choose(moe.router, tokens @ moe.router.weight.double().t())
    y = torch.zeros_like(tokens)
    for expert in range(EXPERTS):
        token, choice = (experts == expert).nonzero(as_tuple=True)
        gate, up = (tokens[token] @ moe.gate_up.weight[expert].double().t()).chunk(2, -1)
        rows = torch.nn.functional.silu(gate) * up @ moe.down.weight[expert].double().t()
        y = y.index_add(0, token, weights[token, choice, None] * rows)
    return y.view(x.shape)


@pytest.mark.parametrize("shape", [(40, FEATURES), (2, 3, 5, FEATURES), (1, FEATURES)])
def test_is_a_loop_over_experts(shape: tuple[int, ...]) -> None:
    moe, x = layer(), torch.randn(shape, requires_grad=True)
    inputs = [x, *moe.parameters()]
    y, expected = moe(x), loop(moe, x)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-6)
    weights = torch.randn(shape)
    found = torch.autograd.grad((y * weights).sum(), inputs)
    wanted = torch.autograd.grad((expected * weights).sum(), inputs)
    for dx, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(dx, exact, rtol=1e-4, atol=1e-6)
    with torch.no_grad():  # where SwiGLU is a part of the first product
        torch.testing.assert_close(moe(x), y, rtol=1e-5, atol=1e-6)


def test_experts_without_tokens_have_gradients_of_zero() -> None:
    moe = layer()
    with torch.no_grad():
        moe.router.weight[:2] = 1.0
        moe.router.weight[2:] = -1.0
    moe(torch.rand(9, FEATURES)).sum().backward()
    for weight in (moe.gate_up.weight, moe.down.weight):
        assert (weight.grad[2:] == 0).all() and (weight.grad[:2] != 0).any()


def test_no_tokens() -> None:
    moe = layer()
    y = moe(torch.empty(0, FEATURES))
    assert y.shape == (0, FEATURES)
    y.sum().backward()
    assert (moe.down.weight.grad == 0).all()


def test_bfloat16() -> None:
    moe, x = layer(dtype=torch.bfloat16), torch.randn(40, FEATURES).bfloat16()
    y = moe(x)
    assert y.dtype == torch.bfloat16
    difference = y.double() - loop(moe, x)
    assert difference.norm() < 0.02 * y.double().norm()


def test_main_grad() -> None:
    plain, fused = layer(), layer(accumulate_main_grad=True)
    fused.load_state_dict(plain.state_dict())
    for linear in (fused.gate_up, fused.down):
        linear.weight.main_grad = torch.zeros_like(linear.weight)
    x = torch.randn(40, FEATURES)
    plain(x).square().sum().backward()
    fused(x).square().sum().backward()
    for one, other in ((plain.gate_up, fused.gate_up), (plain.down, fused.down)):
        torch.testing.assert_close(other.weight.main_grad, one.weight.grad, rtol=1e-5, atol=1e-6)
        assert other.weight.grad is None
    torch.testing.assert_close(fused.router.weight.grad, plain.router.weight.grad)


def test_compiled_training() -> None:
    moe = layer()
    compiled = torch.compile(moe, fullgraph=True, dynamic=True)
    for tokens in (40, 24):
        x = torch.randn(tokens, FEATURES)
        results = [torch.autograd.grad(f(x).square().sum(), list(moe.parameters())) for f in (moe, compiled)]
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_wrong_top_k() -> None:
    with pytest.raises(ValueError, match="top_k is 7; it must be from 1 to num_experts, 6"):
        MoE(EXPERTS, 7, FEATURES, HIDDEN)
    assert "num_experts=6, top_k=2" in repr(layer())


# --- routers ---


def routed(kind: str, **options: object) -> MoE:
    """With a bias that changes what is chosen."""
    moe = layer(**ROUTERS[kind], **options)
    if moe.router.e_score_correction_bias is not None:
        moe.router.e_score_correction_bias.copy_(torch.linspace(-0.2, 0.2, EXPERTS))
    return moe


@routers
@pytest.mark.parametrize("compiled", [False, True])
def test_routers_are_a_loop_over_experts(kind: str, compiled: bool) -> None:
    torch.compiler.reset()
    moe, x = routed(kind), torch.randn(40, FEATURES, requires_grad=True)
    call = torch.compile(moe, fullgraph=True, backend="aot_eager") if compiled else moe
    inputs = [x, *moe.parameters()]
    y, expected, weights = call(x), loop(moe, x), torch.randn(40, FEATURES)
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-5)
    found = torch.autograd.grad((y * weights).sum(), inputs)
    wanted = torch.autograd.grad((expected * weights).sum(), inputs)
    for dx, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(dx, exact, rtol=1e-3, atol=1e-5)


def test_a_bias_changes_what_is_chosen_but_no_weight() -> None:
    moe, x = layer(**ROUTERS["DeepSeek-V3"]), torch.randn(40, FEATURES)
    _, before = moe.route(x)
    moe.router.e_score_correction_bias.copy_(torch.linspace(-1, 1, EXPERTS))
    weights, after = moe.route(x)
    assert not torch.equal(before, after)
    torch.testing.assert_close(weights.sum(1), torch.full((40,), 2.5))
    assert not moe.router.e_score_correction_bias.requires_grad


def test_state_dicts_have_the_bias_alone_in_addition() -> None:
    names = ["router.weight", "gate_up.weight", "down.weight"]
    assert list(layer().state_dict()) == list(routed("DeepSeek-V2").state_dict()) == names
    one, other = routed("DeepSeek-V3"), layer(**ROUTERS["DeepSeek-V3"])
    assert sorted(one.state_dict()) == sorted([*names, "router.e_score_correction_bias"])
    other.load_state_dict(one.state_dict())
    x = torch.randn(20, FEATURES)
    assert torch.equal(one(x), other(x))
    routed("sigmoid").load_state_dict(layer().state_dict())


def test_the_bias_stays_float32() -> None:
    moe = routed("DeepSeek-V3")
    bias = moe.router.e_score_correction_bias.clone()
    moe(torch.randn(4, FEATURES)).sum().backward()  # gradients are cast, too
    moe.bfloat16()
    assert torch.equal(moe.router.e_score_correction_bias, bias)
    assert moe.router.weight.dtype == moe.router.weight.grad.dtype == torch.bfloat16
    assert moe(torch.randn(4, FEATURES).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("tokens", [1, 63, 64, 100])
def test_a_router_in_float32_beside_16_bits(tokens: int, compiled: bool) -> None:
    torch.compiler.reset()
    moe = MoE(32, TOP_K, FEATURES, HIDDEN, router_dtype=torch.float32, dtype=torch.bfloat16)
    assert moe.router.weight.dtype == torch.float32 and moe.down.weight.dtype == torch.bfloat16
    x, grad = torch.randn(tokens, FEATURES).bfloat16().requires_grad_(), torch.randn(tokens, 32)
    router = torch.compile(moe.router, fullgraph=True, backend="aot_eager") if compiled else moe.router
    logits = router(x)
    exact = x.double() @ moe.router.weight.double().t()
    torch.testing.assert_close(logits.double(), exact, rtol=1e-5, atol=1e-6)
    of_x, of_weight = torch.autograd.grad(logits, (x, moe.router.weight), grad)
    wanted = torch.autograd.grad(exact, (x, moe.router.weight), grad.double())
    torch.testing.assert_close(of_x, wanted[0], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(of_weight, wanted[1], rtol=1e-4, atol=1e-5)
    assert moe(x).dtype == torch.bfloat16


def operators(call: Callable[[], object]) -> set[str]:
    with torch.profiler.profile() as profiled:
        call()
    return {event.name.removeprefix("cleave::") for event in profiled.events() if event.name.startswith("cleave::")}


def test_which_operator_multiplies() -> None:
    few = Router(FEATURES, 8, TOP_K)
    many = Router(FEATURES, 32, TOP_K)

    def multiplies(router: Router, tokens: int, dtype: torch.dtype = torch.bfloat16) -> str:
        (name,) = operators(lambda: router(torch.randn(tokens, FEATURES, dtype=dtype)))
        return name

    assert {multiplies(many, tokens) for tokens in (1, 63)} == {"moe_router_logits"}
    assert multiplies(many, 64) == multiplies(few, 513) == multiplies(few, 1, torch.float32) == "gemm"
    assert multiplies(few, 512) == "moe_router_logits"
    with cleave.batch_invariant():
        assert multiplies(many, 64) == "moe_router_logits"
    with torch.autocast("cpu"):
        assert multiplies(many, 1) == "gemm"


def test_experts_rows_are_copied_whatever_their_number_where_that_is_promised() -> None:
    moe, x = MoE(8, TOP_K, FEATURES, HIDDEN), torch.randn(5, FEATURES)
    with torch.no_grad():
        assert "moe_permute" not in operators(lambda: moe(x))
        with cleave.batch_invariant():
            assert "moe_permute" in operators(lambda: moe(x))
            cleave.prepare(moe, tokens=(1, 40))
            whole = moe(torch.cat([x, torch.randn(2000, FEATURES)]))
            assert torch.equal(moe(x), whole[:5])


def test_many_experts() -> None:
    """Beyond what moe_route takes torch's operators choose, as they always did."""
    moe, x = MoE(600, TOP_K, FEATURES, HIDDEN), torch.randn(20, FEATURES)
    weights, experts = moe.route(x)
    best, chosen = moe.router(x).topk(TOP_K)
    assert torch.equal(experts, chosen) and torch.equal(weights, best.softmax(-1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_group": 4}, "n_group is 4 for 6 experts; it must divide them"),
        ({"n_group": 3, "topk_group": 4}, "topk_group is 4; it must be from 1 to n_group, 3"),
        ({"n_group": 6, "topk_group": 2}, "group_score is top2_sum, but groups have 1 expert"),
        ({"scoring_func": "relu"}, 'scoring_func is "relu"; it must be one of softmax, sigmoid'),
        ({"routed_scaling_factor": float("inf")}, "routed_scaling_factor is inf; it must be finite"),
    ],
)
def test_routers_that_there_are_not(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer(**options)


def test_options_need_the_operator() -> None:
    with pytest.raises(ValueError, match="experts is 600; it must be from 1 to 512"):
        MoE(600, TOP_K, FEATURES, HIDDEN, scoring_func="sigmoid")


class WithGaps(OneRank):
    """Rows as DeepEP lays them out: each expert's from a multiple on, or in a matrix of its own."""

    def __init__(self, alignment: int | None) -> None:
        self._alignment, self._room = alignment, 64

    def dispatch(self, x: torch.Tensor, expert_ids: torch.Tensor, weights: torch.Tensor, num_experts: int) -> Arrived:
        rows, offs, *_, (indices, _) = super().dispatch(x, expert_ids, weights, num_experts)
        counts = offs.diff(prepend=offs.new_zeros(1))
        row = torch.arange(len(rows))
        expert = torch.searchsorted(offs, row.int(), right=True)
        if self._alignment is None:
            begins = torch.arange(num_experts) * self._room
        else:
            wide = (counts + self._alignment - 1) // self._alignment * self._alignment
            begins = wide.cumsum(0) - wide
        places = begins[expert] + row - (offs - counts)[expert]
        spread = x.new_zeros(num_experts * self._room, x.shape[1]).index_copy(0, places, rows)
        context = places, indices, weights
        if self._alignment is None:
            return Arrived(spread.view(num_experts, self._room, -1), counts=counts, context=context)
        return Arrived(spread, (begins + counts).int(), self._alignment, context=context)

    def combine(self, rows: torch.Tensor, arrived: Arrived) -> torch.Tensor:
        places, indices, weights = arrived.context
        return torch.ops.cleave.moe_unpermute(rows.flatten(0, -2)[places], indices, weights)


@pytest.mark.parametrize("alignment", [16, None])
def test_dispatchers_may_leave_gaps(alignment: int | None) -> None:
    plain, x, g = layer(), torch.randn(40, FEATURES, requires_grad=True), torch.randn(40, FEATURES)
    moe = layer(dispatcher=WithGaps(alignment))
    moe.load_state_dict(plain.state_dict())
    expected = torch.autograd.grad(plain(x), [x, *plain.parameters()], g)
    found = torch.autograd.grad(moe(x), [x, *moe.parameters()], g)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(moe(x), plain(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(NotImplementedError, match="accumulate_main_grad is True, which groups with gaps"):
        layer(dispatcher=WithGaps(alignment), accumulate_main_grad=True)(x)


# --- examples/moe/train.py ---


@pytest.fixture
def train() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_losses_are_those_of_the_loop_and_fall(
    train: ModuleType, capsys: pytest.CaptureFixture[str], dtype: str
) -> None:
    train.main(["--dtype", dtype, "--steps", "25", "--tokens", "512"])
    lines = capsys.readouterr().out.splitlines()[1:]
    losses = [float(line.split()[1]) for line in lines]
    assert len(losses) == 25 and losses[-1] < 0.85 * losses[0]


def test_training_fails_if_losses_differ(train: ModuleType) -> None:
    train.TOLERANCE = {device: dict.fromkeys(("float32",), -1.0) for device in ("cpu", "cuda")}
    with pytest.raises(SystemExit, match="the losses of step 0 differ by more than -1"):
        train.main(["--dtype", "float32", "--steps", "2"])


def test_the_page_of_documentation_runs() -> None:
    program: dict[str, object] = {}
    for source in doc_snippets.python_snippets(doc_snippets.ROOT / "docs" / "moe.md"):
        exec(compile(source, "docs/moe.md", "exec"), program)
