"""4-bit weights: codes come back as they were packed, floats become the codes next to them, and mistakes are named."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import cleave
from cleave._weights import layout

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float64)
E2M1 = np.concatenate([E2M1, -E2M1])


def codes_of(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(rows * columns).integers(0, 16, (rows, columns), np.uint8)


def scales_of(groups: int, rows: int) -> np.ndarray:
    return np.random.default_rng(3).uniform(0.01, 0.1, (groups, rows)).astype(np.float16)


@pytest.fixture(params=["numpy", "torch"])
def framework(request: Any) -> Any:
    """From NumPy's arrays to those of a framework."""
    if request.param == "numpy":
        return lambda array: array
    return pytest.importorskip("torch").from_numpy


SHAPES = [(64, 64), (1, 32), (70, 96), (200, 256), (129, 2880)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_codes_come_back(rows: int, columns: int, framework: Any) -> None:
    codes = codes_of(rows, columns)
    packed = cleave.pack_weights(framework(codes), 32, scales=framework(scales_of(columns // 32, rows)))
    assert tuple(packed.packed.shape) == (-(-rows // 64), -(-columns // 64), 2048)
    assert (packed.shape, packed.group_size, packed.format) == ((rows, columns), 32, "int4")
    assert type(packed.packed) is type(framework(codes))
    np.testing.assert_array_equal(np.asarray(cleave.unpack_weights(packed)), codes)


def test_the_order_is_that_of_wgmmas_registers() -> None:
    """Every code's byte and the half of it, by the layout's own words."""
    rows, columns = 70, 160
    codes = codes_of(rows, columns)
    packed = cleave.pack_weights(codes, 32, scales=scales_of(5, rows)).packed
    words = packed.view("<u4").reshape(2, 3, 128, 4)
    for row in range(rows):
        for column in range(columns):
            warp, upper, g = row % 64 // 16, row % 16 // 8, row % 8
            step, right, c, odd = column % 64 // 16, column % 16 // 8, column % 8 // 2, column % 2
            word = int(words[row // 64, column // 64, 32 * warp + 4 * g + c, step])
            register = upper + 2 * right
            assert word >> 4 * register + 16 * odd & 15 == codes[row, column]
    blocks = layout.unpack_codes(packed, 128, 192)
    assert (blocks[rows:] == 8).all() and (blocks[:, columns:] == 8).all()


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_an_arrays_own_operations_pack_alike(rows: int, columns: int, framework: Any) -> None:
    """As on a GPU."""
    codes = framework(codes_of(rows, columns))
    packed = layout.pack_codes(codes, 8)
    anywhere = layout.pack_codes_anywhere(codes, 8)
    np.testing.assert_array_equal(np.asarray(anywhere), np.asarray(packed))
    np.testing.assert_array_equal(np.asarray(layout.unpack_codes_anywhere(packed, rows, columns)), np.asarray(codes))


def test_views_are_packed_as_they_read() -> None:
    codes = codes_of(128, 70)
    scales = scales_of(70, 2)
    packed = cleave.pack_weights(codes.T[:, ::2], 64, scales=scales.T[:1, :].repeat(1, 0)[:, :70])
    np.testing.assert_array_equal(cleave.unpack_weights(packed), codes.T[:, ::2])
    assert packed.scales.flags.c_contiguous


def test_signed_values_are_codes_less_8(framework: Any) -> None:
    codes, scales = codes_of(64, 128), scales_of(1, 64)
    signed = (codes.astype(np.int8) - 8).astype(np.int8)
    packed = cleave.pack_weights(framework(signed), scales=framework(scales))
    np.testing.assert_array_equal(np.asarray(cleave.unpack_weights(packed)), codes)
    zeros = codes_of(1, 64)
    signed_zeros = (zeros.astype(np.int8) - 8).astype(np.int8)
    packed = cleave.pack_weights(framework(signed), scales=framework(scales), zeros=framework(signed_zeros))
    np.testing.assert_array_equal(np.asarray(packed.zeros), zeros)


@pytest.mark.parametrize("group", [32, 64, 128, 256, -1])
@pytest.mark.parametrize("has_zeros", [False, True])
def test_what_codes_stand_for(group: int, has_zeros: bool, framework: Any) -> None:
    rows, columns = 70, 512
    groups = 1 if group == -1 else columns // group
    codes, scales = codes_of(rows, columns), scales_of(groups, rows)
    zeros = codes_of(groups, rows) if has_zeros else None
    packed = cleave.pack_weights(
        framework(codes), group, scales=framework(scales), zeros=None if zeros is None else framework(zeros)
    )
    zero = 8.0 if zeros is None else zeros.astype(np.float64).T.repeat(columns // groups, 1)
    expected = (codes - zero) * scales.astype(np.float64).T.repeat(columns // groups, 1)
    np.testing.assert_array_equal(np.asarray(cleave.dequantize_weights(packed)), expected)
    half = cleave.dequantize_weights(packed, "float16")
    np.testing.assert_array_equal(np.asarray(half), expected.astype(np.float16))
    assert packed.group_size == columns // groups


def test_columns_of_groups_in_any_order(framework: Any) -> None:
    """Act-order: g_idx says which group a column is in; the codes come back in the order that was given."""
    rows, columns, group = 48, 128, 32
    codes, scales, zeros = codes_of(rows, columns), scales_of(4, rows), codes_of(4, rows)
    g_idx = np.random.default_rng(5).permutation(np.arange(columns) // group).astype(np.int32)
    packed = cleave.pack_weights(
        framework(codes), group, scales=framework(scales), zeros=framework(zeros), g_idx=framework(g_idx)
    )
    perm = np.asarray(packed.perm)
    assert perm.dtype == np.int32 and sorted(perm.tolist()) == list(range(columns))
    np.testing.assert_array_equal(g_idx[perm], np.arange(columns) // group)
    np.testing.assert_array_equal(np.asarray(cleave.unpack_weights(packed)), codes)
    expected = (codes - zeros.astype(np.float64)[g_idx].T) * scales.astype(np.float64)[g_idx].T
    np.testing.assert_array_equal(np.asarray(cleave.dequantize_weights(packed)), expected)
    # What is multiplied: columns as they are packed, by x's in the same order.
    plain = dataclasses.replace(packed, perm=None)
    x = np.random.default_rng(6).standard_normal((3, columns))
    found = x[:, perm] @ np.asarray(cleave.dequantize_weights(plain)).astype(np.float64).T
    np.testing.assert_allclose(found, x @ expected.T, rtol=1e-12)
    sorted_ones = np.arange(columns, dtype=np.int32) // group
    packed = cleave.pack_weights(framework(codes), group, scales=framework(scales), g_idx=framework(sorted_ones))
    assert packed.perm is None


@pytest.mark.parametrize("group", [32, 64, 128, -1])
def test_floats_become_the_codes_next_to_them(group: int, framework: Any) -> None:
    rows, columns = 70, 256
    weight = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    weight[3] = 0
    packed = cleave.pack_weights(framework(weight), group, scale_dtype="float16")
    size = packed.group_size
    grouped = weight.astype(np.float64).reshape(rows, -1, size)
    scales = (abs(grouped).max(2) / 7.5).astype(np.float16).T
    np.testing.assert_allclose(np.asarray(packed.scales).astype(float), scales.astype(float), rtol=1e-3)
    found = np.asarray(cleave.dequantize_weights(packed)).astype(np.float64)
    step = np.asarray(packed.scales).astype(np.float64).T.repeat(size, 1)
    assert (abs(found - weight) <= 0.504 * step).all()
    assert (found[3] == 0).all() and (np.asarray(cleave.unpack_weights(packed))[3] == 8).all()


def test_scales_have_the_weights_dtype_by_default() -> None:
    torch = pytest.importorskip("torch")
    weight = torch.randn(64, 128, requires_grad=True)
    assert cleave.pack_weights(weight).scales.dtype == torch.bfloat16
    assert cleave.pack_weights(weight.half()).scales.dtype == torch.float16
    assert cleave.pack_weights(weight, scale_dtype=torch.float16).scales.dtype == torch.float16
    assert cleave.pack_weights(torch.nn.Parameter(weight)).packed.requires_grad is False
    assert cleave.pack_weights(weight.detach().numpy()).scales.dtype == np.float16


def test_mxfp4_has_ocps_exponents(framework: Any) -> None:
    rows, columns = 40, 96
    weight = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    weight *= np.exp2(np.random.default_rng(2).integers(-20, 20, (rows, 1))).astype(np.float32)
    weight[5, :32] = 0
    packed = cleave.pack_weights(framework(weight), format="mxfp4")
    assert packed.group_size == 32
    grouped = weight.astype(np.float64).reshape(rows, 3, 32)
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log2(abs(grouped).max(2))) - 2
    exponent[5, 0] = 0
    np.testing.assert_array_equal(np.asarray(packed.scales), (exponent + 127).T.astype(np.uint8))
    scaled = (grouped / np.exp2(exponent)[:, :, None]).reshape(rows, columns)
    found = np.asarray(cleave.dequantize_weights(packed)).astype(np.float64)
    codes = np.asarray(cleave.unpack_weights(packed))
    np.testing.assert_array_equal(found, E2M1[codes] * np.exp2(exponent).repeat(32, 1))
    # None of the 16 values is nearer.
    distance = abs(np.clip(scaled, -6, 6)[:, :, None] - E2M1)
    chosen = np.take_along_axis(distance, codes[:, :, None].astype(int), 2)[:, :, 0]
    np.testing.assert_array_equal(chosen, distance.min(2))


def test_e2m1_rounds_ties_to_even() -> None:
    ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
    weight = np.zeros((1, 32), np.float32)
    weight[0, : len(ties)] = ties
    weight[0, -1] = 6  # so that the scale is 1
    values = np.asarray(cleave.dequantize_weights(cleave.pack_weights(weight, format="mxfp4")))
    assert values[0, : len(ties)].tolist() == [0, 1, 1, 2, 2, 4, 4]
    values = np.asarray(cleave.dequantize_weights(cleave.pack_weights(-weight, format="mxfp4")))
    assert values[0, : len(ties)].tolist() == [0, -1, -1, -2, -2, -4, -4]


def test_nvfp4_has_two_scales() -> None:
    torch = pytest.importorskip("torch")
    rows, columns = 70, 64
    weight = torch.randn(rows, columns, dtype=torch.float64) * 3
    weight[2] = 0
    packed = cleave.pack_weights(weight, format="nvfp4")
    assert packed.group_size == 16 and packed.scales.dtype == torch.float8_e4m3fn
    assert packed.global_scale.item() == pytest.approx(float(weight.abs().max()) / (6 * 448), rel=1e-6)
    amax = weight.reshape(rows, 4, 16).abs().amax(2)
    expected = (amax / 6 / packed.global_scale.double()).to(torch.float8_e4m3fn).float()
    torch.testing.assert_close(packed.scales.float().T, expected, rtol=0.07, atol=0)
    assert float(packed.scales.float().max()) == 448
    step = (packed.scales.double() * packed.global_scale).T.repeat_interleave(16, 1)
    found = cleave.dequantize_weights(packed)
    values = torch.from_numpy(E2M1)[cleave.unpack_weights(packed).long()] * step
    torch.testing.assert_close(found.double(), values, rtol=2e-7, atol=0)
    # Between 4 and 6 codes are two steps apart; a rounded scale may leave a sixteenth more beyond 6.
    assert bool(((found - weight).abs() <= 1.4 * step).all())
    assert not found[2].any()


def test_codes_of_fp4_keep_their_scales() -> None:
    torch = pytest.importorskip("torch")
    codes = torch.from_numpy(codes_of(40, 64))
    exponents = torch.randint(110, 140, (2, 40), dtype=torch.uint8)
    packed = cleave.pack_weights(codes, format="mxfp4", scales=exponents.view(torch.float8_e8m0fnu))
    assert torch.equal(packed.scales, exponents) and torch.equal(cleave.unpack_weights(packed), codes)
    scales = torch.rand(4, 40).to(torch.float8_e4m3fn)
    packed = cleave.pack_weights(codes, format="nvfp4", scales=scales, global_scale=torch.tensor(0.25))
    values = torch.from_numpy(E2M1)[codes.long()] * scales.double().T.repeat_interleave(16, 1) * 0.25
    assert torch.equal(cleave.dequantize_weights(packed).double(), values)


@pytest.mark.parametrize("format", ["int4", "mxfp4", "nvfp4"])
def test_experts_are_packed_one_by_one(format: str) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.randn(3, 70, 96)
    packed = cleave.pack_weights(weight, 32 if format == "int4" else None, format)
    assert packed.shape == (3, 70, 96) and packed.packed.shape == (3, 2, 2, 2048)
    alone = [cleave.pack_weights(each, packed.group_size, format) for each in weight]
    for name in ("packed", "scales", "global_scale"):
        whole, parts = getattr(packed, name), [getattr(each, name) for each in alone]
        assert (whole is None) == (parts[0] is None)
        if whole is not None:
            parts = torch.cat(parts) if name == "global_scale" else torch.stack(parts)
            assert torch.equal(whole.view(torch.uint8), parts.view(torch.uint8))
    codes = cleave.unpack_weights(packed)
    assert torch.equal(codes, torch.stack([cleave.unpack_weights(each) for each in alone]))
    values = cleave.dequantize_weights(packed)
    assert torch.equal(values, torch.stack([cleave.dequantize_weights(each) for each in alone]))
    same = cleave.pack_weights(codes, packed.group_size, format, scales=packed.scales, global_scale=packed.global_scale)
    assert torch.equal(same.packed, packed.packed) and torch.equal(cleave.dequantize_weights(same), values)


def test_mistakes_with_experts_are_named() -> None:
    codes, scales = np.stack([codes_of(64, 128)] * 3), np.stack([scales_of(1, 64)] * 3)
    with pytest.raises(ValueError, match="scales must have one for each of the 3 experts"):
        cleave.pack_weights(codes, scales=scales[0])
    with pytest.raises(ValueError, match="g_idx is given, but weight is of experts"):
        cleave.pack_weights(codes, scales=scales, g_idx=np.zeros(128, np.int32))
    with pytest.raises(ValueError, match="perm is given, but a weight of experts has none"):
        dataclasses.replace(cleave.pack_weights(codes, scales=scales), perm=np.arange(128, dtype=np.int32))


def good(**changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {"weight": codes_of(64, 256), "group_size": 128, "scales": scales_of(2, 64)}
    return {name: value for name, value in (arguments | changes).items() if value is not ...}


def floats(weight: np.ndarray, **options: Any) -> dict[str, Any]:
    return {"weight": weight, **options}


def with_value(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array[1, 2] = value
    return array


W = np.ones((64, 256), np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (good(group_size=96), ValueError, r'96; in format "int4" it is 128, 64, 32, a multiple of 128, or -1 for'),
        (good(group_size="128"), ValueError, "group_size is '128'"),
        (good(weight=codes_of(64, 200)), ValueError, r"128, which does not divide K = 200; pass -1, or pad the weight"),
        (good(weight=codes_of(64, 160)), ValueError, r"does not divide K = 160; pass 32 or -1"),
        (floats(W[:, :40], format="mxfp4"), ValueError, r"32, which does not divide K = 40; pad the weight and x"),
        (good(format="int5"), ValueError, "did you mean \"int4\""),
        (good(weight=codes_of(4, 8)[0]), ValueError, r"weight is \[8\]; it must be \[N, K\] .* or \[E, N, K\]"),
        (good(weight=codes_of(64, 256)[:0]), ValueError, "none of them 0"),
        (good(weight=codes_of(64, 256).astype(np.int32)), TypeError, "weight is int32; pass floats, .* as uint8"),
        (good(weight=[[1]]), TypeError, "weight is list; it must be a torch tensor or a NumPy array"),
        (good(weight=codes_of(64, 256) + 16), ValueError, "weight has .*; uint8 is from 0 to 15; packed bytes"),
        (good(weight=codes_of(64, 256).astype(np.int8)), ValueError, "weight has 15; int8 is from -8 to 7"),
        (good(scales=None), ValueError, "scales is None, but weight has codes"),
        (good(scales=scales_of(64, 2)), ValueError, r"scales is \[64, 2\]; .* = \[2, 64\]: transpose it"),
        (good(scales=scales_of(3, 64)), ValueError, r"is \[3, 64\]; it must be \[K / group_size, N\] = \[2, 64\]$"),
        (good(scales=scales_of(2, 64).astype(np.float32)), TypeError, "scales are float32; .* bfloat16 or float16"),
        (good(scales=with_value(scales_of(2, 64), np.nan)), ValueError, r"scales\[1, 2\] is nan"),
        (good(scales=with_value(scales_of(2, 64), np.inf)), ValueError, r"is inf; in float16 they are finite: mend"),
        (good(zeros=codes_of(2, 64) + 16), ValueError, "zeros has .*; uint8 is from 0 to 15$"),
        (good(zeros=codes_of(64, 2)), ValueError, r"zeros is \[64, 2\].*transpose"),
        (good(zeros=codes_of(2, 64).astype(np.float16)), TypeError, "zeros is float16; it must be uint8"),
        (good(g_idx=np.zeros(256, np.int32)), ValueError, "column 128 in group 0, .* group_size = 128 columns"),
        (good(g_idx=np.arange(256) // 64), ValueError, "group_size that it was made with"),
        (good(g_idx=np.zeros(64, np.int32)), ValueError, r"g_idx is \[64\], int32; it must be \[256\], of integers"),
        (good(g_idx=np.zeros(256)), ValueError, "float64; .* of integers"),
        (good(scale_dtype="float16"), ValueError, "scale_dtype is given, but weight has codes"),
        (good(global_scale=1.0), ValueError, 'global_scale is given, but format is "int4"'),
        (floats(W, scales=scales_of(2, 64)), ValueError, "scales is given, but weight is float32"),
        (floats(W, scale_dtype="int8"), ValueError, 'scale_dtype is int8; in format "int4" it is bfloat16 or'),
        (floats(W, scale_dtype="half"), TypeError, "scale_dtype is half; it must be float16"),
        (floats(W, scale_dtype="float16", format="mxfp4"), ValueError, "are uint8; leave it out"),
        (floats(with_value(W, np.nan)), ValueError, "weight has 1 elements that are NaN or infinite"),
        (floats(W * 1e7), ValueError, "in which the weight's scales are infinite; pass 'bfloat16'"),
        (good(format="mxfp4", group_size=32, scales=np.full((8, 64), 255, np.uint8)), ValueError, r"s\[0, 0\] is NaN"),
        (
            good(format="mxfp4", group_size=32, scales=np.zeros((8, 64), np.uint8), zeros=codes_of(8, 64)),
            ValueError,
            'zeros are given, but format is "mxfp4"',
        ),
        (good(format="mxfp4", group_size=32, weight=codes_of(64, 256).astype(np.int8)), TypeError, "pass .* as uint8"),
    ],
)  # fmt: skip
def test_mistakes_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message), np.errstate(over="ignore"):
        cleave.pack_weights(**arguments)


def test_mistakes_of_frameworks_and_scales_are_named() -> None:
    torch = pytest.importorskip("torch")
    codes = torch.from_numpy(codes_of(64, 256))
    with pytest.raises(TypeError, match="scales is ndarray, weight Tensor; pass arrays of one framework"):
        cleave.pack_weights(codes, scales=scales_of(2, 64))
    scales = torch.ones(16, 64).to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match="global_scale is None"):
        cleave.pack_weights(codes, format="nvfp4", scales=scales)
    for value in (0.0, float("nan"), -1.0):
        with pytest.raises(ValueError, match="positive and finite"):
            cleave.pack_weights(codes, format="nvfp4", scales=scales, global_scale=value)
    with pytest.raises(ValueError, match="scales is on meta, weight on cpu"):
        cleave.pack_weights(codes, scales=torch.empty(2, 64, dtype=torch.float16, device="meta"))


def test_scales_of_bfloat16_have_a_limit() -> None:
    torch = pytest.importorskip("torch")
    codes, scales = torch.from_numpy(codes_of(64, 128)), torch.full((1, 64), 2.0**20, dtype=torch.bfloat16)
    cleave.pack_weights(codes, scales=scales)
    scales[0, 5] = -(2.0**21)
    with pytest.raises(ValueError, match=r"scales\[0, 5\] is -2097152.0; in bfloat16 they are finite and below 2\^21"):
        cleave.pack_weights(codes, scales=scales)
    with pytest.raises(ValueError, match="below"):
        cleave.pack_weights(torch.full((64, 128), 1e8))


def test_a_misspelt_keyword_is_explained() -> None:
    with pytest.raises(TypeError, match="scales"):
        cleave.pack_weights(**good(scales=..., scale=scales_of(2, 64)))


def test_parts_that_do_not_fit_together_are_refused() -> None:
    packed = cleave.pack_weights(**good(zeros=codes_of(2, 64)))
    assert repr(packed) == "PackedWeights(shape=(64, 256), format='int4', group_size=128, zeros, device='cpu')"
    for changes, error, message in (
        ({"version": 2}, ValueError, "version is 2, but this Cleave reads .* version 1; pack the weight anew"),
        ({"group_size": 96}, ValueError, "96, which does not divide K = 256"),
        ({"group_size": 0}, ValueError, "group_size is 0"),
        ({"shape": (128, 256)}, ValueError, r"packed is \[1, 4, 2048\]; .* it must be \[2, 4, 2048\]"),
        ({"scales": scales_of(4, 64)}, ValueError, r"scales is \[4, 64\]"),
        ({"scales": None}, ValueError, "scales is None"),
        ({"packed": [1]}, TypeError, "packed is list; it must be a torch tensor or a NumPy array"),
        ({"zeros": scales_of(2, 64)}, TypeError, "zeros is float16; it must be uint8"),
        ({"perm": np.arange(256)}, TypeError, "perm is int64; it must be int32"),
        (
            {"perm": np.arange(256, dtype=np.int32) // 2},
            ValueError,
            r"perm\[1\] is 0, which is there before; each of the",
        ),
        (
            {"perm": np.arange(256, dtype=np.int32) + 1},
            ValueError,
            r"perm\[255\] is 256; it must name a column, 0 to 255",
        ),
        ({"format": "mxfp4"}, TypeError, "scales is float16; it must be uint8"),
        ({"format": "mx4"}, ValueError, 'did you mean "mxfp4"'),
        ({"global_scale": np.ones(1, np.float32)}, ValueError, "global_scale is given"),
        ({"shape": None}, TypeError, r"shape is None; it must be \(N, K\), or \(E, N, K\) of experts"),
        ({"group_size": None}, TypeError, "group_size is None; it must be an integer"),
        ({"gated": "no"}, TypeError, "gated is 'no'; it must be True or False"),
    ):
        with pytest.raises(error, match=message):
            dataclasses.replace(packed, **changes)


def test_a_packed_array_that_was_resized_is_not_read_beyond_its_end() -> None:
    packed = cleave.pack_weights(codes_of(64, 128), scales=scales_of(1, 64))
    packed.packed.resize((1, 1, 2048), refcheck=False)
    with pytest.raises(ValueError, match=r"packed is \(1, 1, 2048\) and codes are \(64, 128\), which take 4096 bytes"):
        cleave.unpack_weights(packed)


@pytest.mark.parametrize("function", [cleave.unpack_weights, cleave.dequantize_weights])
def test_what_is_no_packed_weight_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="weights is ndarray; it must be a PackedWeights"):
        function(np.ones((64, 128), np.float32))
