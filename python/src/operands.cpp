#include "operands.h"

#include <algorithm>
#include <string>

#include "cleave/names.h"
#include "errors.h"
#include "values.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

int64_t rows(const TensorView& v) {
  return v.shape[v.ndim - 2];
}
int64_t cols(const TensorView& v) {
  return v.shape[v.ndim - 1];
}
int64_t batch(const TensorView& v) {
  return v.ndim == 3 ? v.shape[0] : 1;
}

bool is_empty(const TensorView& v) {
  return std::find(v.shape, v.shape + v.ndim, 0) != v.shape + v.ndim;
}

uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 16;
  return uint32_t(address & -address);
}

MatrixLayout layout_of(const TensorView& v, DType dtype, const char* name) {
  if (is_empty(v)) return {.dtype = dtype, .stride_row = cols(v)};  // NumPy may say strides of 0
  int64_t row = v.stride[v.ndim - 2];
  int64_t col = v.stride[v.ndim - 1];
  if (row != 1 && col != 1) {
    // A dimension of one element has no stride to speak of.
    if (cols(v) <= 1) {
      col = 1;
    } else if (rows(v) <= 1) {
      row = 1;
    } else {
      raise_value(
          "{0} has strides ({1}, {2}); one of them must be 1. Pass a copy: {0}.contiguous() in "
          "torch, numpy.ascontiguousarray({0})",
          name, row, col);
    }
  }
  return {.dtype = dtype,
          .stride_row = row,
          .stride_col = col,
          .stride_batch = batch(v) == 1 ? 0 : v.stride[0],
          .alignment = alignment_of(v.data)};
}

std::string expected_shape(bool batched, int64_t count, int64_t m, int64_t n) {
  return batched ? fmt::format("({}, {}, {})", count, m, n) : fmt::format("({}, {})", m, n);
}

}  // namespace

GemmOperands::GemmOperands(const GemmInputs& inputs, TensorReader& reader, const DType* d_type)
    : inputs_(inputs) {
  read_matrices(reader);
  if (!inputs_.c.is_none()) place_c(reader);
  if (!inputs_.bias.is_none()) place_bias(reader);
  place_d(reader, d_type);
}

TensorView GemmOperands::read(nb::handle array, const char* name, TensorReader& reader,
                              int min_rank, int max_rank, DType& dtype) {
  TensorView view = reader.read(array, name);
  if (view.ndim < min_rank || view.ndim > max_rank) {
    raise_value("{} has {} dimension{}; it must have {} or {}", name, view.ndim,
                view.ndim == 1 ? "" : "s", min_rank, max_rank);
  }
  dtype = dtype_of(view.dtype, name);
  if (a_.ndim != 0 && view.device != a_.device) {
    raise_value("tensors on different devices: a is on {}, {} on {}; move them to one device",
                device_text(a_.device), name, device_text(view.device));
  }
  if (!view.data && !is_empty(view)) {
    raise_value("{} has a shape but no data; meta, fake and traced tensors cannot be multiplied",
                name);
  }
  return view;
}

void GemmOperands::read_matrices(TensorReader& reader) {
  DType a_type, b_type;
  a_ = read(inputs_.a, "a", reader, 2, 3, a_type);
  b_ = read(inputs_.b, "b", reader, 2, 3, b_type);
  if (a_type != b_type) {
    raise_type("a is {} and b is {}; convert one of them", to_string(a_type), to_string(b_type));
  }
  if (cols(a_) != rows(b_)) {
    raise_value("a is {} and b is {}: a's columns ({}) must match b's rows ({})", shape_text(a_),
                shape_text(b_), cols(a_), rows(b_));
  }
  if (batch(a_) != batch(b_) && batch(a_) != 1 && batch(b_) != 1) {
    raise_value("a is {} and b is {}: their batches ({} and {}) must be equal, or one of them 1",
                shape_text(a_), shape_text(b_), batch(a_), batch(b_));
  }
  batched_ = a_.ndim == 3 || b_.ndim == 3;
  problem.m = rows(a_);
  problem.n = cols(b_);
  problem.k = cols(a_);
  problem.batch = batch(a_) == 1 ? batch(b_) : batch(a_);
  problem.a = layout_of(a_, a_type, "a");
  problem.b = layout_of(b_, b_type, "b");
  problem.device = a_.device;
  arguments.a = a_.data;
  arguments.b = b_.data;
}

