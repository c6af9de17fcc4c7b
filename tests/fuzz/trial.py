"""One problem run and checked, on the devices where that happens, without waiting for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .bound import Expected
from .operand import MARGIN, Operand, bits, float64
from .problem import Call, Problem


@dataclass(frozen=True)
class Place:
    """Where cleave runs, and where operands are made and results checked.

    tight: buffers end where their arrays do, so that a sanitizer sees what is read beyond.
    """

    device: torch.device
    reference: torch.device
    tight: bool = False

    @classmethod
    def of(cls, device: str, reference: str | None = None, tight: bool = False) -> Place:
        return cls(torch.device(device), torch.device(reference or device), tight)


REPEATING = 8  # one problem of so many is run twice
OWN_WORKSPACE = 5  # one of so many is given a workspace


class Refused(Exception):
    """A call that raised ValueError or TypeError; its message."""


@dataclass
class Output:
    """An array before and after a call, on the reference's device; guards are beside it."""

    name: str
    result: torch.Tensor
    expected: Expected | None
    operand: Operand | None = None
    before: torch.Tensor | None = None
    after: torch.Tensor | None = None
    again: torch.Tensor | None = None  # after a second call

    def wrong(self) -> torch.Tensor | None:
        return None if self.expected is None else self.expected.wrong(self.result)

    def strayed(self) -> torch.Tensor | None:
        """Which elements of the buffer have changed, though they must not have."""
        if self.operand is None:
            return None
        before, after = bits(self.before), bits(self.after).clone()
        old, new = self.operand.view(before), self.operand.view(after)
        written = None if self.expected is None else self.expected.written
        new.copy_(old if written is None else torch.where(written, old, new))
        return before != after

    def changed(self) -> torch.Tensor | None:
        """Which elements a second call gave other bits."""
        return None if self.again is None else bits(self.again) != bits(self.after)


def call_of(problem: Problem, device: torch.device) -> Call:
    """The problem's; some of those that need a workspace bring one of just the size."""
    call = problem.call()
    if problem.seed % OWN_WORKSPACE:
        return call
    plan = problem.plan({x.name: x.empty(device) for x in call.operands})
    size = getattr(plan, "workspace_size", 0)
    if size:
        call.keywords["workspace"] = Operand(
            "workspace", (size,), torch.int8, (0,), (), 4 * MARGIN,
            contents=("integers", 0, 0), is_output=True,
        )  # fmt: skip
    return call


def run(problem: Problem, place: Place) -> list[Output]:
    """Refused if the call is; else raises what it raises."""
    try:
        call = call_of(problem, place.device)
    except (ValueError, TypeError) as error:
        raise Refused(str(error)) from error
    operands = {x.name: x for x in call.operands}
    tail = 0 if place.tight else MARGIN
    before = {name: x.make(place.reference, tail) for name, x in operands.items()}
    buffers = {name: x.to(place.device, copy=operands[name].is_output) for name, x in before.items()}

    def invoke() -> Any:
        try:
            return call.run({name: x.view(buffers[name]) for name, x in operands.items()})
        except (ValueError, TypeError) as error:
            raise Refused(str(error)) from error

    made = invoke()
    expected = problem.expected({name: x.view(before[name]) for name, x in operands.items()})
    outputs = []
    for name, x in operands.items():
        if x.is_output:
            after = buffers[name].to(place.reference)
            outputs.append(Output(name, x.view(after), expected.get(name), x, before[name], after))
    if problem.seed % REPEATING == 0 and expected and outputs:
        _repeat(outputs, before, buffers, invoke)
    results = made if isinstance(made, tuple) else (made,)
    for i, result in enumerate(results):
        if str(i) in expected:
            result = result.to(place.reference)
            outputs.append(Output(str(i), result, expected[str(i)]))
    return outputs


def _repeat(
    outputs: list[Output],
    before: dict[str, torch.Tensor],
    buffers: dict[str, torch.Tensor],
    invoke: Callable[[], Any],
) -> None:
    """Calls again, on outputs as they were."""
    for output in outputs:
        buffer = buffers[output.name]
        buffers[output.name] = before[output.name].to(buffer.device, copy=True)
    invoke()
    for output in outputs:
        if output.expected is not None:
            output.again = buffers[output.name].to(output.after.device)


def mistakes(outputs: list[Output]) -> torch.Tensor:
    """How many elements and guards are wrong; one number, where the reference lives."""
    counts = []
    for output in outputs:
        masks = (output.wrong(), output.strayed(), output.changed())
        counts += [mask.sum() for mask in masks if mask is not None]
    return torch.stack(counts).sum()


def explain(outputs: list[Output]) -> str:
    """What is wrong; empty if nothing is."""
    lines = []
    for output in outputs:
        wrong = output.wrong()
        if wrong is not None and wrong.any():
            lines.append(_wrong_elements(output, wrong))
        strayed = output.strayed()
        if strayed is not None and strayed.any():
            lines.append(_stray_elements(output, strayed))
        changed = output.changed()
        if changed is not None and changed.any():
            lines.append(f"{_label(output)}: a second call gave {int(changed.sum())} other elements")
    return "\n".join(lines)


def _label(output: Output) -> str:
    return f"result {output.name}" if output.name.isdigit() else output.name


def _wrong_elements(output: Output, wrong: torch.Tensor) -> str:
    at = tuple(wrong.nonzero()[0].tolist())
    tolerance: Any = output.expected.tolerance
    within = "exactly" if tolerance is None else f"within {tolerance[at].item():.3g}"
    got, want = float64(output.result[at]).item(), output.expected.value[at].item()
    return (
        f"{_label(output)}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at "
        f"{list(at)}: {got!r}, where float64 gives {want!r}, {within}"
    )


def _stray_elements(output: Output, strayed: torch.Tensor) -> str:
    first, operand = int(strayed.nonzero()[0, 0]), output.operand
    return (
        f"{_label(output)}: {int(strayed.sum())} elements were written that must not be, the first "
        f"{first - operand.offset} elements from its beginning (shape {list(operand.shape)}, "
        f"strides {list(operand.strides)})"
    )
