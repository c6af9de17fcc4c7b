"""The derivative of an epilogue function: a graph of the same operations."""

from __future__ import annotations

from functools import lru_cache

from .graph import SUMS, Graph, gradient_of, parse


@lru_cache(maxsize=256)
def derivative(text: str, grads: tuple[str, ...]) -> Graph:
    """The function of the sum, the inputs and the gradients of some outputs that gives the gradients.

    text: of the function. grads: names of the outputs that have gradients, which are further inputs,
    `grad_<output>`, of the outputs' shapes. Its outputs are the gradients of "acc" (or of both sums, where it takes
    two) and of inputs by name, per element of D; what the outputs do not depend on has none.
    """
    return _Backward(parse(text), grads).graph()


def has_derivative(graph: Graph, output: str) -> bool:
    """The largest magnitude has none: it would be that of one element, or of any among equals."""
    return output not in graph.reductions or graph.reductions[output][0] != "absmax"


@lru_cache(maxsize=256)
def given_derivative(backward: str, sums: tuple[str, ...], grads: tuple[str, ...]) -> Graph:
    """The same of a function with a backward of its own, which was traced with the gradients of all outputs: 0 where
    there is none. sums: what the function takes of a product."""
    graph = parse(backward)
    missing = {n for n in graph.inputs if n.startswith("grad_") and n.removeprefix("grad_") not in grads}
    names = {gradient_of(name): name for name in sums}

    def given(value: str) -> str:
        return "0" if value in missing else value

    return Graph(
        {name: shape for name, shape in graph.inputs.items() if name not in missing},
        {name: (operation, *map(given, operands)) for name, (operation, *operands) in graph.values.items()},
        {names.get(name, name): (dtype, given(value)) for name, (dtype, value) in graph.outputs.items()},
    )


class _Backward:
    """Walks through a function's values from the last to the first."""

    def __init__(self, forward: Graph, grads: tuple[str, ...]) -> None:
        self._forward = forward
        self._grads = grads
        self._values = dict(forward.values)
        self._gradients: dict[str, str] = {}

    def graph(self) -> Graph:
        forward = self._forward
        for name in self._grads:
            self._give(forward.outputs[name][1], f"grad_{name}")
        for name in reversed(forward.values):
            gradient = self._gradients.pop(name, None)
            if gradient is not None:
                operation, *operands = forward.values[name]
                rule = _RULES.get("to" if operation.startswith("to_") else operation, _nothing)
                rule(self, gradient, name, *operands)
        inputs = forward.inputs | {f"grad_{name}": forward.shape(name) for name in self._grads}
        return Graph(inputs, self._values, {name: (None, value) for name, value in self._gradients.items()})

    def _give(self, value: str, gradient: str) -> None:
        if self._is_number(value):
            return
        before = self._gradients.get(value)
        self._gradients[value] = gradient if before is None else self._apply("add", before, gradient)

    def _is_number(self, value: str) -> bool:
        return value not in self._forward.values and value not in self._forward.inputs and value not in SUMS

    def _apply(self, operation: str, *operands: str) -> str:
        name = f"%{len(self._values)}"
        self._values[name] = (operation, *operands)
        return name


_LARGEST = "3.4028234663852886e+38"  # of float32


def _nothing(*_: object) -> None:
    """Comparisons and their like pass no gradient on."""


def _of_one(rule):
    """`rule` gives the gradient of an operation's one operand, from the result's."""

    def backward(walk: _Backward, g: str, result: str, x: str) -> None:
        walk._give(x, rule(walk._apply, g, result, x))

    return backward


def _multiply(walk: _Backward, g: str, result: str, x: str, y: str) -> None:
    walk._give(x, walk._apply("multiply", g, y))
    walk._give(y, walk._apply("multiply", g, x))


def _add(walk: _Backward, g: str, result: str, x: str, y: str) -> None:
    walk._give(x, g)
    walk._give(y, g)


def _subtract(walk: _Backward, g: str, result: str, x: str, y: str) -> None:
    walk._give(x, g)
    walk._give(y, walk._apply("negative", g))


def _divide(walk: _Backward, g: str, result: str, x: str, y: str) -> None:
    part = walk._apply("divide", g, y)
    walk._give(x, part)
    walk._give(y, walk._apply("negative", walk._apply("multiply", part, result)))


def _where(walk: _Backward, g: str, result: str, condition: str, x: str, y: str) -> None:
    walk._give(x, walk._apply("where", condition, g, "0"))
    walk._give(y, walk._apply("where", condition, "0", g))


def _extreme(closer: str):
    """torch.minimum's and maximum's: of equal values each has half; as torch.clamp's, all where one is a number."""

    def backward(walk: _Backward, g: str, result: str, x: str, y: str) -> None:
        apply = walk._apply
        half = (
            g
            if walk._is_number(x) or walk._is_number(y)
            else apply("where", apply("equal", x, y), apply("multiply", g, "0.5"), g)
        )
        for value, other in ((x, y), (y, x)):
            lost = apply("less", *((other, value) if closer == "less" else (value, other)))
            walk._give(value, apply("where", lost, "0", half))

    return backward


def _absolute(apply, g, r, x):
    return apply("where", apply("less", x, "0"), apply("negative", g), apply("where", apply("equal", x, "0"), "0", g))


def _exp(apply, g, r, x):
    """Finite even where exp has overflowed, so that no gradient stays none: 1 / (1 + exp(-x)). No choice by g, in which
    the rule is linear: tangents are made of its transpose at 0."""
    return apply("multiply", g, apply("minimum", r, _LARGEST))


def _rsqrt(apply, g, r, x):
    cube = apply("multiply", apply("multiply", r, r), r)
    return apply("multiply", apply("multiply", g, "-0.5"), cube)


def _erf(apply, g, r, x):
    bell = apply("exp", apply("negative", apply("multiply", x, x)))
    return apply("multiply", apply("multiply", g, "1.1283791670955126"), bell)


def _sigmoid(apply, g, r, x):
    return apply("multiply", g, apply("multiply", r, apply("subtract", "1", r)))


def _silu(apply, g, r, x):
    s = apply("sigmoid", x)
    slope = apply("add", "1", apply("multiply", x, apply("subtract", "1", s)))
    return apply("multiply", apply("multiply", g, s), slope)


_RULES = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "minimum": _extreme("less"),
    "maximum": _extreme("greater"),
    "where": _where,
    "negative": _of_one(lambda apply, g, r, x: apply("negative", g)),
    "absolute": _of_one(_absolute),
    "exp": _of_one(_exp),
    "log": _of_one(lambda apply, g, r, x: apply("divide", g, x)),
    "sqrt": _of_one(lambda apply, g, r, x: apply("divide", apply("multiply", g, "0.5"), r)),
    "rsqrt": _of_one(_rsqrt),
    "tanh": _of_one(lambda apply, g, r, x: apply("multiply", g, apply("subtract", "1", apply("multiply", r, r)))),
    "erf": _of_one(_erf),
    "sigmoid": _of_one(_sigmoid),
    "silu": _of_one(_silu),
    "relu": _of_one(lambda apply, g, r, x: apply("where", apply("less_equal", r, "0"), "0", g)),
    "to": _of_one(lambda apply, g, r, x: g),  # any dtype; as torch: the gradient passes
}
