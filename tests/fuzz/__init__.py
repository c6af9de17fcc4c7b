"""Random calls of every operation, each element checked against float64, on the CPU or a GPU.

    python -m tests.fuzz --seconds 600 --seed 1

Problems are numbered; a problem follows from its number and the seed. Those of 128 numbers share a
configuration (`draw`): operation, dtypes, layouts, epilogue and split, and so their kernels, which
are compiled ahead of them on all cores (`ahead`). Each has sizes, gaps, groups and values of its
own, lies in memory full of guards (`operand`), and is checked where it ran, against float64 and a
bound that is derived, not tuned (`bound`). Bounds of groups that make no sense are drawn as well:
then only the memory beside D is checked. What fails is made as small as it can be (`shrink`) and
printed as a script that needs cleave and torch alone (`script`).

Under compute-sanitizer float64 stays on the host, so that no kernels but Cleave's run:

    export PYTORCH_NO_CUDA_MEMORY_CACHING=1
    for tool in memcheck racecheck synccheck initcheck; do
      compute-sanitizer --tool $tool --error-exitcode 9 \\
        python -m tests.fuzz --device cuda --reference cpu --sample 300 --hang 3600
    done
"""
