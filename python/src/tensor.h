// Reading arrays of any framework: the DLPack C exchange API, `__dlpack__`,
// `__cuda_array_interface__` and
// `__array_interface__`, in this order.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "array_type.h"
#include "operands/operand.h"

namespace cleave::python {

/// An array as it was read.
struct TensorView : Operand {
  dlpack::DataType element{};  ///< as the array says it; `dtype` or `other_type` follow from it
  bool readonly = false;
};

/// Fills `element` and what follows from it.
void set_element(TensorView& view, dlpack::DataType element);

inline bool given(nanobind::handle argument) {
  return argument.is_valid() && !argument.is_none();
}

/// Reads the arrays of one call, keeps their memory, and settles the call's stream: the one given,
/// or else the current stream of the framework of the first CUDA array (the legacy default stream
/// where the framework has none).
class TensorReader {
 public:
  explicit TensorReader(nanobind::handle stream);

  /// Throws Error(invalid_type) if `array` is not one, naming it `name`.
  TensorView read(nanobind::handle array, const char* name);

  /// Nothing for None.
  std::optional<Operand> read_given(nanobind::handle array, const char* name);

  /// The same of an array that will be written. Throws Error(invalid_argument) if it cannot be.
  std::optional<Operand> read_written(nanobind::handle array, const char* name);

  void* stream() const { return stream_.value_or(nullptr); }

 private:
  void* settle_stream(const ArrayType& type, int device);
  bool read_exchange(nanobind::handle array, const char* name, TensorView& view);
  bool read_dlpack(nanobind::handle array, const char* name, TensorView& view);
  bool read_interface(nanobind::handle array, const char* name, bool cuda, TensorView& view);

  std::optional<void*> stream_;
  std::vector<nanobind::object> owners_;  // of memory that the arrays themselves do not keep
};

}  // namespace cleave::python
