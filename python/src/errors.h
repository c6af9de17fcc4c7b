// What messages say of Python's objects; exceptions are cleave::Error, raised by refuse.h.
#pragma once

#include <nanobind/nanobind.h>

#include "base/refuse.h"

namespace cleave::python {

/// The name of an object's type, for messages.
inline const char* class_name(nanobind::handle object) {
  return Py_TYPE(object.ptr())->tp_name;
}

}  // namespace cleave::python
