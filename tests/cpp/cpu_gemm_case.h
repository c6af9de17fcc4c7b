// Randomly drawn GEMM problems with their data and their expected values.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "activations.h"
#include "cleave/core/element.h"
#include "cleave/epilogue.h"
#include "cleave/gemm.h"
#include "group_case.h"
#include "problem/problem.h"
#include "random.h"

namespace cleave {

inline constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};
inline constexpr DType kNarrowTypes[] = {DType::i8, DType::e4m3, DType::e5m2};

/// A batch of matrices with memory around and between them that nobody may touch.
class Tensor {
 public:
  Tensor(Random& random, DType type, int64_t rows, int64_t columns, int64_t batch, bool row_major, bool may_broadcast) {
    const int64_t gap = random.number(0, 5);
    layout = {.dtype = type,
              .stride_row = row_major ? columns + gap : 1,
              .stride_col = row_major ? 1 : rows + gap,
              .stride_batch = (row_major ? rows * (columns + gap) : columns * (rows + gap)) + random.number(0, 5),
              .alignment = size_of(type)};
    const int64_t elements = kMargin + layout.stride_batch * batch + kMargin;
    if (may_broadcast && random.coin()) layout.stride_batch = 0;
    bytes.assign(elements * size_of(type), 0xEE);
  }

  void* data() { return bytes.data() + kMargin * size_of(layout.dtype); }
  int64_t at(int64_t b, int64_t i, int64_t j) const {
    return b * layout.stride_batch + i * layout.stride_row + j * layout.stride_col;
  }
  void* address(int64_t b, int64_t i, int64_t j) {
    return static_cast<char*>(data()) + at(b, i, j) * size_of(layout.dtype);
  }
  float get(int64_t b, int64_t i, int64_t j) { return load_element(layout.dtype, data(), at(b, i, j)); }
  template <class Value>  // float, or int32_t to keep all of its bits
  void set(int64_t b, int64_t i, int64_t j, Value value) {
    store_element(layout.dtype, data(), at(b, i, j), value);
  }

  MatrixLayout layout;
  std::vector<unsigned char> bytes;

 private:
  static constexpr int64_t kMargin = 16;
};

/// Scales of an operand with `rows` rows (B: columns), between values that nobody may read.
/// `by_row`: none covers two rows.
class Scales {
 public:
  Scales(Random& random, Scaling kind, int64_t rows, int64_t k, int64_t batch, bool powers_of_two, bool by_row) {
    layout.kind = kind;
    const bool blocks = kind == Scaling::block;
    if (blocks && !by_row && random.coin()) layout.rows = kScaleBlock;
    const int64_t lines = (rows + layout.rows - 1) / layout.rows;
    const int64_t columns = blocks ? (k + kScaleBlock - 1) / kScaleBlock : 1;
    const int64_t gap = random.number(0, 2);
    const bool k_major = random.coin();
    layout.stride_row = k_major ? columns + gap : 1 + gap;
    layout.stride_k = k_major ? 1 : lines * (1 + gap);
    layout.stride_batch = (lines + 1) * (columns + 1) * (1 + gap);
    if (random.number(0, 3) == 0) layout.stride_row = 0;
    if (random.number(0, 3) == 0) layout.stride_batch = 0;

    values.assign(layout.stride_batch * batch + (lines + 1) * (columns + 1) * (1 + gap), NAN);
    for (int64_t e = 0; e < batch; ++e) {
      for (int64_t line = 0; line < lines; ++line) {
        for (int64_t column = 0; column < columns; ++column) {
          values[e * layout.stride_batch + line * layout.stride_row + column * layout.stride_k] =
              powers_of_two ? std::exp2(float(random.number(-1, 2))) : 1.5f + random.real();
        }
      }
    }
  }

  /// The value of an element of the operand.
  double get(int64_t b, int64_t row, int64_t k) const {
    if (layout.kind == Scaling::none) return 1;
    const int64_t block = layout.kind == Scaling::block ? k / kScaleBlock : 0;
    return values[b * layout.stride_batch + row / layout.rows * layout.stride_row + block * layout.stride_k];
  }

  ScaleLayout layout;
  std::vector<float> values;
};

struct Shape {
  int64_t m, n, k, batch = 1;
};

/// The dtypes of A, B and D, and the scaling, of a problem.
struct Kinds {
  DType a, b, d;
  Scaling scaling = Scaling::none;
};

inline Kinds wide_kinds(Random& random) {
  const DType type = random.pick(kTypes);
  return {type, type, random.pick(kTypes)};
}

