// The example's tensors, and what the product of them is.
#pragma once

#include "call.h"
#include "epilogue.h"
#include "operand_b.h"
#include "tensor.h"

namespace emitted::operation::example {

using cleave::Bias;
using cleave::DType;
using cleave::GroupBounds;
using cleave::Grouping;
using cleave::Scaling;

using Index = std::conditional_t<kGroups.wide, int64_t, int32_t>;

/// Tensors of the planned sizes: all that an operation may have.
class Operands {
  const cleave::GemmProblem problem_ = read(sizes()).problem;
  const int64_t columns_ = columns_of_b(problem_);
  /// Elements from one group's begin to the next one's; below, those of a group.
  const int64_t pitch_ = [] {
    const cleave::GemmProblem& p = kOperation;
    const int64_t each = cleave::grouped_extent(p) / p.batch;
    return kGroups.bounds == GroupBounds::counts ? kGroups.spacing : each / kGroups.spacing * kGroups.spacing;
  }();
  const int64_t each_ = kGrouped ? std::min(pitch_, cleave::grouped_extent(kOperation) / kOperation.batch) : 0;
  const float alpha_ = problem_.d.dtype == DType::i32 ? 1.0f : float(1 / std::sqrt(double(problem_.k)));

 public:
  Tensor a = matrix(problem_.a, problem_.m, problem_.k, entries_of_a(problem_));
  OperandB b{problem_};
  Tensor c = matrix(problem_.c, problem_.m, problem_.n, problem_.has_c ? entries_of_d(problem_) : 0);
  Tensor d = matrix(problem_.d, problem_.m, problem_.n, entries_of_d(problem_));

  Operands() {
    a.fill();
    b.fill();
    c.fill(-1, 1);
    bias_.fill(-1, 1);
    for (Tensor* scale : {&scale_a_, &scale_b_, &scale_d_}) scale->fill(0.5f, 1.5f);
    zero_b_.fill(-100, 100);
    std::vector<Index> offsets, sizes;
    for (int64_t g = 0; kGrouped && g < problem_.batch; ++g) {
      const bool ends = kGroups.bounds == GroupBounds::ends || kGroups.bounds == GroupBounds::aligned_ends;
      offsets.push_back(Index(g * pitch_ + (ends ? each_ : 0)));
      sizes.push_back(Index(each_));
    }
    offsets.push_back(Index(problem_.batch * pitch_));  // of indptr
    offsets_.assign(offsets);
    sizes_.assign(sizes);
  }

  Arguments arguments() const { return fill(sizes()); }

  Sample draw_sample() const {
    const bool rows = kGroups.dimension == Grouping::m, cols = kGroups.dimension == Grouping::n;
    const int64_t g = draw(problem_.batch);
    const int64_t i = rows ? g * pitch_ + draw(each_) : draw(problem_.m);
    const int64_t j = cols ? g * pitch_ + draw(each_) : draw(problem_.n);
    const int64_t index = at(problem_.d, g, i, j);
    const auto gates = gate_columns(problem_);
    Sum sum = sum_of(g, i, gates.of(uint32_t(j)));
    if (problem_.has_c) sum.value += c[at(problem_.c, g, i, j)];
    const Sum up = is_gated(problem_) ? sum_of(g, i, gates.of(uint32_t(j), 1)) : Sum();
    Sample sample{.d = {}, .index = index};
    epilogue_({g, i, j}, sum, up, sample);
    if (problem_.has_scale_d) sample.d.scale(1 / scale_d_[0]);
    return sample;
  }

  /// What the operation has made.
  void download() {
    d.download();
    epilogue_.download();
  }

 private:
  template <class Arguments = Arguments>
  static Arguments sizes() {
    Arguments x;
    x.m = kOperation.m;
    x.n = kOperation.n;
    x.k = kOperation.k;
    if constexpr (kGrouped)
      x.groups = kOperation.batch;
    else
      x.batch = kOperation.batch;
    return x;
  }

