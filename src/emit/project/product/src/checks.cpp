#include "checks.h"

#include <utility>

#include "cleave/config/output.h"
#include "cleave/memory/weight_layout.h"
#include "operands.h"

namespace emitted::operation {
namespace {

using cleave::Grouping;

constexpr const char* kGroupedName = kGroups.dimension == Grouping::m   ? "m"
                                     : kGroups.dimension == Grouping::n ? "n"
                                                                        : "k";

/// A matrix in memory: `lines` of `across` contiguous elements each.
struct Matrix {
  const char *name, *list;  // `list`: "outputs.", of the function's
  struct {
    int64_t across, lines, batch;
  } size;
  struct {
    int64_t line, batch;
  } stride;
  uint32_t element;    // bytes
  uint32_t alignment;  // bytes that the kernel loads or stores at once

  Matrix(const char* name, const cleave::MatrixLayout& layout, cleave::Order order, int64_t rows, int64_t columns,
         int64_t batch, uint32_t alignment)
      : name(name), list(nullptr), element(cleave::size_of(layout.dtype)), alignment(alignment) {
    const bool by_row = order == cleave::Order::row;
    size = {by_row ? columns : rows, by_row ? rows : columns, batch};
    stride = {by_row ? layout.stride_row : layout.stride_col, layout.stride_batch};
  }
  Matrix(const FunctionOperand& x, const cleave::GemmProblem& p)
      : name(x.name), list(x.list), element(cleave::size_of(x.layout.dtype)), alignment(element) {
    const bool by_row = x.layout.order == cleave::Order::row;
    size = {by_row ? p.n : p.m, by_row ? p.m : p.n, entries_of_d(p)};
    stride = {x.layout.stride, x.layout.stride_batch};
  }

  /// `written`: its elements must be apart.
  void check(bool written) const;

 private:
  /// "lda is ...", or "outputs.pre.ld is ...".
  template <class... Parts>
  [[noreturn]] void refuse_ld(const Parts&... parts) const {
    if (list != nullptr) refuse(list, name, ".ld is ", stride.line, parts...);
    refuse("ld", name, " is ", stride.line, parts...);
  }
  template <class... Parts>
  [[noreturn]] void refuse_batch(const Parts&... parts) const {
    if (list != nullptr) refuse(list, name, ".batch_stride is ", stride.batch, parts...);
    refuse("batch_stride_", name, " is ", stride.batch, parts...);
  }
};

void Matrix::check(bool written) const {
  const auto is_whole = [&](int64_t elements) { return elements * element % alignment == 0; };
  if (size.lines > 1 && stride.line < (written ? size.across : 1))
    refuse_ld("; it must be at least ", written ? size.across : 1);
  if (size.batch > 1 && stride.batch < 0) refuse_batch("; it must not be negative");
  if (written && size.batch > 1) {
    const int64_t entry = (size.lines - 1) * stride.line + size.across;
    const int64_t line = (size.batch - 1) * stride.batch + size.across;
    const bool apart = stride.batch >= entry || (stride.batch >= size.across && stride.line >= line);
    if (!apart) refuse_batch(", so that entries of ", name, " overlap; it must be at least ", entry);
  }
  if (size.lines > 1 && !is_whole(stride.line)) refuse_ld("; it must be a multiple of ", alignment / element);
  if (size.batch > 1 && !is_whole(stride.batch)) refuse_batch("; it must be a multiple of ", alignment / element);
}

/// What the function's operands must be, whatever the kernel.
void check_operand(const FunctionOperand& x, const cleave::GemmProblem& p) {
  if (x.layout.shape == cleave::InputShape::matrix) return Matrix(x, p).check(x.is_written);
  if (x.layout.stride < 0) x.refuse(".stride is ", x.layout.stride, "; it must not be negative");
  x.check_apart();
  if (x.layout.stride_batch < 0) x.refuse(".batch_stride is ", x.layout.stride_batch, "; it must not be negative");
}

/// A packed weight's K is whole groups that share a scale.
void check_groups(const cleave::GemmProblem& p) {
  const int64_t group = p.weights_b.group;
  if (p.k == 0 || p.k % group != 0)
    refuse("k is ", p.k, "; it must be a positive multiple of ", group, ", as many as share a scale of the weight");
  if (is_gated(p) && p.n % cleave::kGateRows != 0)
    refuse("n is ", p.n, "; it must be a multiple of ", cleave::kGateRows,
           ", as the weight has gates beside their ups");
}

/// What the kernel loads and stores at once, of our matrices.
struct Access {
  uint32_t a, b, c, d;

