// The properties of a class of arrays, looked up once per class, so that a call pays for a pointer
// comparison only.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "array/dlpack.h"

namespace cleave::python {

struct ArrayType {
  nanobind::object type;
  const dlpack::ExchangeApi* exchange = nullptr;  // null: the Python protocols must do

  // What cleave._arrays.Adapter has, and documents; None where the framework is unknown or has no such notion.
  nanobind::object empty, empty_channels_last, channels_last, assign, finish;
  nanobind::object current_stream, on_stream, record_stream, increment_version, requires_grad, forward_ad;
  bool immutable = false;
};

/// Shared, since Python code that runs in between may look up other classes.
std::shared_ptr<const ArrayType> array_type_of(nanobind::handle array);

/// Converts a new array, made for `like`, to what the user gets.
nanobind::object finished(nanobind::handle like, const nanobind::object& made);

}  // namespace cleave::python
