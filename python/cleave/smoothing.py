"""SmoothQuant: moves the outliers of activations, which are hard to quantise, into the weights."""

from __future__ import annotations

import importlib
from numbers import Real
from typing import Any

from ._weights.arrays import check_array

__all__ = ["smooth"]


def smooth(amax: Any, weight: Any, alpha: float = 0.5) -> tuple[Any, Any]:
    """Divisors for the channels of activations, and the weight with the divisors folded in.

    x @ weight.T == (x / divisors) @ folded.T, and x / divisors has no outlier channels any more:
    divisors = amax**alpha / max(abs(weight), 0)**(1 - alpha). Channels that are all zero in the
    activations or in the weight keep the divisor 1.

        divisors, folded = cleave.smooth(amax, weight)
        w, w_scale = cleave.quantize(folded, "int8", "row")
        q, q_scale = cleave.quantize(x, "int8", "row", smooth=divisors)
        d = cleave.scaled_gemm(q, w.T, q_scale, w_scale.T)

    Args:
        amax: [K], float32: the largest magnitude of each channel over a sample of activations.
        weight: [N, K], as torch.nn.Linear has it; of amax's framework (torch, NumPy, CuPy, JAX).
        alpha: from 0 (outliers stay in the activations) to 1 (they move to the weight).

    Returns:
        The divisors, [K], and the folded weight, [N, K], both float32.

    Raises:
        TypeError: amax is not float32, alpha no number, or one is no array. ValueError: the shapes do not match, alpha
            is not from 0 to 1, or amax has a negative value or a NaN, which no magnitudes have.
    """
    if not isinstance(alpha, Real):
        raise TypeError(f"alpha is {alpha!r}; it must be a number from 0 to 1")
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; it must be from 0 to 1")
    for name, array in (("amax", amax), ("weight", weight)):
        check_array(array, name, "an array of torch, NumPy, CuPy or JAX")
    if str(amax.dtype).removeprefix("torch.") != "float32":
        raise TypeError(f"amax is {amax.dtype}; it must be float32, convert it")
    if len(weight.shape) != 2 or tuple(amax.shape) != (weight.shape[1],):
        raise ValueError(
            f"amax is {tuple(amax.shape)} and weight is {tuple(weight.shape)}; they must be (K,) and (N, K)"
        )
    xp = _namespace(weight)
    _check_magnitudes(amax, xp)
    weight_amax = xp.amax(xp.abs(weight), axis=0) if weight.shape[0] else xp.zeros_like(amax)
    one = xp.ones_like(amax)
    silent = (amax == 0) | (weight_amax == 0)
    divisors = xp.where(silent, one, amax) ** alpha
    divisors = divisors / xp.where(silent, one, weight_amax) ** (1 - alpha)
    return divisors, weight * divisors


def _check_magnitudes(amax: Any, xp: Any) -> None:
    """Largest values in place of magnitudes, x.max(0), would make NaNs of channels that are all negative."""
    if amax.shape[0] == 0 or not _is_known(amax):
        return
    lowest = float(xp.amin(amax))
    if not lowest >= 0:
        raise ValueError(
            f"amax has a value of {lowest:g}; it must be the largest magnitude of each channel: abs(x).max(0), or "
            "x.abs().amax(0) in torch"
        )


def _is_known(array: Any) -> bool:
    """Not where jax traces a function, or torch has no data."""
    if type(array).__module__.startswith("jax"):
        return not isinstance(array, importlib.import_module("jax").core.Tracer)
    return not getattr(array, "is_meta", False)


def _namespace(array: Any) -> Any:
    package = type(array).__module__.partition(".")[0]
    return importlib.import_module("jax.numpy" if package in ("jax", "jaxlib") else package)
