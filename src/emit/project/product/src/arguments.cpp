#include <limits>

#include "checks.h"

namespace emitted::operation {
namespace {

using cleave::Grouping;
using cleave::Scaling;

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

/// The planned operation, as if its batch had more than one entry.
constexpr cleave::GemmProblem kSeveral = [] {
  cleave::GemmProblem several = kOperation;
  several.batch = 2;
  return several;
}();

std::string check_size(const char* name, int64_t size) {
  if (size >= 0 && size <= kMost) return {};
  return text(name, " is ", size, "; it must be from 0 to ", kMost);
}

template <class Arguments>
int64_t entries(const Arguments& x) {
  if constexpr (kGrouped)
    return x.groups;
  else
    return x.batch;
}

template <class Arguments>
std::string check_sizes(const Arguments& x) {
  const std::string faults[] = {check_size("m", x.m), check_size("n", x.n), check_size("k", x.k),
                                check_size(kGrouped ? "groups" : "batch", entries(x))};
  for (const std::string& fault : faults)
    if (!fault.empty()) return fault;
  if constexpr (kGrouped && cleave::is_spaced(kGroups.bounds)) {
    if (x.spacing == 0 || x.spacing % kSpacingStep != 0)
      return text("spacing is ", x.spacing, "; it must be a positive multiple of ", kSpacingStep);
    return check_size("spacing", x.spacing);
  }
  return {};
}

/// A matrix of so many rows and columns. What is kPacked becomes the stride of one without gaps.
void place(cleave::MatrixLayout& layout, cleave::Order order, int64_t rows, int64_t columns, int64_t leading,
           int64_t batch_stride) {
  const bool by_row = order == cleave::Order::row;
  if (leading == kPacked) leading = by_row ? columns : rows;
  if (batch_stride == kPacked) batch_stride = leading * (by_row ? rows : columns);
  layout.stride_row = by_row ? leading : 1;
  layout.stride_col = by_row ? 1 : leading;
  layout.stride_batch = batch_stride;
}

template <class Arguments>
void place_matrices(const Arguments& x, cleave::GemmProblem& p) {
  int64_t batch_stride_a = 0, batch_stride_b = 0, batch_stride_d = 0;
  if constexpr (entries_of_a(kSeveral) > 1) batch_stride_a = x.batch_stride_a;
  if constexpr (entries_of_b(kSeveral) > 1) batch_stride_b = x.batch_stride_b;
  if constexpr (entries_of_d(kSeveral) > 1) batch_stride_d = x.batch_stride_d;
  place(p.a, kOrders.a, x.m, x.k, x.lda, batch_stride_a);
  place(p.b, kOrders.b, x.k, columns_of_b(p), x.ldb, batch_stride_b);
  place(p.d, kOrders.d, x.m, x.n, x.ldd, batch_stride_d);
  if constexpr (kOperation.has_c) {
    int64_t batch_stride_c = 0;
    if constexpr (entries_of_d(kSeveral) > 1) batch_stride_c = x.batch_stride_c;
    place(p.c, kOrders.d, x.m, x.n, x.ldc, batch_stride_c);
  }
}

/// Scales of `rows` rows, or columns of B.
template <bool Batched>
void place_vector(cleave::ScaleLayout& layout, int64_t rows, int64_t stride, int64_t batch_stride) {
  layout.stride_row = stride;
  layout.stride_batch = !Batched ? 0 : batch_stride == kPacked ? stride * rows : batch_stride;
}

template <bool Batched>
void place_blocks(cleave::ScaleLayout& layout, int64_t rows, int64_t k, int64_t stride_row, int64_t stride_k,
                  int64_t batch_stride) {
  const int64_t row_blocks = cleave::ceil_div<int64_t>(rows, layout.rows);
  const int64_t k_blocks = cleave::ceil_div<int64_t>(k, cleave::kScaleBlock);
  const bool by_k = layout.stride_k == 1 && layout.stride_row != 1;  // as they were planned
  layout.stride_row = stride_row != kPacked ? stride_row : by_k ? k_blocks : 1;
  layout.stride_k = stride_k != kPacked ? stride_k : by_k ? 1 : row_blocks;
  layout.stride_batch = !Batched ? 0 : batch_stride == kPacked ? row_blocks * k_blocks : batch_stride;
}

template <class Arguments>
void place_scales(const Arguments& x, cleave::GemmProblem& p) {
  constexpr Scaling kind = kOperation.scale_a.kind;
  constexpr bool batched_a = entries_of_scale_a(kSeveral, kind) > 1;
  constexpr bool batched_b = entries_of_scale_b(kSeveral, kind) > 1;
  int64_t batch_stride_a = 0, batch_stride_b = 0;
  if constexpr (batched_a) batch_stride_a = x.batch_stride_scale_a;
  if constexpr (batched_b) batch_stride_b = x.batch_stride_scale_b;
  if constexpr (kind == Scaling::vector) {
    place_vector<batched_a>(p.scale_a, x.m, x.scale_a_stride, batch_stride_a);
    place_vector<batched_b>(p.scale_b, columns_of_b(p), x.scale_b_stride, batch_stride_b);
  } else {
    place_blocks<batched_a>(p.scale_a, x.m, x.k, x.scale_a_stride_row, x.scale_a_stride_k, batch_stride_a);
    place_blocks<batched_b>(p.scale_b, x.n, x.k, x.scale_b_stride_col, x.scale_b_stride_k, batch_stride_b);
  }
}

/// Has what the operation has not been discarded, since `Arguments` lacks it.
template <class Arguments>
std::string read_call(const Arguments& x, Given& given) {
  if (std::string fault = check_sizes(x); !fault.empty()) return fault;
  cleave::GemmProblem& p = given.problem;
  cleave::GemmArguments& pointers = given.arguments;
  p.m = x.m;
  p.n = x.n;
  p.k = x.k;
  p.batch = entries(x);
  place_matrices(x, p);
  pointers.a = x.a;
  pointers.b = x.b;
  pointers.d = x.d;
  pointers.alpha = x.alpha;
  if constexpr (kOperation.has_c) {
    pointers.c = x.c;
    pointers.beta = x.beta;
  }
  if constexpr (kOperation.bias != cleave::Bias::none) {
    pointers.bias = x.bias;
    constexpr Grouping along = kOperation.bias == cleave::Bias::row ? Grouping::n : Grouping::m;
    if constexpr (kGroups.dimension != along) p.bias_stride_batch = x.batch_stride_bias;
  }
  if constexpr (kOperation.scale_a.kind != Scaling::none) {
    place_scales(x, p);
    pointers.scale_a = x.scale_a;
    pointers.scale_b = x.scale_b;
  }
  if constexpr (kOperation.has_zero) {
    pointers.zero_a = x.zero_a;
    pointers.zero_b = x.zero_b;
  }
  if constexpr (kOperation.has_scale_d) pointers.scale_d = x.scale_d;
  if constexpr (kOperation.has_amax) pointers.amax = x.amax;
  if constexpr (kGrouped) {
    constexpr bool counts = kGroups.bounds == cleave::GroupBounds::counts;
    if constexpr (!counts) pointers.group_offsets = x.offsets;
    if constexpr (counts || kGroups.bounds == cleave::GroupBounds::starts) pointers.group_sizes = x.sizes;
    if constexpr (cleave::is_spaced(kGroups.bounds)) p.groups.spacing = x.spacing;
    if constexpr (kGroups.dimension != Grouping::k) p.groups.zero_rest = x.zero_rest;
  }
  return {};
}

}  // namespace

std::string read(const Arguments& arguments, Given& given) {
  return read_call(arguments, given);
}

}  // namespace emitted::operation