/// 8-bit operands, and any D that goes with them.
inline Kinds narrow_kinds(Random& random) {
  Kinds kinds{.a = random.pick(kNarrowTypes)};
  kinds.b = kinds.a == DType::i8 ? DType::i8 : random.pick({DType::e4m3, DType::e5m2});
  kinds.scaling = random.pick({Scaling::none, Scaling::vector, Scaling::block});
  const bool sums = kinds.a == DType::i8 && kinds.scaling == Scaling::none && random.coin();
  kinds.d = sums ? DType::i32 : random.coin() ? random.pick(kTypes) : random.pick(kNarrowTypes);
  return kinds;
}

inline Kinds any_kinds(Random& random) {
  return random.coin() ? wide_kinds(random) : narrow_kinds(random);
}

/// Any type of C that goes with a type of D.
inline DType addend_type(Random& random, DType d) {
  return d == DType::i32 || random.number(0, 2) == 0 ? d : random.pick(kTypes);
}

/// What makes a product more than a dense one.
struct CaseForm {
  bool swiglu = false;
  std::optional<GroupCase> groups = {};

  bool grouped(Grouping dimension) const { return dimension == (groups ? groups->layout.dimension : Grouping::none); }
  /// Whether a tensor has one matrix for all groups of dimension `one` or `other`.
  bool flat(Grouping one, Grouping other) const { return grouped(one) || grouped(other); }
};

