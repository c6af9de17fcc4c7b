// Reading arrays of any framework by, in this order, the DLPack C exchange API, `__dlpack__`,
// `__cuda_array_interface__` and `__array_interface__`.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "array/array_type.h"
#include "operands/operand.h"

namespace cleave::python {

/// An array as it was read.
struct TensorView : Operand {
  dlpack::DataType element{};  ///< as the array says it; `dtype` or `other_type` follow from it
  bool readonly = false;
};

/// Fills `element` and what follows from it.
void set_element(TensorView& view, dlpack::DataType element);

dlpack::DataType element_of(DType type);

using Shape = std::span<const int64_t>;

nanobind::tuple tuple_of(Shape shape);

inline bool given(nanobind::handle argument) {
  return argument.is_valid() && !argument.is_none();
}

/// Reads the arrays of one call, keeps their memory alive, and decides the call's stream: the given one,
/// or else the current stream of the framework of the first CUDA array (the legacy default stream if the
/// framework has none).
///
/// If the given stream is not the current one, frameworks that reuse memory in stream order are told: what
/// is read is kept until that stream is done with it, and what is created belongs to that stream.
class TensorReader {
 public:
  explicit TensorReader(nanobind::handle stream);

  /// Throws Error(invalid_type) if `array` is not one, naming it `name`.
  TensorView read(nanobind::handle array, const char* name);

  /// The same for an array that will be written. Throws Error(invalid_argument) if it is read-only.
  TensorView read_output(nanobind::handle array, const char* name);

  /// A call's argument P; nothing if there is no such parameter, or it is None.
  template <class P>
  std::optional<Operand> read(const auto& call) {
    const nanobind::handle array = call.template get<P>();
    if (!array.is_valid() || (array.is_none() && !P::default_text().empty())) return std::nullopt;
    return read(array, P::name());
  }
  template <class P>
  std::optional<Operand> read_output(const auto& call) {
    const nanobind::handle array = call.template get<P>();
    if (!given(array)) return std::nullopt;
    return read_output(array, P::name());
  }

  /// Makes an array by one of the two functions of `like`'s ArrayType. Throws Error(invalid_argument) if it has none:
  /// `needed` is what to pass then.
  nanobind::object make(nanobind::object ArrayType::* empty, nanobind::handle like, Shape shape, DType dtype,
                        int device, const char* needed);

  /// Once they are written: tells torch's autograd, which may have saved them, of the outputs.
  void mark_written() const;

  void* stream() const { return stream_.value_or(nullptr); }

 private:
  // out, scale_out, amax and workspace; what else an epilogue function makes
  static constexpr size_t kMaxOutputs = 4 + kMostEpilogueOutputs;

  /// Good until the reader is asked for another class.
  const ArrayType& type_of(nanobind::handle array);
  void* settle_stream(const ArrayType& type, int device);
  bool leaves_current_stream(const ArrayType& type, int device) const;
  TensorView read_as_it_can(nanobind::handle array, const char* name);
  bool read_exchange(nanobind::handle array, const char* name, TensorView& view);
  bool read_dlpack(nanobind::handle array, const char* name, TensorView& view);
  bool read_interface(nanobind::handle array, const char* name, bool cuda, TensorView& view);

  std::optional<void*> stream_;
  const bool stream_given_;
  std::shared_ptr<const ArrayType> type_;              // of the last array: most calls have one
  std::array<nanobind::handle, kMaxOutputs> outputs_;  // of a framework that counts writes
  size_t output_count_ = 0;
  nanobind::object increment_version_;    // that framework's
  std::vector<nanobind::object> owners_;  // of memory that the arrays themselves do not keep
};

}  // namespace cleave::python
