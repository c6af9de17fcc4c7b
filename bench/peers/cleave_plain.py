"""Our own convolution by a kernel that divides to find coordinates, in loads and in stores."""

from bench.own import dividing
from bench.own import serves_all as serves

__all__ = ["calls", "serves"]

calls = dividing("plain")
