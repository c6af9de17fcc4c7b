"""The benchmark: suites as data, peers in the same process, interleaved.

Run it with `python -m bench`; docs/benchmarks.md says how it measures.
"""
