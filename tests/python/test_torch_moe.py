"""cleave.torch.MoE on CPU tensors, beside a loop over its experts; examples/moe/train.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import doc_snippets  # noqa: E402

from cleave.torch import MoE  # noqa: E402
from cleave.torch.dispatch import Arrived, OneRank  # noqa: E402

EXPERTS, TOP_K, FEATURES, HIDDEN = 6, 2, 16, 24
PATH = Path(__file__).parents[2] / "examples" / "moe" / "train.py"


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def layer(**options: object) -> MoE:
    return MoE(EXPERTS, TOP_K, FEATURES, HIDDEN, **options)


def loop(moe: MoE, x: torch.Tensor) -> torch.Tensor:
    """float64, expert by expert, differentiable in the parameters."""
    tokens = x.double().reshape(-1, FEATURES)
    best, experts = (tokens @ moe.router.weight.double().t()).topk(TOP_K)
    weights = best.softmax(-1)
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
