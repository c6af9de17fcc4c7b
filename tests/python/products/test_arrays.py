"""What is accepted as an array, and what comes back."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import cleave


def ones(*shape: int, dtype=np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


class Interface:
    """An array that speaks only NumPy's own protocol."""

    def __init__(self, array: np.ndarray, **changes):
        self._keep = array
        self.__array_interface__ = array.__array_interface__ | changes


class Capsule:
    """An array that speaks only DLPack, and not its newer keywords."""

    def __init__(self, array: np.ndarray):
        self._array = array

    def __dlpack__(self, stream=None):
        assert stream is None
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Broken(Interface):
    """DLPack that fails, as NumPy's does for dtypes that it lacks: the other protocol serves."""

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        raise BufferError("not exportable")


@pytest.mark.parametrize("wrap", [Interface, Capsule, Broken])
def test_protocols(wrap: type) -> None:
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.eye(3, dtype=np.float32)
    out = ones(2, 3)
    assert cleave.gemm(wrap(a), wrap(b), out=out) is out
    np.testing.assert_array_equal(out, a)


class Forged:
    """A capsule of DLPack's struct for two dimensions of float32, without strides, and with a shape if one is given."""

    def __init__(self, shape: tuple[int, ...] | None = None, lanes: int = 1):
        self._data, self._shape = (ctypes.c_float * 64)(), shape and (ctypes.c_int64 * len(shape))(*shape)
        host, form = 1, lanes << 48 | 32 << 40 | 2 << 32 | 2
        shape_at = ctypes.addressof(self._shape) if shape else 0
        self._tensor = (ctypes.c_int64 * 8)(ctypes.addressof(self._data), host, form, shape_at)

    def __dlpack__(self, **_) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self._tensor), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_forged_capsules() -> None:
    np.testing.assert_array_equal(cleave.gemm(ones(2, 3), Forged((3, 4))), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="b has 2 dimensions, but no shape"):
        cleave.gemm(ones(2, 3), Forged())
    with pytest.raises(TypeError, match="b is float32x4; it must be"):
        cleave.gemm(ones(2, 3), Forged((3, 4), lanes=4))
    with pytest.raises(ValueError, match="b is \\(-3, 4\\)"):
        cleave.gemm(ones(2, 3), Forged((-3, 4)))


def test_unknown_classes_need_an_out() -> None:
    with pytest.raises(ValueError, match="Capsule needs `out`"):
        cleave.gemm(Capsule(ones(2, 3)), ones(3, 4))


def test_subclasses_of_ndarray_give_ndarrays() -> None:
    class Named(np.ndarray):
        pass

    assert type(cleave.gemm(ones(2, 3).view(Named), ones(3, 4).view(Named))) is np.ndarray


def test_read_only_inputs() -> None:
    a, b, c, bias = ones(2, 3), ones(3, 4), ones(2, 4), ones(4)
    for array in (a, b, c, bias):
        array.flags.writeable = False
    assert (cleave.gemm(a, b, c=c, bias=bias) == 5).all()


@pytest.mark.parametrize("dtype", ["float16", np.float16, np.dtype(np.float16), "f16", "fp16"])
def test_out_dtype_spellings(dtype: object) -> None:
    assert cleave.gemm(ones(2, 3), ones(3, 4), out_dtype=dtype).dtype == np.float16


def test_bfloat16() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    a, b = ones(2, 3, dtype=bfloat16), ones(3, 4, dtype=bfloat16)
    assert cleave.gemm(a, b).dtype == bfloat16
    assert (cleave.gemm(a, b) == 3).all()
    assert cleave.gemm(a, b, out_dtype="float32").dtype == np.float32
    assert cleave.gemm(ones(2, 3), ones(3, 4), out_dtype=bfloat16).dtype == bfloat16


def test_raw_16_bit_elements_are_not_bfloat16() -> None:
    with pytest.raises(TypeError, match="a is uint16"):
        cleave.gemm(np.zeros((2, 3), "V2"), ones(3, 4))


def test_other_types_of_ml_dtypes_keep_their_names() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("float8_e4m3", "float8_e4m3fnuz", "int4"):
        a = np.ones((4, 4)).astype(getattr(ml_dtypes, name))
        with pytest.raises(TypeError, match=f"a is {name}; it must be"):
            cleave.gemm(a, a)


def test_out_may_be_cut_from_the_buffer_of_an_input() -> None:
    buffer = ones(4, 12)
    a, out = buffer[:, :6], buffer[:, 6:11]
    assert cleave.gemm(a, ones(6, 5), out=out) is out
    assert (out == 6).all() and (a == 1).all() and (buffer[:, 11] == 1).all()


def test_c_may_be_out() -> None:
    out = ones(2, 4)
    cleave.gemm(ones(2, 3), ones(3, 4), c=out, out=out, beta=10)
    assert (out == 13).all()


def test_batches_broadcast() -> None:
    a, b = np.arange(12, dtype=np.float32).reshape(2, 2, 3), np.eye(3, dtype=np.float32)
    np.testing.assert_array_equal(cleave.gemm(a, b), a)
    np.testing.assert_array_equal(cleave.gemm(b, a.swapaxes(1, 2)), a.swapaxes(1, 2))
    np.testing.assert_array_equal(cleave.gemm(a[:1], b), a[:1])
    expanded = np.broadcast_to(b, (2, 3, 3))
    np.testing.assert_array_equal(cleave.gemm(a, expanded), a)


def test_alpha_and_beta_take_any_number() -> None:
    for two in (2, 2.0, np.float32(2), np.int64(2), True + True):
        result = cleave.gemm(ones(1, 1), ones(1, 1), c=ones(1, 1), alpha=two, beta=two)
        assert result[0, 0] == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"data": None},
        {"data": (0, False)},
        {"data": ("x", False)},
        {"shape": None},
        {"shape": (2, -3)},
        {"shape": (2, 2.5)},
        {"shape": (2**62, 2**62)},
        {"strides": (4,)},
        {"strides": ("a", "b")},
        {"strides": (2**70, 4)},
        {"typestr": None},
        {"typestr": "<"},
        {"typestr": "<f999"},
        {"typestr": "<f\udcff"},
    ],
)
def test_senseless_array_interfaces(changes: dict) -> None:
    with pytest.raises((TypeError, ValueError)):
        cleave.gemm(Interface(ones(2, 3), **changes), ones(3, 4), out=ones(2, 4))


@pytest.mark.skipif(cleave.device_count() > 0, reason="this machine has a GPU")
def test_cuda_arrays_without_a_driver() -> None:
    class Claims:
        __cuda_array_interface__ = ones(2, 3).__array_interface__ | {"version": 3, "stream": 1}

    with pytest.raises(cleave.CudaError, match="no driver"):
        cleave.gemm(Claims(), ones(3, 4))


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    with jax.default_device(jax.devices("cpu")[0]):
        a, b = jax.numpy.ones((2, 3)), jax.numpy.ones((3, 4))
        d = cleave.gemm(a, b)
        assert type(d) is type(a) and (d == 3).all()
        with pytest.raises(ValueError, match="out is read-only"):
            cleave.gemm(a, b, out=jax.numpy.ones((2, 4)))
