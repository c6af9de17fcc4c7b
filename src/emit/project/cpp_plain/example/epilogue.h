// What becomes of the example's sums: elements of D as they are.
#pragma once

#include "call.h"
#include "tensor.h"

namespace emitted::operation::example {

class Epilogue {
 public:
  explicit Epilogue(const cleave::GemmProblem&) {}

  /// Arguments of its own: it has none.
  template <class Arguments>
  void fill(Arguments&) const {}

  /// Makes an element of D of its sum.
  void operator()(const Coord&, const Sum& sum, const Sum&, Sample& sample) const { sample.d = sum; }
  void download() const {}
};

}  // namespace emitted::operation::example