/// A problem with its data. `integers`: small ones, and scales that are powers of two, so that sums
/// and values are exact in float32.
struct Case {
  /// `shape` has the extent and the number of groups.
  Case(Random& random, const Shape& shape, const Kinds& kinds, bool integers, CaseForm form_of = {})
      : form(std::move(form_of)),
        parts(form.swiglu ? 2 : 1),
        d_row_major(form.swiglu || random.number(0, 3) != 0),
        flat_a(form.flat(Grouping::m, Grouping::k)),
        flat_b(form.flat(Grouping::n, Grouping::k)),
        flat_d(form.flat(Grouping::m, Grouping::n)),
        a(random, kinds.a, shape.m, shape.k, flat_a ? 1 : shape.batch, random.coin(), true),
        b(random, kinds.b, shape.k, parts * shape.n, flat_b ? 1 : shape.batch, random.coin(), true),
        c(random, addend_type(random, kinds.d), shape.m, shape.n, flat_d ? 1 : shape.batch, d_row_major, true),
        d(random, kinds.d, shape.m, shape.n, flat_d ? 1 : shape.batch, d_row_major, false),
        scale_a(random, kinds.scaling, shape.m, shape.k, shape.batch, integers, form.grouped(Grouping::m)),
        scale_b(random, kinds.scaling, parts * shape.n, shape.k, shape.batch, integers, form.grouped(Grouping::n)) {
    if (flat_a) a.layout.stride_batch = 0;
    if (flat_b) b.layout.stride_batch = 0;
    if (flat_d) c.layout.stride_batch = d.layout.stride_batch = 0;
    const bool along_k = form.grouped(Grouping::k) && kinds.scaling == Scaling::block;
    if (form.grouped(Grouping::m) || along_k) scale_a.layout.stride_batch = 0;
    if (form.grouped(Grouping::n) || along_k) scale_b.layout.stride_batch = 0;

    const auto draw = [&] { return integers ? float(random.number(-2, 2)) : random.real(); };
    const auto fill = [&](Tensor& t, int64_t batch, int64_t rows, int64_t columns) {
      const float factor = t.layout.dtype == DType::i32 ? 1e6 : t.layout.dtype == DType::i8 && !integers ? 128 : 1;
      for (int64_t e = 0; e < batch; ++e) {
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns; ++j) t.set(e, i, j, factor * draw());
        }
      }
    };
    fill(a, flat_a ? 1 : shape.batch, shape.m, shape.k);
    fill(b, flat_b ? 1 : shape.batch, shape.k, parts * shape.n);
    fill(c, flat_d ? 1 : shape.batch, shape.m, shape.n);
    problem = {.m = shape.m,
               .n = shape.n,
               .k = shape.k,
               .batch = shape.batch,
               .a = a.layout,
               .b = b.layout,
               .c = c.layout,
               .d = d.layout,
               .epilogue = epilogue_of(!form.swiglu                                ? Activation::none
                                       : scale_b.layout.rows == 1 && random.coin() ? Activation::swiglu_interleaved
                                                                                   : Activation::swiglu),
               .scale_a = scale_a.layout,
               .scale_b = scale_b.layout};
    problem.device = kCpu;
    if (form.groups) problem.groups = form.groups->layout;
    zero_a.resize(shape.m);
    zero_b.resize(shape.n);
    if (kinds.a == DType::i8 && kinds.scaling != Scaling::block && !form.groups && !form.swiglu && random.coin()) {
      problem.has_zero = true;
      has_zero_a = random.coin();
      for (int32_t& zero : zero_a) zero = int32_t(random.number(-3, 3));
      for (int32_t& zero : zero_b) zero = int32_t(random.number(-50, 50));
    }
    if (kinds.d == DType::i32) {
      problem.has_c = random.coin();
      if (problem.has_c) {
        alpha = float(random.number(-2, 2));
        beta = float(random.number(-3, 3));
      }
      return;
    }

    problem.has_c = !form.swiglu && random.coin();
    problem.bias =
        form.swiglu ? random.pick({Bias::none, Bias::row}) : random.pick({Bias::none, Bias::row, Bias::column});
    problem.bias_dtype = random.pick(kTypes);
    const int64_t biases = std::max(shape.m, parts * shape.n);
    // Along a grouped dimension there is one bias, of all groups.
    const bool one_bias = form.grouped(problem.bias == Bias::row ? Grouping::n : Grouping::m);
    if (!one_bias && random.coin()) problem.bias_stride_batch = biases + random.number(0, 3);
    bias.resize(biases + problem.bias_stride_batch * shape.batch);
    for (size_t i = 0; i < bias.size(); ++i) {
      store_element(problem.bias_dtype, bias.data(), int64_t(i), draw());
    }
    alpha = float(random.number(-2, 2));
    if (kinds.a == DType::i8 && !integers) alpha /= 128 * 128;
    if (form.swiglu) alpha /= 32;  // or the error of a sum would be multiplied by a large one
    beta = float(random.number(-1, 1));
    problem.has_amax = random.coin();
    if (random.number(0, 3) == 0) amax = 1e9f;  // of an earlier launch
    problem.has_scale_d = size_of(kinds.d) == 1 && random.coin();
    scale_d = random.pick({0.25f, 4.0f});
  }

  GemmArguments arguments() {
    return {.a = a.data(),
            .b = b.data(),
            .c = c.data(),
            .d = d.data(),
            .bias = bias.data(),
            .alpha = alpha,
            .beta = beta,
            .scale_a = scale_a.values.data(),
            .scale_b = scale_b.values.data(),
            .zero_a = has_zero_a ? zero_a.data() : nullptr,
            .zero_b = zero_b.data(),
            .scale_d = &scale_d,
            .group_offsets = form.groups ? form.groups->offsets_data() : nullptr,
            .group_sizes = form.groups ? form.groups->sizes_data() : nullptr,
            .amax = &amax};
  }

  /// Calls visit(e, i, j) for every element of D that belongs to a batch entry, or a group.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (int64_t e = 0; e < problem.batch; ++e) {
      const GroupRange rows = range(Grouping::m, problem.m, e);
      const GroupRange columns = range(Grouping::n, problem.n, e);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = columns.begin; j < columns.end; ++j) visit(e, i, j);
      }
    }
  }

  /// Before it is divided by scale_d.
  double expected(int64_t e, int64_t i, int64_t j) {
    if (!form.swiglu) return activated(activation_of(problem), linear(e, i, j));
    const GateColumns gates = gate_columns(problem);
    return activated(Activation::silu, linear(e, i, gates.of(uint32_t(j)))) * linear(e, i, gates.of(uint32_t(j), 1));
  }

  CaseForm form;
  int64_t parts;  // columns of B for each of D's
  bool d_row_major;
  bool flat_a, flat_b, flat_d;
  Tensor a, b, c, d;
  Scales scale_a, scale_b;
  std::vector<float> bias;
  std::vector<int32_t> zero_a, zero_b;
  bool has_zero_a = false;
  GemmProblem problem;
  float alpha = 1, beta = 0;
  float scale_d = 1, amax = 0;

 private:
  /// What of a dimension of `size` batch entry `e` has.
  GroupRange range(Grouping dimension, int64_t size, int64_t e) const {
    return form.grouped(dimension) ? form.groups->ranges[e] : GroupRange{0, uint32_t(size)};
  }

  /// Before the activation. `j`: a column of B.
  double linear(int64_t e, int64_t i, int64_t j) {
    double sum = 0;
    const GroupRange depth = range(Grouping::k, problem.k, e);
    for (int64_t p = depth.begin; p < depth.end; ++p) {
      sum += double(a.get(e, i, p)) * b.get(e, p, j) * scale_a.get(e, i, p) * scale_b.get(e, j, p);
    }
    if (problem.has_zero) {
      const double zero = double(has_zero_a ? zero_a[i] : 1) * zero_b[j];
      sum -= zero * scale_a.get(e, i, 0) * scale_b.get(e, j, 0);
    }
    double value = depth.size() > 0 ? alpha * sum : 0;  // never -0
    if (problem.has_c && beta != 0) value += double(beta) * c.get(e, i, j);
    if (problem.bias != Bias::none) {
      const int64_t at = problem.bias_stride_batch * e + (problem.bias == Bias::row ? j : i);
      value += load_element(problem.bias_dtype, bias.data(), at);
    }
    return value;
  }
};

}  // namespace cleave