void GemmOperands::place_c(TensorReader& reader) {
  DType type;
  c_ = read(inputs_.c, "c", reader, 2, 3, type);
  if (rows(c_) != problem.m || cols(c_) != problem.n ||
      (batch(c_) != problem.batch && batch(c_) != 1)) {
    raise_value("c is {}; it must be {}", shape_text(c_),
                expected_shape(batched_, problem.batch, problem.m, problem.n));
  }
  problem.has_c = true;
  problem.c = layout_of(c_, type, "c");
  arguments.c = c_.data;
}

void GemmOperands::place_bias(TensorReader& reader) {
  bias_ = read(inputs_.bias, "bias", reader, 1, 2, problem.bias_dtype);
  const bool row =
      bias_.ndim == 1 ? bias_.shape[0] == problem.n : rows(bias_) == 1 && cols(bias_) == problem.n;
  const bool column = bias_.ndim == 2 && rows(bias_) == problem.m && cols(bias_) == 1;
  if (!row && !column) {
    raise_value(
        "bias is {}; it must be ({},) or (1, {}), one value per column of D, or ({}, 1), one per "
        "row",
        shape_text(bias_), problem.n, problem.n, problem.m);
  }
  problem.bias = row ? Bias::row : Bias::column;
  const int along = row ? bias_.ndim - 1 : 0;
  if (bias_.shape[along] > 1 && bias_.stride[along] != 1) {
    raise_value("bias has a stride of {}; it must be contiguous, pass a copy", bias_.stride[along]);
  }
  arguments.bias = bias_.data;
}

void GemmOperands::place_d(TensorReader& reader, const DType* d_type) {
  if (inputs_.out.is_none()) {
    problem.d = {.dtype = d_type ? *d_type : problem.a.dtype,
                 .stride_row = problem.n,
                 .stride_col = 1,
                 // Unsigned: sizes whose product overflows are refused by cleave::plan.
                 .stride_batch =
                     problem.batch == 1 ? 0 : int64_t(uint64_t(problem.m) * uint64_t(problem.n))};
    return;
  }
  DType type;
  d_ = read(inputs_.out, "out", reader, 2, 3, type);
  if (d_type && *d_type != type) {
    raise_type("out is {}, but out_dtype is {}; leave one of them away", to_string(type),
               to_string(*d_type));
  }
  if (batched_ != (d_.ndim == 3) || batch(d_) != problem.batch || rows(d_) != problem.m ||
      cols(d_) != problem.n) {
    raise_value("out is {}; it must be {}", shape_text(d_),
                expected_shape(batched_, problem.batch, problem.m, problem.n));
  }
  if (d_.readonly || array_type_of(inputs_.out)->immutable) {
    raise_value("out is read-only; pass an array that can be written, or no out");
  }
  problem.d = layout_of(d_, type, "out");
  arguments.d = d_.data;
}

void GemmOperands::allocate(TensorReader& reader) {
  if (!inputs_.out.is_none()) return;
  const nb::object empty = array_type_of(inputs_.a)->empty;
  if (empty.is_none()) {
    raise_value(
        "the product of a {} needs `out`: only torch, NumPy, CuPy and JAX arrays can be made here",
        class_name(inputs_.a));
  }
  const GemmProblem& p = problem;
  nb::object shape = batched_ ? nb::make_tuple(p.batch, p.m, p.n) : nb::make_tuple(p.m, p.n);
  made_ = empty(inputs_.a, shape, dtype_name(p.d.dtype));
  d_ = reader.read(made_, "out");
  arguments.d = d_.data;
}

nb::object GemmOperands::result() const {
  if (!made_.is_valid()) return nb::borrow(inputs_.out);
  const nb::object finish = array_type_of(inputs_.a)->finish;
  return finish.is_none() ? made_ : finish(made_);
}

}  // namespace cleave::python
