"""Our own convolution by a kernel that divides in loads, and multiplies and shifts in stores."""

from bench.own import dividing
from bench.own import serves_all as serves

__all__ = ["calls", "serves"]

calls = dividing("fast_store")
