"""Our own convolution by a kernel that multiplies and shifts in loads, and divides in stores."""

from bench.own import dividing
from bench.own import serves_all as serves

__all__ = ["calls", "serves"]

calls = dividing("fast_load")
