"""Outputs of convolutions, and of groups of columns, that another operator quantises: as cleave's functions do."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import cleave.torch  # noqa: E402

FOUND = [("block_1x128", torch.int8), ("row", torch.float8_e4m3fn), ("tensor", torch.float8_e5m2)]


def same(made: Any, expected: Any) -> bool:
    alike = zip(made, expected, strict=True)
    return all(x.stride() == y.stride() and torch.equal(x.float(), y.float()) for x, y in alike)


def compiled(call: Any, *tensors: Any) -> Any:
    torch.compiler.reset()
    return torch.compile(call, fullgraph=True, backend="aot_eager")(*tensors)


def pixels(*shape: int) -> torch.Tensor:
    return torch.randn(shape[0], *shape[2:], shape[1]).movedim(-1, 1)


@pytest.mark.parametrize(("granularity", "dtype"), FOUND)
@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "scaled_conv2d"])
def test_convolutions(name: str, granularity: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    axes = int(name[-2])
    x, w = pixels(2, 16, *[6] * axes), pixels(130, 16, *[3] * axes)
    if scaled := name.startswith("scaled"):
        x, w = (x * 20).to(torch.int8), (w * 20).to(torch.int8)
    scales = (torch.rand(()) + 0.5, torch.rand(130) + 0.5) if scaled else ()
    options = {"out_dtype": dtype, "out_scale": granularity, "use_ue8m0": granularity == "row", "activation": "relu"}

    def call(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> Any:
        return getattr(cleave.torch, name)(x, w, *scales, bias, 2, 1, **options)

    bias = torch.randn(130)
    expected = getattr(cleave, name)(x, w, *scales, bias, 2, 1, **options)
    for made in (call(x, w, bias), compiled(call, x, w, bias)):
        assert same(made, expected)


@cleave.epilogue
def shifted(acc, shift: cleave.row):
    return cleave.outputs(d=acc + shift, pre=acc)


def test_what_a_function_makes_beside_lies_between() -> None:
    x, w, shift = pixels(2, 16, 6, 5), pixels(130, 16, 3, 3), torch.randn(130)
    options = {"epilogue": shifted(shift=shift), "out_dtype": torch.int8, "out_scale": "row"}
    assert same(cleave.torch.conv2d(x, w, **options), cleave.conv2d(x, w, **options))
    assert cleave.torch.conv2d(x, w, out_scale=None).dtype == torch.float32
    with pytest.raises(ValueError, match="out_scale is 'block_128x128'; of a convolution"):
        cleave.torch.conv2d(x, w, out_dtype=torch.int8, out_scale="block_128x128")
    with pytest.raises(TypeError, match="out_dtype is None"):
        cleave.torch.conv2d(x, w, out_scale="row")


@pytest.mark.parametrize(("granularity", "dtype"), FOUND)
def test_groups_of_columns(granularity: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b, offs = torch.randn(2, 20, 16), torch.randn(16, 300), torch.tensor([70, 290], dtype=torch.int32)
    options = {"out_dtype": dtype, "out_scale": granularity}

    def call(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor) -> Any:
        return cleave.torch.grouped_gemm(a, b, offs, **options)

    expected = cleave.grouped_gemm(a, b, offs, **options)
    for made in (call(a, b, offs), compiled(call, a, b, offs)):
        assert same(made, expected)
