"""Epilogue functions that tests name to the command."""

import cleave


@cleave.epilogue
def gelu_residual(acc, shift: cleave.row, scale: cleave.scalar, residual: cleave.matrix):
    pre = acc * scale + shift
    return cleave.outputs(d=cleave.gelu(pre) + residual, pre=pre.to("float16"))


@cleave.epilogue
def doubled(acc):
    return 2.0 * acc


@cleave.epilogue
def normed(acc):
    return cleave.outputs(d=acc, norm=cleave.sum_of_squares(acc, over="columns"))
