"""Products of matrices: plain, scaled and grouped."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from .. import _core
from .._mistakes import parameters_of
from ._types import DataType, LayoutType, element_of, layout_of

# What shapes no plan.
_OF_CALLS = ("check_offsets", "workspace")


@dataclass(frozen=True)
class GemmRun:
    """One product that was enqueued: `D` is its result."""

    D: Any
    device: int
    stream: int

    def sync(self) -> None:
        """Waits until the product, and whatever preceded it on its stream, is done."""
        _core.synchronize(self.device, self.stream)


class Gemm:
    """D = activation(alpha * A @ B + beta * C).

    Element types and layouts may be given for all matrices at once, one by one, or not at all.
    What is given is checked in each `run`; strides are always read from the arrays, so views need
    no copy.

    Args:
        element, element_A, element_B, element_C, element_D: a DataType, a torch or NumPy dtype, or
            a name. D's type defaults to A's.
        layout, layout_A, layout_B, layout_C: a LayoutType. D's layout is C's.
        element_accumulator: the type of sums: int32 for int8, else float32; checked in `run`.
        alpha, beta, A, B, C, D: defaults for `run`.

    Raises:
        TypeError: an unsupported element type.
        ValueError: an unknown layout.
    """

    # No __dict__, so that a mistyped attribute is not accepted in silence.
    __slots__ = (
        "__weakref__", "_accumulator", "_activation", "_elements", "_layouts", "_matrices", "alpha",
        "beta", "plan",
    )  # fmt: skip

    _multiply = staticmethod(_core.gemm)
    _planner = staticmethod(_core.plan_gemm)

    def __init__(
        self,
        element: Any = None,
        layout: LayoutType | None = None,
        *,
        element_A: Any = None,
        element_B: Any = None,
        element_C: Any = None,
        element_D: Any = None,
        layout_A: LayoutType | None = None,
        layout_B: LayoutType | None = None,
        layout_C: LayoutType | None = None,
        element_accumulator: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        A: Any = None,
        B: Any = None,
        C: Any = None,
        D: Any = None,
    ):
        self._accumulator = element_of(element_accumulator)
        if self._accumulator not in (None, DataType.f32, DataType.s32):
            raise TypeError(f"element_accumulator is {element_accumulator}; it must be float32 or int32")
        elements = {"A": element_A, "B": element_B, "C": element_C, "D": element_D}
        layouts = {"A": layout_A, "B": layout_B, "C": layout_C, "D": layout_C}
        self._elements = {name: element_of(either(own, element)) for name, own in elements.items()}
        self._layouts = {name: layout_of(either(own, layout)) for name, own in layouts.items()}
        self._matrices = {"A": A, "B": B, "C": C, "D": D}
        self.alpha = alpha
        self.beta = beta
        self.activation = "none"
        self.plan: _core.GemmPlan | None = None

    @property
    def activation(self) -> str:
        """What is applied last: an activation of `cleave.gemm`.

        May be set by a class of such a name, as CUTLASS has them.
        """
        return self._activation

    @activation.setter
    def activation(self, value: Any) -> None:
        name = value if isinstance(value, str) else getattr(value, "__name__", str(value))
        self._activation = "none" if name == "identity" else name

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except AttributeError:
            kind = type(self).__name__
            raise AttributeError(f"{kind} has no attribute {name!r}{self._meant(name)}") from None

    def _meant(self, name: str) -> str:
        import difflib  # takes a millisecond, which imports without mistakes can do without

        attributes = ("activation", "alpha", "beta")
        arguments = (*inspect.signature(self.run).parameters, *parameters_of(self._multiply))
        near = difflib.get_close_matches(name, (*attributes, *arguments), 1)
        if not near:
            return f"; it has {', '.join(attributes)}, and run has arguments"
        if near[0] in attributes:
            return f". Did you mean {near[0]!r}?"
        return f"; pass {near[0]} to run"

    def run(
        self,
        A: Any = None,
        B: Any = None,
        C: Any = None,
        D: Any = None,
        alpha: float | None = None,
        beta: float | None = None,
        sync: bool = True,
        print_module: bool = False,
        *,
        stream: Any = None,
        **options: Any,
    ) -> GemmRun:
        """Multiplies. Without D the result is a new array, found in the returned object's `D`.

        C is read only if beta is not 0. sync: wait for the stream before returning; False to stay
        asynchronous, and in CUDA graphs. print_module: print the kernel's source. `options` and the
        errors are those of `cleave.gemm`: split_k_mode, split_k_slices, precision, bias and so on.
        """
        alpha, beta = either(alpha, self.alpha), either(beta, self.beta)
        A, B, read = self._read((A, B, C, D), beta)
        options = _lowered(options) | read
        dtype, _, _, device, stream = _core.inspect(A, "A", stream)
        self._check_accumulator(dtype)
        if print_module:
            planned = {name: options[name] for name in options if name not in _OF_CALLS}
            print(self._planner(A, B, **planned).kernel_source)
        result = self._multiply(A, B, alpha=alpha, beta=beta if beta != 0 else None, stream=stream, **options)
        done = GemmRun(result, device, stream)
        if sync:
            done.sync()
        return done

    def construct(
        self, A: Any = None, B: Any = None, C: Any = None, D: Any = None, *, beta: float | None = None, **options: Any
    ) -> _core.GemmPlan:
        """Plans what `run` does with these arguments, without doing it.

        The plan is returned, and kept as the attribute `plan`, which `cleave.emit` reads. `options`
        are those of `run` that shape a plan: split_k_mode, bias, scale_A, offs and so on.
        """
        A, B, read = self._read((A, B, C, D), either(beta, self.beta))
        self._check_accumulator(_core.inspect(A, "A")[0])
        self.plan = self._planner(A, B, **_lowered(options), **read)
        return self.plan

    def _read(self, matrices: tuple[Any, ...], beta: float) -> tuple[Any, Any, dict[str, Any]]:
        """A, B, and C, D and the attributes as options of a product, all checked."""
        given = {
            name: either(array, default)
            for array, (name, default) in zip(matrices, self._matrices.items(), strict=True)
        }
        for name, array in given.items():
            if array is not None:
                self._check(name, array)
            elif name in "AB":
                raise TypeError(f"{name} is missing; pass it to run or to {type(self).__name__}")
        A, B, C, D = given.values()
        element_D = self._elements["D"] if D is None else None
        options = {
            "c": C if beta != 0 else None,
            "out": D,
            "out_dtype": element_D and element_D.value,
            "activation": self.activation,
        }
        return A, B, options

    def _check_accumulator(self, dtype: str) -> None:
        actual = DataType.s32 if dtype == DataType.s8.value else DataType.f32
        if self._accumulator not in (None, actual):
            raise TypeError(
                f"element_accumulator is {self._accumulator.value}, but products of {dtype} are "
                f"summed in {actual.value}; pass that, or None"
            )

    def _check(self, name: str, array: Any) -> None:
        dtype, shape, strides, _, _ = _core.inspect(array, name)
        element, layout = self._elements[name], self._layouts[name]
        if element and element.value != dtype:
            kind = type(self).__name__
            raise TypeError(f"{name} is {dtype}, but this {kind} is for {element.value}; convert it")
        if not layout or len(shape) < 2:
            return
        unit = -1 if layout is LayoutType.RowMajor else -2
        if strides[unit] != 1 and shape[unit] > 1:
            remedy = "pass one that is, and copy the result from it" if name == "D" else "pass a copy"
            raise ValueError(
                f"{name} has strides {strides}, which is not {layout.name}; {remedy}, or make a "
                f"{type(self).__name__} without a layout, which takes any"
            )


class ScaledGemm(Gemm):
    """D = activation(alpha * (scale_A * A) @ (scale_B * B) + beta * C + bias), of 8-bit elements.

    The arguments and errors are those of `Gemm`, except that `element` is the type of A and B only,
    and a new D defaults to bfloat16. The options of `run` are those of `cleave.scaled_gemm`, with
    scale_A, scale_B and scale_D.
    """

    __slots__ = ()
    _multiply = staticmethod(_core.scaled_gemm)
    _planner = staticmethod(_core.plan_scaled_gemm)

    def __init__(
        self,
        element: Any = None,
        layout: LayoutType | None = None,
        *,
        element_A: Any = None,
        element_B: Any = None,
        **others: Any,
    ):
        super().__init__(
            layout=layout, element_A=either(element_A, element), element_B=either(element_B, element), **others
        )


class GroupedGemm(Gemm):
    """A product for each of many groups of any sizes; the ranks of A and B decide what is grouped.

    D[begin:end] = activation(alpha * A[begin:end] @ B[g] + beta * C[begin:end] + bias[g]), and the
    other forms of `cleave.grouped_gemm`, whose options `run` has; the arguments and errors are those
    of `Gemm`.
    """

    __slots__ = ()
    _multiply = staticmethod(_core.grouped_gemm)
    _planner = staticmethod(_core.plan_grouped_gemm)


def _lowered(options: dict[str, Any]) -> dict[str, Any]:
    """scale_A as `cleave.scaled_gemm` calls it, and so on."""
    return {name.lower(): value for name, value in options.items()}


def either(own: Any, common: Any) -> Any:
    return common if own is None else own
