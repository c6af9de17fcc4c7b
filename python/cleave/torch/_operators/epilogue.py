"""Epilogue functions in torch.ops.cleave: what their inputs are there, their outputs' types, and their gradients.

The derivative of a function is one of the same operations. Where it reads the sum, it is the epilogue of the same
product, made again: that takes no memory but the gradients', one value per element of D for each input that has one
(three at most; else the sums are stored, in float32, and torch does the rest). Where it does not read the sum, or one
of the outputs says enough in its place, torch computes it of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import torch
from torch import Tensor

from ..._core import EpilogueFunction
from ..._epilogue import BoundEpilogue, Epilogue
from ..._epilogue.derivative import derivative, given_derivative
from ..._epilogue.graph import SUM, Graph, needed, parse
from ..._epilogue.saved import reads_sums
from ..._epilogue.values import Known, evaluate, join, split
from .sum_to import sum_to

_MOST_INPUTS, MOST_OUTPUTS = 8, 3  # of Cleave's functions
ARGUMENTS = ("epilogue", "inputs", "numbers", "number_places", "backward")  # of all operators that take one


def outputs(text: str) -> list[tuple[torch.dtype | None, str]]:
    """The dtypes of a function's outputs, D's first, None where it leaves that to the product; and their shapes."""
    graph = parse(text)
    types = {name: None if dtype is None else getattr(torch, dtype) for name, (dtype, _) in graph.outputs.items()}
    return [(dtype, graph.shape(name)) for name, dtype in types.items()]


def separate(text: str, inputs: Iterable[Any]) -> tuple[list[Tensor], list[float], list[int]]:
    """A function's inputs, as its operators take them: tensors, numbers, and the places of these."""
    tensors, numbers, places = [], [], []
    for place, value in enumerate(inputs):
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, (int, float)) or hasattr(value, "__float__"):
            numbers.append(float(value))
            places.append(place)
        else:
            raise TypeError(f"{list(parse(text).inputs)[place]} is {value!r}; it must be a tensor, or a number")
    return tensors, numbers, places


def arguments(epilogue: BoundEpilogue | Epilogue, options: dict[str, Any]) -> tuple[Any, ...]:
    """A function and its inputs, as operators take them. Takes an activation of none out of a call's options."""
    if options.pop("activation", "none") != "none":
        raise ValueError("activation is given beside an epilogue function, which takes its place; apply it there")
    if isinstance(epilogue, Epilogue):  # one without inputs need not be called
        epilogue = epilogue()
    if not isinstance(epilogue, BoundEpilogue):
        given = type(epilogue).__name__
        raise TypeError(f"epilogue must be a function made by @cleave.epilogue, called with its inputs, got {given}")
    return epilogue.text, *separate(epilogue.text, epilogue.inputs), epilogue.backward


def named(text: str, inputs: Iterable[Any], backward: str = "") -> dict[str, Any]:
    """A function and its inputs, as operators take them by name."""
    return dict(zip(ARGUMENTS, (text, *separate(text, inputs), backward), strict=True))