  explicit Access(const Kernel& kernel)
      : a(kernel.config.operands.load_bytes_a),
        b(kernel.config.operands.load_bytes_b),
        c(cleave::load_bytes_c(kernel.config)),
        d(kernel.config.store.by_tma ? 16 : cleave::size_of(kernel.config.epilogue.d)) {
    if (kernel.transposed) std::swap(a, b);
  }
};

}  // namespace

bool is_empty(const cleave::GemmProblem& p) {
  return p.m == 0 || p.n == 0 || p.batch == 0;
}

void check_layouts(const cleave::GemmProblem& p, const Kernel& kernel) {
  const cleave::GemmConfig& config = kernel.config;
  if (kGrouped && (p.batch < 1 || p.batch > config.schedule.group_capacity))
    refuse("groups is ", p.batch, "; this kernel serves 1 to ", config.schedule.group_capacity);
  if (is_empty(p)) return;
  if (!cleave::fits_maps(config, p)) {
    if (p.k == 0) refuse("k is 0; this kernel needs at least 1. Fill D without it");
    refuse(kGroupedName, " is ", grouped_extent(p), "; this kernel serves at most ", cleave::kRaggedExtent);
  }
  const Access access(kernel);
  const Matrix a("a", p.a, kOrders.a, p.m, p.k, entries_of_a(p), access.a);
  const Matrix d("d", p.d, kOrders.d, p.m, p.n, entries_of_d(p), access.d);
  if (p.k > 0) a.check(false);
  if (kPackedWeight) {
    check_groups(p);
  } else if (p.k > 0) {
    Matrix("b", p.b, kOrders.b, p.k, columns_of_b(p), entries_of_b(p), access.b).check(false);
  }
  d.check(true);
  if (!cleave::gates_are_aligned(config, p))
    refuse("n is ", p.n, "; it must be a multiple of ", access.b / cleave::size_of(p.b.dtype),
           ", since this kernel loads ", access.b, " bytes of B at once. Plan with such a size for another kernel");
  if (d.size.across * d.element % d.alignment != 0)
    refuse(kOrders.d == cleave::Order::row ? "n" : "m", " is ", d.size.across, "; it must be a multiple of ",
           d.alignment / d.element,
           ", since this kernel stores 16 bytes of D at once. Plan with such a size for another kernel");
  visit_operands(p, {}, config, [&](const FunctionOperand& x) { check_operand(x, p); });
}

View make_view(const cleave::GemmProblem& problem, const Kernel& kernel) {
  const cleave::GemmConfig& config = kernel.config;
  View view{.problem = kernel.transposed ? transposed(problem) : problem};
  check_pairs(view.problem, config);
  view.tiles = cleave::gemm_tiles(config, sizes_of(view.problem));
  if (config.cluster.k > 1 && view.tiles.k_blocks < config.cluster.k)
    refuse("k is ", problem.k, "; this kernel splits K among ", config.cluster.k, " blocks and needs more than ",
           (config.cluster.k - 1) * config.tile.k);
  if (!cleave::is_countable(config, view.tiles, kernel.slices))
    refuse("m, n, k and ", kGrouped ? "groups" : "batch", " are ", problem.m, ", ", problem.n, ", ", problem.k, " and ",
           problem.batch, "; that is too many tiles. Split the product");
  return view;
}

void check_arguments(const Given& given, const Kernel& kernel) {
  const auto& [p, x] = given;
  const Access access(kernel);
  if (p.k > 0) check_address("a", x.a, access.a);
  if (p.k > 0) check_address("b", x.b, kPackedWeight ? 16 : access.b);
  check_address("d", x.d, access.d);
  if (x.beta != 0.0f) {
    check_address("c", x.c, access.c);
    Matrix("c", p.c, kOrders.d, p.m, p.n, entries_of_d(p), access.c).check(false);
  }
  check_operand_addresses(p, x, kernel.config);
  check_factors(given);
}

void check_present(const Given& given) {
  const auto& [p, x] = given;
  check_pointers({{"a", x.a, p.k > 0},
                  {"b", x.b, p.k > 0},
                  {"c", x.c, x.beta != 0.0f},
                  {"d", x.d},
                  {"bias", x.bias, p.bias != cleave::Bias::none},
                  {"scale_a", x.scale_a, p.scale_a.kind != cleave::Scaling::none},
                  {kPackedWeight ? "global_scale" : "scale_b", x.scale_b, p.scale_b.kind != cleave::Scaling::none},
                  {"scales", x.weight_scale, kPackedWeight},
                  {"zeros", x.weight_zero, p.weights_b.has_zero},
                  {"zero_b", x.zero_b, p.has_zero},
                  {"scale_d", x.scale_d, p.has_scale_d},
                  {"amax", x.amax, p.has_amax},
                  {"offsets", x.group_offsets, kHasOffsets},
                  {"sizes", x.group_sizes, kHasSizes}});
  check_operands_present(p, x, kKernels[0].config);
}

}  // namespace emitted::operation
