"""Convolutions of images and their gradients."""

from __future__ import annotations

import functools
from typing import Any

from .. import _core
from ._gemm import Gemm, GemmRun, either


class _Conv2d(Gemm):
    """The base of the convolutions: the arguments of `Gemm`, except that there is only one layout."""

    __slots__ = ()
    _kind: str

    def __init__(
        self,
        element: Any = None,
        *,
        element_A: Any = None,
        element_B: Any = None,
        element_C: Any = None,
        element_D: Any = None,
        element_accumulator: Any = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        A: Any = None,
        B: Any = None,
        C: Any = None,
        D: Any = None,
    ):
        super().__init__(
            element, element_A=element_A, element_B=element_B, element_C=element_C,
            element_D=element_D, element_accumulator=element_accumulator, alpha=alpha, beta=beta,
            A=A, B=B, C=C, D=D,
        )  # fmt: skip

    def run(
        self,
        A: Any = None,
        B: Any = None,
        C: Any = None,
        D: Any = None,
        stride: Any = (1, 1),
        padding: Any = (0, 0),
        dilation: Any = (1, 1),
        alpha: float | None = None,
        beta: float | None = None,
        split_k: tuple[str, int | None] = ("auto", None),
        sync: bool = True,
        print_module: bool = False,
        stream: Any = None,
        *,
        size: tuple[int, ...] | None = None,
        **options: Any,
    ) -> GemmRun:
        """Convolves. Without D the result is a new array, found in the returned object's `D`.

        C is read only if beta is not 0. split_k: a mode and a number of slices, or None for the
        planner's. size: of Dgrad and Wgrad the shape of the result, where neither D nor C has it.
        sync and print_module are those of `Gemm.run`, the other arguments and `options` (groups,
        bias, precision and so on), and the errors, those of `cleave.conv2d` and its gradients.
        """
        options |= self._sizes((A, B, C, D), size, split_k)
        options |= {"stride": stride, "padding": padding, "dilation": dilation}
        return super().run(A, B, C, D, alpha, beta, sync, print_module, stream=stream, **options)

    def construct(
        self,
        A: Any = None,
        B: Any = None,
        C: Any = None,
        D: Any = None,
        *,
        beta: float | None = None,
        size: tuple[int, ...] | None = None,
        split_k: tuple[str, int | None] = ("auto", None),
        **options: Any,
    ) -> _core.GemmPlan:
        """Plans what `run` does with these arguments, without doing it, as `Gemm.construct`."""
        options |= self._sizes((A, B, C, D), size, split_k)
        return super().construct(A, B, C, D, beta=beta, **options)

    def _sizes(self, matrices: tuple[Any, ...], size: Any, split_k: tuple[str, int | None]) -> dict[str, Any]:
        """What is made of the split, and of the size if A and B do not say it."""
        try:
            mode, slices = split_k
        except (TypeError, ValueError):
            raise TypeError(f'split_k is {split_k!r}; it must be a mode and a number, as ("serial", 4)') from None
        options = {"split_k_mode": mode, "split_k_slices": slices}
        if self._kind == "fprop":
            if size is not None:
                raise TypeError("A and B say the size of D; leave size out")
            return options
        given = zip(matrices, self._matrices.items(), strict=True)
        arrays = {name: either(array, default) for array, (name, default) in given}
        for name in "DC":
            if size is None and arrays[name] is not None:
                size = _core.inspect(arrays[name], name)[1]
        if size is None:
            raise TypeError("D is missing; pass it, or the shape that it should have as size")
        return options | {"size": size}


class Conv2dFprop(_Conv2d):
    """D = activation(alpha * conv(A, B) + beta * C + bias), of images A [N, C, H, W] and filters B.

    Element types as in `Gemm`; shapes, memory (channels_last) and errors as in `cleave.conv2d`.
    """

    __slots__ = ()
    _kind = "fprop"
    _planner = staticmethod(functools.partial(_core.plan_conv2d, _kind))
    _multiply = staticmethod(_core.conv2d)


class Conv2dDgrad(_Conv2d):
    """The images' gradient D, of the outputs' A and filters B: see `cleave.conv2d_dgrad`."""

    __slots__ = ()
    _kind = "dgrad"
    _planner = staticmethod(functools.partial(_core.plan_conv2d, _kind))

    @staticmethod
    def _multiply(A: Any, B: Any, *, size: tuple[int, ...], **options: Any) -> Any:
        return _core.conv2d_dgrad(size, B, A, **options)


class Conv2dWgrad(_Conv2d):
    """The filters' gradient D, of the outputs' A and images B: see `cleave.conv2d_wgrad`.

    Its activation is "none".
    """

    __slots__ = ()
    _kind = "wgrad"
    _planner = staticmethod(functools.partial(_core.plan_conv2d, _kind))

    @staticmethod
    def _multiply(A: Any, B: Any, *, size: tuple[int, ...], activation: str, **options: Any) -> Any:
        if activation != "none":
            raise ValueError(f"activation is {activation}, but Conv2dWgrad has none; leave it out")
        return _core.conv2d_wgrad(B, size, A, **options)
