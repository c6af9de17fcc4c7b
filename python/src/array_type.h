// What is known about a class of arrays: looked up once per class, so that a call pays a pointer
// comparison.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "dlpack.h"

namespace cleave::python {

struct ArrayType {
  nanobind::object type;
  const dlpack::ExchangeApi* exchange = nullptr;  // null: the Python protocols must do

  // From cleave._arrays; None where the framework is unknown or has no such notion.
  nanobind::object empty;                // (like, shape, dtype name) -> a new array beside `like`
  nanobind::object empty_channels_last;  // the same, shape[1] being what lies closest in memory
  nanobind::object channels_last;        // (array) -> a copy in that order
  nanobind::object assign;               // (target, source): copies elements
  nanobind::object finish;               // what `empty` gave, filled -> what the user gets
  nanobind::object current_stream;       // (device ordinal) -> the stream's handle
  nanobind::object on_stream;            // (handle, device, f, *args) -> f(*args), its memory's stream
  nanobind::object record_stream;        // (array, handle, device): keeps its memory for the stream
  nanobind::object increment_version;    // (tuple of arrays): their elements have changed
  bool tracks_gradients = false;
  bool immutable = false;
};

/// Shared, since Python code that runs in between may look up other classes.
std::shared_ptr<const ArrayType> array_type_of(nanobind::handle array);

/// What the user gets of an array that was made beside `like`, and is filled.
nanobind::object finished(nanobind::handle like, const nanobind::object& made);

}  // namespace cleave::python
