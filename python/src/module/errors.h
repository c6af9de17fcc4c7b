// What messages say of Python's objects; exceptions are cleave::Error, raised by refuse.h.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "base/refuse.h"

namespace cleave::python {

/// The name of an object's type, for messages, as Python's own spell it: with the module, if that is not builtins.
std::string class_name(nanobind::handle object);

}  // namespace cleave::python