  template <class Arguments>
  Arguments fill(Arguments x) const {
    x.a = a.device();
    b.fill(x);
    x.d = d.device();
    x.alpha = alpha_;
    if constexpr (kOperation.has_c) {
      x.c = c.device();
      x.beta = 1;
    }
    if constexpr (kOperation.bias != Bias::none) x.bias = bias_.device();
    epilogue_.fill(x);
    if constexpr (kOperation.scale_a.kind != Scaling::none) {
      x.scale_a = scale_a_.device<const float>();
      if constexpr (!kPackedWeight) x.scale_b = scale_b_.device<const float>();
    }
    if constexpr (kOperation.has_zero) x.zero_b = zero_b_.device<const int32_t>();
    if constexpr (kOperation.has_scale_d) x.scale_d = scale_d_.device<const float>();
    if constexpr (kOperation.has_amax) x.amax = amax_.device<float>();
    if constexpr (requires { x.offsets; }) x.offsets = offsets_.device<const Index>();
    if constexpr (requires { x.sizes; }) x.sizes = sizes_.device<const Index>();
    return x;
  }

  static int64_t scale_at(const cleave::ScaleLayout& x, int64_t entry, int64_t row, int64_t depth) {
    return entry * x.stride_batch + row / x.rows * x.stride_row + depth / cleave::kScaleBlock * x.stride_k;
  }
  static Tensor matrix(const cleave::MatrixLayout& x, int64_t rows, int64_t columns, int64_t entries) {
    return {x.dtype, entries == 0 ? 0 : at(x, entries - 1, rows - 1, columns - 1) + 1};
  }
  static Tensor scales(const cleave::ScaleLayout& x, int64_t rows, int64_t k, int64_t entries) {
    return {DType::f32, scale_at(x, entries - 1, rows - 1, k - 1) + 1};
  }

  /// Alpha times the scaled product, and the bias, for a row of A and a column of B.
  Sum sum_of(int64_t g, int64_t i, int64_t column) const {
    const cleave::GemmProblem& p = problem_;
    const bool in_groups = kGroups.dimension == Grouping::k;
    const int64_t begin = in_groups ? g * pitch_ : 0, end = in_groups ? begin + each_ : p.k;
    Sum sum;
    for (int64_t depth = begin; depth < end; ++depth) {
      double term = a[at(p.a, g, i, depth)] * b(g, depth, column);
      if (p.scale_a.kind == Scaling::block)
        term *= scale_a_[scale_at(p.scale_a, g, i, depth)] * scale_b_[scale_at(p.scale_b, g, column, depth)];
      sum.add(term);
    }
    if (p.has_zero) sum.value -= zero_b_[column];
    if (p.scale_a.kind == Scaling::vector) {
      sum.scale(scale_a_[scale_at(p.scale_a, g, i, 0)]);
      if (!kPackedWeight) sum.scale(scale_b_[scale_at(p.scale_b, g, column, 0)]);
    }
    sum.scale(b.factor(g));
    sum.scale(alpha_);
    if (p.bias != Bias::none) sum.value += bias_[p.bias == Bias::row ? column : i];
    return sum;
  }

  Epilogue epilogue_{problem_};
  Tensor bias_{kOperation.bias_dtype, std::max(problem_.m, columns_)};
  Tensor scale_a_ = scales(problem_.scale_a, problem_.m, problem_.k, problem_.batch);
  Tensor scale_b_ = scales(problem_.scale_b, columns_, problem_.k, problem_.batch);
  Tensor zero_b_{DType::i32, columns_}, scale_d_{DType::f32, 1}, amax_{DType::f32, 1};
  Tensor offsets_{DType::i32, (problem_.batch + 1) * int64_t(sizeof(Index)) / 4};
  Tensor sizes_{DType::i32, (problem_.batch + 1) * int64_t(sizeof(Index)) / 4};
};

}  // namespace emitted::operation::example
