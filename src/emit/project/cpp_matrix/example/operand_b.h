// B, a matrix or several.
#pragma once

#include "tensor.h"
#include "view.h"

namespace emitted::operation::example {

class OperandB {
 public:
  explicit OperandB(const cleave::GemmProblem& p)
      : layout_(p.b), data_(p.b.dtype, at(p.b, entries_of_b(p) - 1, p.k - 1, columns_of_b(p) - 1) + 1) {}

  void fill() { data_.fill(); }
  template <class Arguments>
  void fill(Arguments& x) const {
    x.b = data_.device();
  }

  double operator()(int64_t entry, int64_t row, int64_t column) const { return data_[at(layout_, entry, row, column)]; }
  /// What sums are multiplied by.
  double factor(int64_t) const { return 1; }

 private:
  const cleave::MatrixLayout& layout_;
  Tensor data_;
};

}  // namespace emitted::operation::example