def results(made: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """What operators with a function return, as their callers have it."""
    return made[0] if len(made) == 1 else tuple(made)


def together(text: str, tensors: list[Tensor], numbers: list[float], places: list[int]) -> dict[str, Tensor | float]:
    """The inputs by their names."""
    left, given = iter(tensors), dict(zip(places, numbers, strict=True))
    return {name: given[i] if i in given else next(left) for i, name in enumerate(parse(text).inputs)}


class Gradients:
    """Those of a function's inputs and of the sum, as far as they are wanted.

    multiply: makes the product again, with a function and its inputs, D of a type: its outputs. shape: of D. dtype: of
    what is summed, and of the sum's gradient. stored: values of the function that are known. spread: a line of values
    as it broadcasts with D.
    """

    def __init__(
        self,
        text: str,
        backward: str,
        inputs: Known,
        grads: Mapping[str, Tensor],
        shape: torch.Size,
        dtype: torch.dtype,
        stored: Mapping[str, Tensor],
        multiply: Callable[[str, Iterable[Any], torch.dtype], list[Tensor]],
        spread: Callable[[Tensor, str, int], Tensor],
    ) -> None:
        self._sums = parse(text).sums
        self._graph = (
            given_derivative(backward, self._sums, tuple(grads)) if backward else derivative(text, tuple(grads))
        )
        self._inputs = {**inputs, **{f"grad_{name}": grad for name, grad in grads.items()}}
        self._dtype = dtype
        self._stored = stored
        self._multiply = multiply
        self._spread = spread
        self._shape = shape

    def of(self, wanted: list[str]) -> dict[str, Tensor]:
        """By name, "acc" among them: of b's columns, where the function takes two sums. What has none is left out.
        Those of vectors and scalars are summed."""
        names = [part for name in wanted for part in (self._sums if name == SUM else (name,))]
        made = self._elementwise({n: self._graph.outputs[n][1] for n in names if n in self._graph.outputs})
        parts = [made.pop(name, None) for name in self._sums]
        gradients = {name: self._summed(grad, name) for name, grad in made.items()}
        given = next((part for part in parts if part is not None), None)
        if given is None:
            return gradients
        whole = [torch.zeros_like(given) if part is None else part for part in parts]
        return gradients | {SUM: join(whole, self._sums)}

    def _elementwise(self, wanted: dict[str, str]) -> dict[str, Tensor]:
        known = {name: self._broadcast(name) for name in self._inputs} | dict(self._stored)
        simple = {name: value for name, value in wanted.items() if not reads_sums(self._graph, [value], known)}
        rest = {name: value for name, value in wanted.items() if name not in simple}
        made = self._again(rest) if rest else {}
        if made is None:
            (sums,) = self._multiply(f"d = {SUM}", (), torch.float32)
            known |= split(sums, self._sums)
            simple, made = wanted, {}
        values = evaluate(self._graph, list(simple.values()), known)
        return made | {n: torch.as_tensor(values[v]).expand(self._shape) for n, v in simple.items()}

    def _again(self, wanted: dict[str, str]) -> dict[str, Tensor] | None:
        """As outputs of the same product; None if they are too much for a function."""
        outputs: dict[tuple[str, torch.dtype], str] = {}
        places = {}
        # Whose gradients may be inputs of the next derivative, beside the inputs of this one.
        free = (name for name in map("d{}".format, count()) if f"grad_{name}" not in self._inputs)
        for name, value in wanted.items():
            output = value, self._dtype_of(name)
            if output not in outputs:
                outputs[output] = next(free)
            places[name] = outputs[output]
        read = needed(self._graph, wanted.values(), {})
        inputs = {name: x for name, x in self._inputs.items() if name in read}
        if len(outputs) > MOST_OUTPUTS or len(inputs) > _MOST_INPUTS:
            return None
        typed = {name: (str(dtype).removeprefix("torch."), value) for (value, dtype), name in outputs.items()}
        shapes = {name: self._graph.inputs[name] for name in inputs}
        values = {name: value for name, value in self._graph.values.items() if name in read}
        if self._sums != (SUM,) and read.isdisjoint(self._sums):
            _take_gate(self._sums[0], values, typed)
        try:
            text = _spell(Graph(shapes, values, typed))
        except ValueError:
            return None
        made = dict(zip(typed, self._multiply(text, inputs.values(), next(iter(outputs))[1]), strict=True))
        return {name: made[place] for name, place in places.items()}

    def _dtype_of(self, name: str) -> torch.dtype:
        x = self._inputs.get(name)
        whole = isinstance(x, Tensor) and self._graph.inputs[name] == "matrix" and x.itemsize > 1
        return x.dtype if whole else self._dtype

    def _broadcast(self, name: str) -> Tensor | float:
        x, shape = self._inputs[name], self._graph.inputs[name]
        is_line = isinstance(x, Tensor) and x.dim() == 1 and shape in ("row", "column")
        return self._spread(x, shape, len(self._shape)) if is_line else x

    def _summed(self, grad: Tensor, name: str) -> Tensor:
        x = self._inputs[name]
        shape = self._broadcast(name).shape
        return sum_to(grad, shape[max(0, len(shape) - grad.dim()) :], x.dtype).reshape(x.shape)


def _take_gate(gate: str, values: dict[str, tuple[str, ...]], outputs: dict[str, tuple[str | None, str]]) -> None:
    """Has a derivative that reads neither sum depend on one of them, `gate`, all the same: without, it would be a
    function of each of b's columns, and not of two."""
    first, (dtype, value) = next(iter(outputs.items()))
    values["%any"] = ("equal", gate, gate)
    values["%first"] = ("where", "%any", value, value)
    outputs[first] = (dtype, "%first")


def _spell(graph: Graph) -> str:
    """Its canonical text. Raises ValueError where Cleave has no room for so much."""
    lines = [f"{name} {shape}" for name, shape in graph.inputs.items()]
    lines += [f"{name} = {' '.join(value)}" for name, value in graph.values.items()]
    lines += [f"{name}{':' + dtype if dtype else ''} = {value}" for name, (dtype, value) in graph.outputs.items()]
    return EpilogueFunction("\n".join(lines)).text
