#include "call/values.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "call/mistakes.h"
#include "module/errors.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

bool is_array(nb::handle value) {
  return nb::hasattr(value, "__dlpack__") || nb::hasattr(value, "__cuda_array_interface__");
}

}  // namespace

std::string_view parse_text(nb::handle value, const char* name) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8AndSize(value.ptr(), &size) : nullptr;
  if (!text) {
    PyErr_Clear();  // a lone surrogate has no UTF-8
    refuse_type("{} must be a string, got {}", name, class_name(value));
  }
  return {text, size_t(size)};
}

int64_t parse_integer(nb::handle value, const char* name, const char* expected) {
  const bool exact = PyLong_CheckExact(value.ptr());  // else it is asked for attributes, which takes longer
  if (!exact && (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr()) || is_array(value))) {
    refuse_type("{} must be {}, got {}", name, expected, class_name(value));
  }
  const nb::object integer = nb::steal(PyNumber_Index(value.ptr()));
  if (!integer.is_valid()) throw nb::python_error();
  int overflow = 0;
  const int64_t number = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (overflow) refuse_value("{} is out of range; it must be {}", name, expected);
  return number;
}

bool parse_flag(nb::handle value, const char* name) {
  if (!PyBool_Check(value.ptr())) refuse_type("{} must be True or False, got {}", name, class_name(value));
  return value.ptr() == Py_True;
}

Determinism parse_determinism(nb::handle value, const char* name) {
  if (PyBool_Check(value.ptr())) return value.ptr() == Py_True ? Determinism::repeatable : Determinism::any;
  if (!PyUnicode_Check(value.ptr()))
    refuse_type("{} must be True, False or \"batch_invariant\", got {}", name, class_name(value));
  const std::string_view text = parse_text(value, name);
  if (text != "batch_invariant")
    refuse_value("{} is \"{}\"; it must be True, False or \"batch_invariant\"{}", name, text,
                 near_name(std::string(text), {"batch_invariant"}));
  return Determinism::batch_invariant;
}

Determinism parse_sum_order(nb::handle value, const char* name) {
  const std::string_view text = parse_text(value, name);
  if (text != "k") refuse_value("{} is \"{}\"; it must be \"k\" or None", name, text);
  return Determinism::k_order;
}

float parse_scalar(nb::handle value, const char* name) {
  double number = 0;
  if (PyFloat_CheckExact(value.ptr())) {
    number = PyFloat_AsDouble(value.ptr());
  } else {
    // Reading a number out of a CUDA array would wait for the GPU.
    if (!PyNumber_Check(value.ptr()) || is_array(value)) {
      refuse_type("{0} must be a number, got {1}; pass float({0})", name, class_name(value));
    }
    const nb::object dtype = nb::getattr(value, "dtype", nb::none());
    const nb::object kind = nb::getattr(dtype, "kind", nb::none());
    if (PyUnicode_Check(kind.ptr()) && PyUnicode_CompareWithASCIIString(kind.ptr(), "c") == 0) {
      refuse_type("{} must be a real number, got {}", name, class_name(value));
    }
    number = PyFloat_AsDouble(value.ptr());
    if (PyErr_Occurred()) {
      const bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
      PyErr_Clear();
      if (too_large) refuse_value("{} is too large for float32", name);
      refuse_type("{} must be a real number, got {}", name, class_name(value));
    }
  }
  return float32_of(number, name);
}

DType parse_dtype(nb::handle value, const char* name, std::span<const DType> allowed) {
  nb::object label = nb::borrow(value);
  if (!PyUnicode_Check(value.ptr())) {
    label = nb::getattr(value, PyType_Check(value.ptr()) ? "__name__" : "name", nb::none());
    if (!PyUnicode_Check(label.ptr())) label = nb::str(value);  // torch.float16 has no name but this one
  }
  std::string_view text = parse_text(label, name);
  if (text.starts_with("torch.")) text.remove_prefix(6);
  std::string enumerator = "::" + std::string(text);  // "f16" is short, and so is "fp16"
  if (text.starts_with("fp")) enumerator.erase(3, 1);
  for (const DType type : allowed) {
    if (text == to_string(type) || enumerators<DType>[size_t(type)].ends_with(enumerator)) return type;
  }
  const std::string seen(text.substr(0, 60));
  const std::vector<std::string> packed = names_of<WeightFormat>();
  if (seen != to_string(WeightFormat::none) && std::ranges::find(packed, seen) != packed.end()) {
    refuse_type("{} is {}, of which there are packed weights alone: cleave.pack_weights makes them. It must be {}",
                name, seen, types_text(allowed));
  }
  refuse_type("{} is {}; it must be {}{}", name, seen, types_text(allowed), near_name(seen, names_of(allowed)));
}

nb::handle dtype_name(DType dtype) {
  static const auto names = [] {
    std::array<PyObject*, kAnyType.size()> made;
    for (size_t i = 0; i < made.size(); ++i) {
      made[i] = PyUnicode_InternFromString(std::string(to_string(DType(i))).c_str());
    }
    return made;
  }();
  return names[size_t(dtype)];
}

}  // namespace cleave::python
