#include "array/stream.h"

#include "cleave/gemm.h"
#include "module/errors.h"
#include "runtime/context.h"
#include "runtime/driver.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

/// The attribute, or a null object if there is none or its getter raises.
nb::object attribute(nb::handle object, const char* name) {
  PyObject* value = PyObject_GetAttrString(object.ptr(), name);
  if (!value) PyErr_Clear();
  return nb::steal(value);
}

bool is_integer(nb::handle value) {
  return value.is_valid() && PyIndex_Check(value.ptr());
}

void* handle_from_int(nb::handle value) {
  const nb::object integer = nb::steal(PyNumber_Index(value.ptr()));
  if (!integer.is_valid()) throw nb::python_error();
  void* handle = PyLong_AsVoidPtr(integer.ptr());
  if (PyErr_Occurred() || intptr_t(handle) < 0) {
    PyErr_Clear();
    refuse_value("stream is {}, which is no stream's handle; pass a stream object", nb::str(value).c_str());
  }
  return handle;
}

/// The integer behind an object with the protocol `__cuda_stream__`: (version, handle), from a
/// method or a property.
nb::object protocol_handle(nb::handle stream) {
  nb::object pair = attribute(stream, "__cuda_stream__");
  if (pair.is_valid() && PyCallable_Check(pair.ptr())) pair = pair();
  if (!pair.is_valid() || !PyTuple_Check(pair.ptr()) || PyTuple_Size(pair.ptr()) != 2) return {};
  return nb::borrow(PyTuple_GetItem(pair.ptr(), 1));
}

}  // namespace

std::optional<void*> parse_stream(nb::handle stream) {
  if (stream.is_none()) return std::nullopt;
  if (PyLong_CheckExact(stream.ptr())) return handle_from_int(stream);
  if (!PyBool_Check(stream.ptr())) {
    // torch, CuPy, then Numba and cuda.core, whose handles are integers in a box.
    for (const char* name : {"cuda_stream", "ptr", "handle"}) {
      nb::object value = attribute(stream, name);
      if (value.is_valid() && nb::hasattr(value, "value")) value = attribute(value, "value");
      if (value.is_none() && value.is_valid()) return nullptr;  // ctypes reads a null pointer as None
      if (is_integer(value)) return handle_from_int(value);
    }
    nb::object value = protocol_handle(stream);
    if (is_integer(value)) return handle_from_int(value);
  }
  refuse_type("stream must be an integer handle or a stream of torch, CuPy, Numba or cuda.core, got {}",
              class_name(stream));
}

void synchronize(int device, void* stream) {
  if (device == kCpu) return;
  const nb::gil_scoped_release unlocked;
  const ContextGuard guard(device);
  check(driver().stream_synchronize(static_cast<CUstream>(stream)), "cuStreamSynchronize");
}

}  // namespace cleave::python
