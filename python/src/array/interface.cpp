#include "array/interface.h"

#include <cstdlib>
#include <string>

#include "cleave/core/saturate.h"
#include "cleave/names.h"
#include "module/errors.h"
#include "operands/operand.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

int64_t integer(nb::handle value, const char* name, const char* field) {
  const int64_t result = PyIndex_Check(value.ptr()) ? PyLong_AsLongLong(nb::int_(value).ptr()) : -1;
  if (PyErr_Occurred() || !PyIndex_Check(value.ptr())) {
    PyErr_Clear();
    refuse_value("{}'s array interface has a {} that is not a 64-bit integer", name, field);
  }
  return result;
}

/// What NumPy itself has no type for (raw bytes, or a float of one byte, to it): the dtype's name
/// tells. Raw bytes where it names none: those of another type are not taken for numbers.
uint8_t named_type(nb::handle array, int bytes, const char* argument) {
  const nb::object label = nb::getattr(nb::getattr(array, "dtype", nb::none()), "name", nb::none());
  if (!PyUnicode_Check(label.ptr())) return dlpack::kUInt;
  for (const DType type : kAnyType) {
    const std::string name(to_string(type));
    const bool named = PyUnicode_CompareWithASCIIString(label.ptr(), name.c_str()) == 0;
    if (named && int(size_of(type)) == bytes) return element_of(type).code;
  }
  const std::string text = nb::cast<std::string>(label);
  if (!text.starts_with("void"))
    refuse_type("{} is {}; it must be one of {}, convert it", argument, text, types_text(kAnyType));
  return dlpack::kUInt;
}

/// "<f4" and the like: byte order, kind, bytes per element.
dlpack::DataType parse_typestr(nb::handle typestr, nb::handle array, const char* name) {
  const char* const utf8 = PyUnicode_Check(typestr.ptr()) ? PyUnicode_AsUTF8AndSize(typestr.ptr(), nullptr) : nullptr;
  if (utf8 == nullptr) {
    PyErr_Clear();
    refuse_value("{}'s array interface has no typestr that can be read as text", name);
  }
  const std::string text = utf8;
  const int bytes = text.size() >= 3 ? std::atoi(text.c_str() + 2) : 0;
  if (bytes < 1 || bytes > 16 || text[0] == '>') {
    refuse_type(
        "{} has elements of type \"{}\"; pass floats or integers of 8, 16 or 32 bits in native "
        "byte "
        "order",
        name, text);
  }
  uint8_t code = dlpack::kUInt;
  switch (text[1]) {
    case 'f':
      code = bytes == 1 ? named_type(array, bytes, name) : uint8_t(dlpack::kFloat);
      break;
    case 'i':
      code = dlpack::kInt;
      break;
    case 'c':
      code = dlpack::kComplex;
      break;
    case 'b':
      code = dlpack::kBool;
      break;
    case 'V':
      code = named_type(array, bytes, name);
      break;
  }
  return {code, uint8_t(8 * bytes), 1};
}

}  // namespace

nb::object interface_field(nb::handle fields, const char* key) {
  PyObject* value = PyDict_GetItemString(fields.ptr(), key);  // borrowed
  return value ? nb::borrow(value) : nb::none();
}

void assign_interface(nb::handle fields, nb::handle array, const char* name, TensorView& view) {
  nb::object data = interface_field(fields, "data");
  nb::object shape = interface_field(fields, "shape");
  nb::object strides = interface_field(fields, "strides");
  if (!PyTuple_Check(data.ptr()) || PyTuple_Size(data.ptr()) != 2 || !PyTuple_Check(shape.ptr())) {
    refuse_value("{}'s array interface has no address or no shape", name);
  }
  set_element(view, parse_typestr(interface_field(fields, "typestr"), array, name));
  view.data = reinterpret_cast<void*>(integer(PyTuple_GetItem(data.ptr(), 0), name, "data pointer"));
  view.readonly = PyObject_IsTrue(PyTuple_GetItem(data.ptr(), 1)) != 0;
  PyErr_Clear();  // a flag that is neither true nor false counts as read-only
  view.ndim = int(PyTuple_Size(shape.ptr()));
  if (view.ndim > TensorView::kMaxRank) return;
  if (!strides.is_none() && (!PyTuple_Check(strides.ptr()) || PyTuple_Size(strides.ptr()) != view.ndim)) {
    refuse_value("{}'s array interface has strides that do not match its shape", name);
  }

  const int64_t bytes = view.element.bits / 8;
  int64_t packed = 1;
  for (int i = view.ndim - 1; i >= 0; --i) {
    view.shape[i] = integer(PyTuple_GetItem(shape.ptr(), i), name, "shape");
    if (view.shape[i] < 0) refuse_value("{}'s array interface has the shape {}", name, shape_text(view));
    view.stride[i] = packed;
    if (!strides.is_none()) {
      const int64_t stride = integer(PyTuple_GetItem(strides.ptr(), i), name, "stride");
      if (stride % bytes != 0) {
        refuse_value(
            "{} has a stride of {} bytes, not a multiple of its {}-byte elements; pass an array whose strides are",
            name, stride, bytes);
      }
      view.stride[i] = stride / bytes;
    }
    // Sizes that overflow cannot come from memory that exists, and are refused with the other
    // sizes.
    packed = saturating_product(packed, view.shape[i]);
  }
}

int pointer_device(const void* pointer) {
  const nb::object find = nb::module_::import_("cleave._arrays").attr("pointer_device");
  return nb::cast<int>(find(reinterpret_cast<uintptr_t>(pointer)));
}

}  // namespace cleave::python
