// What becomes of the example's sums: the operation's activation.
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

  /// Makes an element of D of its sum, `up` being that of the other column under swiglu.
  void operator()(const Coord&, const Sum& sum, const Sum& up, Sample& sample) const {
    Sum made = sum;
    if constexpr (kOperation.activation == cleave::Activation::swiglu) {
      const double gate = cleave::activate(cleave::Activation::silu, float(sum.value));
      made = {gate * up.value, std::abs(gate) * up.magnitude + std::abs(up.value) * sum.magnitude};
    } else {
      made.activate(kOperation.activation);
    }
    sample.d = made;
  }
  void download() const {}
};

}  // namespace emitted::operation::example
