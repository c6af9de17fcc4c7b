// Epilogue functions from Python: cleave._core.EpilogueFunction, and BoundEpilogue, which products take.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "operands/gemm_operands.h"
#include "tensor.h"

namespace cleave::python {

/// A function with what its inputs are, in their order: arrays, or numbers for scalars.
struct BoundEpilogue {
  const EpilogueFunction* function = nullptr;
  std::vector<nanobind::object> inputs;
};

/// What `epilogue` and `out` are, together: `out` is a tuple where a function makes several.
class EpilogueArguments {
 public:
  /// Throws Error(invalid_type) for what is neither None nor a function with its inputs.
  EpilogueArguments(nanobind::handle epilogue, nanobind::handle out);

  bool given() const { return bound_ != nullptr; }
  nanobind::handle out_of_d() const { return outs_[0]; }

  EpilogueTensors read(TensorReader& reader) const;

  /// The result, of D's and of arrays that were made.
  nanobind::object results(const nanobind::object& d, const nanobind::object* made) const;

  size_t outputs_beside_d() const;
  nanobind::handle out(size_t beside_d) const { return outs_[1 + beside_d]; }

 private:
  const BoundEpilogue* bound_ = nullptr;
  nanobind::object owner_;  // of what `epilogue` was called to give
  nanobind::handle outs_[1 + kMostEpilogueOutputs];
};

}  // namespace cleave::python
