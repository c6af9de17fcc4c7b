// Reading arrays of any framework: the DLPack C exchange API, `__dlpack__`,
// `__cuda_array_interface__` and
// `__array_interface__`, in this order.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "array_type.h"
#include "cleave/gemm.h"

namespace cleave::python {

struct TensorView {
  static constexpr int kMaxRank = 3;

  void* data = nullptr;
  dlpack::DataType dtype{};
  int device = kCpu;
  int ndim = 0;
  int64_t shape[kMaxRank] = {};   // not filled if ndim is larger
  int64_t stride[kMaxRank] = {};  // in elements
  bool readonly = false;
  nanobind::object owner;  // keeps the memory, where the array itself does not
};

/// "(3, 4)".
std::string shape_text(const TensorView& view);

/// "cpu" or "cuda:1".
std::string device_text(int device);

/// Reads the arrays of one call and settles its stream: the one given, or else the current stream
/// of the framework of the first CUDA array (the legacy default stream where the framework has
/// none).
class TensorReader {
 public:
  explicit TensorReader(nanobind::handle stream);

  /// Throws Error(invalid_type) if `array` is not one, naming it `name`.
  TensorView read(nanobind::handle array, const char* name);

  void* stream() const { return stream_.value_or(nullptr); }

 private:
  void* settle_stream(const ArrayType& type, int device);
  bool read_exchange(nanobind::handle array, const char* name, TensorView& view);
  bool read_dlpack(nanobind::handle array, const char* name, TensorView& view);
  bool read_interface(nanobind::handle array, const char* name, bool cuda, TensorView& view);

  std::optional<void*> stream_;
};

}  // namespace cleave::python
