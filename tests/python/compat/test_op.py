"""cleave.op: CUTLASS's vocabulary."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import cleave
from cleave import DataType, LayoutType


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_the_usual_call() -> None:
    A, B, C, D = f32(4, 64), f32(64, 5), f32(4, 5), np.zeros((4, 5), np.float32)
    plan = cleave.op.Gemm(element=np.float32, layout=LayoutType.RowMajor)
    arguments = plan.run(A, B, C, D, alpha=2.0, beta=3.0, split_k_mode="serial", split_k_slices=4)
    assert arguments.D is D
    arguments.sync()
    assert (D == 131).all()


def test_c_is_not_read_without_beta() -> None:
    D = np.zeros((4, 5), np.float32)
    cleave.op.Gemm(element="float32").run(f32(4, 6), f32(6, 5), np.full_like(D, np.nan), D)
    assert (D == 6).all()


def test_by_example() -> None:
    plan = cleave.op.Gemm(A=f32(4, 6), B=f32(6, 5), alpha=0.5)
    assert (plan.run().D == 3).all()
    assert (plan.run(alpha=1.0).D == 6).all()


def test_element_d_is_the_type_of_a_new_d() -> None:
    plan = cleave.op.Gemm(element=DataType.f32, element_D=DataType.f16)
    assert plan.run(f32(4, 6), f32(6, 5)).D.dtype == np.float16


def test_activation() -> None:
    plan = cleave.op.Gemm()

    class relu:
        """As cutlass.epilogue names them."""

    for value, expected in (("relu", 0), (relu, 0), ("identity", -6), ("none", -6)):
        plan.activation = value
        D = plan.run(f32(4, 6), -f32(6, 5)).D
        np.testing.assert_array_equal(D, np.full((4, 5), expected))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("activaton", "'activaton'. Did you mean 'activation'?"),
        ("Alpha", "'Alpha'. Did you mean 'alpha'?"),
        ("split_k_slice", "'split_k_slice'; pass split_k_slices to run"),
        ("split_k_mode", "'split_k_mode'; pass split_k_mode to run"),
        ("xyz", "'xyz'; it has activation, alpha, beta, and run has arguments"),
    ],
)
@pytest.mark.parametrize("kind", ["Gemm", "ScaledGemm", "GroupedGemm"])
def test_a_mistyped_attribute_is_refused(kind: str, name: str, meant: str) -> None:
    plan = getattr(cleave.op, kind)()
    with pytest.raises(AttributeError) as caught:
        setattr(plan, name, 4)
    assert str(caught.value) == f"{kind} has no attribute {meant}"


@pytest.mark.parametrize("kind", ["Conv2dFprop", "Conv2dDgrad", "Conv2dWgrad"])
def test_convolutions_refuse_it_too(kind: str) -> None:
    plan = getattr(cleave.op, kind)()
    plan.beta = 1.0
    with pytest.raises(AttributeError, match=f"{kind} has no attribute 'dilaton'; pass dilation"):
        plan.dilaton = 2


def test_a_class_derived_from_them_has_attributes_of_its_own() -> None:
    class Mine(cleave.op.Gemm):
        pass

    plan = Mine()
    plan.note = "mine"
    assert copy.deepcopy(plan).note == "mine"


def test_print_module(capsys: pytest.CaptureFixture) -> None:
    cleave.op.Gemm().run(f32(4, 6), f32(6, 5), print_module=True)
    assert capsys.readouterr().out == "\n"  # the CPU backend has no source


@pytest.mark.parametrize("layout", list(LayoutType))
def test_layouts_are_checked(layout: LayoutType) -> None:
    matrices = {LayoutType.RowMajor: f32(4, 6), LayoutType.ColumnMajor: f32(6, 4).T}
    plan = cleave.op.Gemm(layout_A=layout)
    for actual, A in matrices.items():
        if actual is layout:
            assert (plan.run(A, f32(6, 5)).D == 6).all()
        else:
            with pytest.raises(ValueError, match=f"A has strides .* not {layout.name}"):
                plan.run(A, f32(6, 5))


def test_a_result_cannot_be_had_in_a_copy() -> None:
    with pytest.raises(ValueError, match=r"D has strides \(1, 4\).* copy the result from it"):
        cleave.op.Gemm(layout_C=LayoutType.RowMajor).run(f32(4, 6), f32(6, 5), D=f32(5, 4).T)


def test_vectors_have_either_layout() -> None:
    for layout in LayoutType:
        assert cleave.op.Gemm(layout_A=layout).run(f32(1, 6), f32(6, 5)).D.shape == (1, 5)


def test_layouts_of_cutlass_itself() -> None:
    import enum

    Theirs = enum.Enum("LayoutType", ["ColumnMajor", "RowMajor"])
    assert cleave.op.Gemm(layout=Theirs.RowMajor).run(f32(4, 6), f32(6, 5)).D.shape == (4, 5)


def test_errors() -> None:
    with pytest.raises(TypeError, match="A is float32, but this Gemm is for float16"):
        cleave.op.Gemm(element=np.float16).run(f32(4, 6), f32(6, 5))
    with pytest.raises(TypeError, match="element is float64"):
        cleave.op.Gemm(element=np.float64)
    with pytest.raises(TypeError, match="element_accumulator"):
        cleave.op.Gemm(element_accumulator=DataType.f16)
    with pytest.raises(TypeError, match="element_accumulator is int32, but products of float32"):
        cleave.op.Gemm(element_accumulator=DataType.s32).run(f32(4, 6), f32(6, 5))
    with pytest.raises(ValueError, match="RowMajor or ColumnMajor"):
        cleave.op.Gemm(layout="diagonal")
    with pytest.raises(TypeError, match="B is missing"):
        cleave.op.Gemm().run(f32(4, 6))
    with pytest.raises(ValueError, match="activation"):
        plan = cleave.op.Gemm()
        plan.activation = "tan"
        plan.run(f32(4, 6), f32(6, 5))
    with pytest.raises(ValueError, match="split_k_slices"):
        cleave.op.Gemm().run(f32(4, 6), f32(6, 5), split_k_slices=0)
    with pytest.raises(ValueError, match="pass c"):
        cleave.op.Gemm().run(f32(4, 6), f32(6, 5), beta=1.0)


def int8(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int8)


def test_products_of_integers() -> None:
    plan = cleave.op.Gemm(element_A=DataType.s8, element_B=DataType.s8, element_accumulator=DataType.s32)
    D = plan.run(int8(4, 6), int8(6, 5)).D
    assert D.dtype == np.int32 and (D == 6).all()


def test_scaled_gemm() -> None:
    plan = cleave.op.ScaledGemm(element=DataType.s8, layout_A=LayoutType.RowMajor, element_D="float32", alpha=2.0)
    plan.activation = "relu"
    A, B, C = int8(4, 6), int8(6, 5), f32(4, 5)
    scales = {"scale_A": 3 * f32(4, 1), "scale_B": f32(1, 5) / 2}
    assert (plan.run(A, B, **scales).D == 18).all()
    done = plan.run(A, B, C, beta=-4.0, bias=f32(5), **scales, split_k_mode="serial")
    assert done.D.dtype == np.float32 and (done.D == 15).all()
    azp, azp_adj = np.full(4, 2, np.int32), np.full(5, 6, np.int32)
    amax = np.zeros(1, np.float32)
    D = int8(4, 5)
    plan = cleave.op.ScaledGemm(A=A, B=B)
    plan.run(D=D, azp=azp, azp_adj=azp_adj, scale_D=f32(1) / 4, amax=amax, **scales)
    assert (D == -36).all() and amax[0] == 9


def test_grouped_gemm() -> None:
    plan = cleave.op.GroupedGemm(element="float32", layout_A=LayoutType.RowMajor)
    plan.activation = "relu"
    ends = np.array([2, 2, 5])
    A, B, C, bias = f32(6, 4), f32(3, 4, 5) * [[[1]], [[9]], [[-2]]], f32(6, 5), f32(3, 5)
    B, bias[2] = B.astype(np.float32), 7
    expected = np.zeros((6, 5))
    expected[:2], expected[2:5] = 4 + 2 + 1, -8 + 2 + 7
    D = plan.run(A, B, C, beta=2.0, offs=ends, bias=bias).D
    np.testing.assert_array_equal(D, expected)
    D = np.full((6, 5), 3, np.float32)
    plan.run(A, B, C, D, beta=2.0, offs=ends, bias=bias, split_k_mode="serial").sync()
    assert (D[:5] == expected[:5]).all() and (D[5] == 3).all()


def test_grouped_gemm_in_every_form(capsys: pytest.CaptureFixture) -> None:
    plan = cleave.op.GroupedGemm()
    bounds = {"starts": np.array([0, 3]), "sizes": np.array([3, 1])}
    D = plan.run(f32(5, 4), f32(4, 6), **bounds).D
    np.testing.assert_array_equal(D, np.repeat([3, 1], 30).reshape(2, 5, 6))
    counts = np.array([2, 0])
    D = plan.run(f32(2, 3, 4), f32(2, 4, 5), counts=counts, print_module=True, zero_rest=True).D
    assert (D[0, :2] == 4).all() and D.sum() == 4 * 2 * 5
    assert capsys.readouterr().out == "\n"
    int8 = np.ones((6, 4), np.int8), np.ones((2, 4, 5), np.int8)
    scales = {"scale_A": f32(6, 1), "scale_B": 3 * f32(2, 5)}
    plan = cleave.op.GroupedGemm(element_D="float32")
    assert (plan.run(*int8, indptr=np.array([0, 3, 6]), **scales).D == 12).all()


def test_grouped_gemm_checks_as_gemm_does() -> None:
    with pytest.raises(TypeError, match="A is missing; pass it to run or to GroupedGemm"):
        cleave.op.GroupedGemm().run(offs=np.array([1]))
    with pytest.raises(ValueError, match=r"offs\[1\] is 2, but offs\[0\] is 4"):
        plan = cleave.op.GroupedGemm(A=f32(5, 4), B=f32(2, 4, 3))
        plan.run(offs=np.array([4, 2]), check_offsets=True)


def test_scaled_gemm_checks_as_gemm_does(capsys: pytest.CaptureFixture) -> None:
    scales = {"scale_A": f32(1), "scale_B": f32(1)}
    with pytest.raises(TypeError, match="B is float32, but this ScaledGemm is for int8"):
        cleave.op.ScaledGemm(element=np.int8).run(int8(4, 6), f32(6, 5), **scales)
    with pytest.raises(TypeError, match="element_accumulator is float32, but products of int8"):
        cleave.op.ScaledGemm(element_accumulator="float32").run(int8(4, 6), int8(6, 5), **scales)
    with pytest.raises(TypeError, match="A is missing; pass it to run or to ScaledGemm"):
        cleave.op.ScaledGemm().run(**scales)
    D = f32(4, 5)
    cleave.op.ScaledGemm().run(int8(4, 6), int8(6, 5), D=D, print_module=True, **scales)
    assert (D == 6).all() and capsys.readouterr().out == "\n"


X, W, Y = (np.moveaxis(np.ones(shape, np.float32), -1, 1) for shape in ((2, 5, 5, 4), (8, 3, 3, 4), (2, 3, 3, 8)))
CONVOLUTIONS = {
    "Conv2dFprop": (X, W, Y, lambda **options: cleave.conv2d(X, W, **options)),
    "Conv2dDgrad": (Y, W, X, lambda **options: cleave.conv2d_dgrad(X.shape, W, Y, **options)),
    "Conv2dWgrad": (Y, X, W, lambda **options: cleave.conv2d_wgrad(X, W.shape, Y, **options)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    A, B, C, function = CONVOLUTIONS[name]
    plan = getattr(cleave.op, name)(element=np.float32, element_accumulator=np.float32)
    D = np.zeros_like(C)
    run = plan.run(A, B, C, D, beta=2.0, alpha=0.5, padding=(1, 1), stride=(2, 2), split_k=("serial", 2))
    assert run.D is D
    expected = function(stride=2, padding=1, c=C, alpha=0.5, beta=2.0)
    np.testing.assert_array_equal(D, expected)
    construct = plan.construct(A, B, D=D, stride=2, padding=1, split_k=("parallel", 3))
    assert (construct.split_k_mode, construct.split_k_slices) == ("parallel", 3)
    if name == "Conv2dFprop":
        assert plan.run(A, B, padding=1, stride=2).D.shape == C.shape
    else:
        with pytest.raises(TypeError, match="D is missing"):
            plan.run(A, B, stride=2, padding=1)
        assert plan.run(A, B, stride=2, padding=1, size=C.shape).D.shape == C.shape


def test_convolutions_check_their_arguments() -> None:
    plan = cleave.op.Conv2dFprop(element=np.float16)
    with pytest.raises(TypeError, match="A is float32, but this Conv2dFprop is for float16"):
        plan.run(X, W)
    with pytest.raises(TypeError, match="split_k is 4; it must be a mode and a number"):
        cleave.op.Conv2dFprop().run(X, W, split_k=4)
    with pytest.raises(TypeError, match="leave size out"):
        cleave.op.Conv2dFprop().run(X, W, size=Y.shape)
    wgrad = cleave.op.Conv2dWgrad()
    wgrad.activation = "relu"
    with pytest.raises(ValueError, match="activation is relu, but Conv2dWgrad has none"):
        wgrad.run(Y, X, W, np.zeros_like(W), stride=2, padding=1)
