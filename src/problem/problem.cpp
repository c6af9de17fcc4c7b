#include "problem/problem.h"

#include "cleave/epilogue.h"
#include "problem/conv.h"
#include "problem/placement.h"

namespace cleave {
namespace {

bool serves(Order order, const MatrixLayout& layout, int64_t rows, int64_t columns) {
  return order == Order::row ? layout.stride_col == 1 || columns <= 1 : layout.stride_row == 1 || rows <= 1;
}

double bytes(const Placement& x) {
  const int64_t stored = x.layout.stride_batch == 0 && x.batch > 1 ? 1 : x.batch;
  return double(x.rows) * double(x.columns) * double(stored) * size_of(x.layout.dtype);
}

}  // namespace

std::optional<Order> output_order(const GemmProblem& p) {
  for (const Order order : {Order::row, Order::column}) {
    if (serves(order, p.d, p.m, p.n) && (!p.has_c || serves(order, p.c, p.m, p.n))) return order;
  }
  return std::nullopt;
}

bool sums_are_integers(const GemmProblem& p) {
  return p.a.dtype == DType::i8 && p.scale_a.kind != Scaling::block && p.weights_b.format == WeightFormat::none;
}

GemmProblem as_expected(GemmProblem p) {
  if (p.groups.expected_m > 0) p.m = std::exchange(p.groups.expected_m, 0) * p.batch;
  return p;
}

bool is_automatic(const GemmProblem& p) {
  return p.split_k_mode == SplitKMode::automatic && p.split_k_slices == 0 && p.kernel == KernelFamily::automatic;
}

bool may_be_batch_invariant(const GemmProblem& p) {
  const bool of_rows = p.groups.dimension == Grouping::none || p.groups.dimension == Grouping::m;
  const bool by_rows = p.a.stride_col == 1 || p.k <= 1 || p.m <= 1;
  return p.conv.kind == Conv::none && of_rows && by_rows && p.split_k_mode != SplitKMode::stream_k;
}

bool may_keep_k_order(const GemmProblem& p) {
  const bool split =
      (p.split_k_mode != SplitKMode::automatic && p.split_k_mode != SplitKMode::none) || p.split_k_slices > 1;
  return !split || sums_are_integers(p);
}

Determinism most_promised(const GemmProblem& p, Determinism wanted) {
  if (wanted >= Determinism::batch_invariant && !may_be_batch_invariant(p)) return Determinism::repeatable;
  if (wanted == Determinism::k_order && !may_keep_k_order(p)) return Determinism::batch_invariant;
  return wanted;
}

Activation activation_of(const GemmProblem& p) {
  return p.epilogue.function == nullptr ? Activation::none : p.epilogue.function->activation();
}

const char* name_of_epilogue(const GemmProblem& p) {
  return activation_of(p) == Activation::none ? "an epilogue function" : "activation";
}

const char* gate_of(const GemmProblem& p) {
  const bool alternate = p.epilogue.gates == Gates::interleaved;
  if (activation_of(p) != Activation::none)
    return alternate ? "activation is swiglu_interleaved" : "activation is swiglu";
  return alternate ? "the epilogue function takes acc.even and acc.odd"
                   : "the epilogue function takes acc.gate and acc.up";
}

Reduction reduction_within(const GemmProblem& p, uint32_t output) {
  const bool is_matrix = p.epilogue.outputs[output].shape == InputShape::matrix;
  return is_matrix ? Reduction::none : p.epilogue.function->outputs()[output + 1].reduction;
}

bool reduces(const GemmProblem& p) {
  if (p.epilogue.function == nullptr || !p.epilogue.function->reduces()) return false;
  for (uint32_t i = 0; i + 1 < p.epilogue.function->outputs().size(); ++i)
    if (reduction_within(p, i) != Reduction::none) return true;
  return false;
}

double flops(const GemmProblem& p) {
  if (p.conv.kind != Conv::none) {
    return 2.0 * double(output_pixels(p.conv)) * double(p.conv.filters) * double(taps(p.conv)) *
           double(p.conv.channels) * double(p.batch);
  }
  const double products = p.groups.dimension == Grouping::none ? double(p.batch) : 1.0;
  return 2.0 * double(p.m) * double(columns_of_b(p)) * double(p.k) * products;
}

double bytes_of_a(const GemmProblem& p) {
  Placement a = a_of(p);
  if (p.conv.kind == Conv::fprop) a.rows = pixels_read(p.conv);
  return bytes(a);
}

double bytes_of_b(const GemmProblem& p) {
  Placement b = b_of(p);
  if (p.conv.kind == Conv::wgrad) b.rows = pixels_read(p.conv);
  return bytes(b);
}

double minimum_bytes(const GemmProblem& p) {
  double total = bytes_of_a(p) + bytes_of_b(p);
  for (const auto part : {c_of, d_of, bias_of, scale_a_of, scale_b_of, weight_scale_of, weight_zero_of, zero_a_of,
                          zero_b_of, scale_d_of, amax_of, scale_out_of, gather_of, group_offsets_of, group_sizes_of}) {
    total += bytes(part(p));
  }
  if (const EpilogueFunction* function = p.epilogue.function) {
    for (uint32_t i = 0; i < function->inputs().size(); ++i) total += bytes(epilogue_input_of(p, i));
    for (uint32_t i = 0; i + 1 < function->outputs().size(); ++i) total += bytes(epilogue_output_of(p, i));
  }
  return total;
}

}  // namespace cleave
