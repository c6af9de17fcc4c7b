"""Random calls of every operation, each element checked against float64, on the CPU or a GPU.

python -m tests.fuzz --seconds 60 --seed 1
"""
