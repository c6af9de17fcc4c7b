"""Our own convolution by a kernel that divides to find coordinates, in loads and in stores."""

from bench.self_baseline import dividing
from bench.self_baseline import serves_all as serves

__all__ = ["calls", "serves"]

calls = dividing("plain")
