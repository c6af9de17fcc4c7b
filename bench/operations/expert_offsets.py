"""The operation "expert_offsets": where each expert's tokens end, from the tokens' experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cleave.testing.accuracy import Errors, Reference, compare
from cleave.testing.arrays import Arrays, TorchArrays
from cleave.testing.group_sizes import spread_over

ID_DTYPE = "int64"  # that of torch.topk's indices


@dataclass(frozen=True)
class Case:
    """Tokens that choose top_k experts each; sizes: how often each expert is chosen."""

    tokens: int
    top_k: int
    experts: int
    sizes: str = "uniform"

    @property
    def title(self) -> str:
        return f"{self.tokens} tokens, top {self.top_k} of {self.experts} {self.sizes} experts"

    @property
    def bytes(self) -> int:
        """The ids read once, int32 offsets written once."""
        return self.tokens * self.top_k * 8 + self.experts * 4


@dataclass
class Operands:
    """`offs` is the result: a contender may put another array there."""

    expert_ids: Any
    offs: Any


def expert_ids(arrays: Arrays, sizes: Sequence[int], seed: int) -> Any:
    """[sum of sizes]: as many of each expert as its size says, in random order."""
    import numpy

    ids = numpy.repeat(numpy.arange(len(sizes)), sizes)
    return arrays.from_numpy(numpy.random.default_rng(seed).permutation(ids), ID_DTYPE)


def make_operands(arrays: Arrays, case: Case, seed: int) -> Operands:
    sizes = spread_over(case.experts, case.tokens * case.top_k, case.sizes)
    ids = expert_ids(arrays, sizes, seed).reshape(case.tokens, case.top_k)
    return Operands(ids, arrays.full((case.experts,), 0, "int32"))


def ours(arrays: TorchArrays, case: Case, sets: Sequence[Operands]) -> tuple[list[Callable[[], None]], dict[str, Any]]:
    """One call per operand set, as an application would make it."""
    from cleave import moe

    def bind(operands: Operands) -> Callable[[], None]:
        def call() -> None:
            operands.offs = moe.expert_offsets(operands.expert_ids, case.experts)

        return call

    return [bind(operands) for operands in sets], {}


def describe(case: Case) -> dict[str, Any]:
    return {"tokens": case.tokens, "top_k": case.top_k, "experts": case.experts, "sizes": case.sizes}


def poison(arrays: Arrays, operands: Operands) -> None:
    arrays.poison(operands.offs)


def errors(arrays: Arrays, case: Case, operands: Operands) -> Errors:
    """They are exact or wrong."""
    import numpy

    ids = arrays.to_numpy(operands.expert_ids)
    ends = numpy.bincount(ids.flatten(), minlength=case.experts).cumsum()
    exact = arrays.from_numpy(ends.astype(numpy.float64)[None], "float64")
    nothing = arrays.xp.zeros_like(exact)
    return compare(arrays, operands.offs[None], Reference(exact, exact[:, -1], nothing))
