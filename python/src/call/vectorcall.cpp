#include "call/vectorcall.h"

#ifdef Py_LIMITED_API

#include "call/beyond_stable_abi.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

auto* const python_entry_of = exported_by_python<vectorcallfunc(PyObject*)>("PyVectorcall_Function");
auto* const python_set_entry = exported_by_python<void(PyObject*, vectorcallfunc)>("PyFunction_SetVectorcall");

/// Where a function of nanobind's keeps its entry: right behind the header. An attribute of the same functions reads
/// it, which shows that it is there; null of what has no such attribute.
vectorcallfunc* place_of(nb::handle callable) {
  const nb::object read = nb::getattr(callable, "__vectorcalloffset__", nb::none());
  if (!PyLong_Check(read.ptr())) return nullptr;
  auto* const place = reinterpret_cast<vectorcallfunc*>(reinterpret_cast<PyVarObject*>(callable.ptr()) + 1);
  return PyLong_AsVoidPtr(read.ptr()) == reinterpret_cast<void*>(*place) ? place : nullptr;
}

}  // namespace

vectorcallfunc entry_of(nb::handle callable) {
  if (const vectorcallfunc* const place = place_of(callable)) return *place;
  return python_entry_of && python_set_entry ? python_entry_of(callable.ptr()) : nullptr;
}

void set_entry(nb::handle callable, vectorcallfunc entry) {
  if (vectorcallfunc* const place = place_of(callable)) {
    *place = entry;
  } else {
    python_set_entry(callable.ptr(), entry);
  }
}

}  // namespace cleave::python

#else

namespace cleave::python {
namespace {

vectorcallfunc* place_of(nanobind::handle callable) {
  const Py_ssize_t offset = Py_TYPE(callable.ptr())->tp_vectorcall_offset;
  return offset > 0 ? reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(callable.ptr()) + offset) : nullptr;
}

}  // namespace

vectorcallfunc entry_of(nanobind::handle callable) {
  const vectorcallfunc* const place = place_of(callable);
  return place ? *place : nullptr;
}

void set_entry(nanobind::handle callable, vectorcallfunc entry) {
#if PY_VERSION_HEX >= 0x030C0000
  if (PyFunction_Check(callable.ptr())) {
    // Calls of it that Python has specialised are given up.
    PyFunction_SetVectorcall(reinterpret_cast<PyFunctionObject*>(callable.ptr()), entry);
  }
#endif
  *place_of(callable) = entry;
}

}  // namespace cleave::python

#endif
