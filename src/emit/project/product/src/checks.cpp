#include "checks.h"

#include <utility>

#include "launch/limits.h"

namespace emitted::operation {
namespace {

using cleave::Grouping;

constexpr const char* kGroupedName = kGroups.dimension == Grouping::m   ? "m"
                                     : kGroups.dimension == Grouping::n ? "n"
                                                                        : "k";

/// A matrix in memory: `lines` of `across` contiguous elements each.
struct Matrix {
  const char* name;
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
      : name(name), element(cleave::size_of(layout.dtype)), alignment(alignment) {
    const bool by_row = order == cleave::Order::row;
    size = {by_row ? columns : rows, by_row ? rows : columns, batch};
    stride = {by_row ? layout.stride_row : layout.stride_col, layout.stride_batch};
  }

  /// `written`: its elements must be apart.
  std::string check(bool written) const;
};

std::string Matrix::check(bool written) const {
  const auto whole = [&](int64_t elements) { return elements * element % alignment == 0; };
  if (size.lines > 1 && stride.line < (written ? size.across : 1))
    return text("ld", name, " is ", stride.line, "; it must be at least ", written ? size.across : 1);
  if (size.batch > 1 && stride.batch < 0)
    return text("batch_stride_", name, " is ", stride.batch, "; it must not be negative");
  if (written && size.batch > 1) {
    const int64_t entry = (size.lines - 1) * stride.line + size.across;
    const int64_t line = (size.batch - 1) * stride.batch + size.across;
    const bool apart = stride.batch >= entry || (stride.batch >= size.across && stride.line >= line);
    if (!apart)
      return text("batch_stride_", name, " is ", stride.batch, ", so that entries of ", name,
                  " overlap; it must be at least ", entry);
  }
  if (size.lines > 1 && !whole(stride.line))
    return text("ld", name, " is ", stride.line, "; it must be a multiple of ", alignment / element);
  if (size.batch > 1 && !whole(stride.batch))
    return text("batch_stride_", name, " is ", stride.batch, "; it must be a multiple of ", alignment / element);
  return {};
}

/// What the kernel loads and stores at once, of our matrices.
struct Access {
  uint32_t a, b, c, d;

  explicit Access(const Kernel& kernel)
      : a(kernel.config.operands.load_bytes_a),
        b(kernel.config.operands.load_bytes_b),
        c(cleave::size_of(kernel.config.epilogue.c)),
        d(kernel.config.store.by_tma ? 16 : cleave::size_of(kernel.config.epilogue.d)) {
    if (kernel.transposed) std::swap(a, b);
  }
};

std::string check_tiles(const cleave::GemmProblem& p, const Kernel& kernel, const cleave::GemmTiles& tiles) {
  const cleave::GemmConfig& config = kernel.config;
  if (config.cluster.k > 1 && tiles.k_blocks < config.cluster.k)
    return text("k is ", p.k, "; this kernel splits K among ", config.cluster.k, " blocks and needs more than ",
                (config.cluster.k - 1) * config.tile.k);
  if (!cleave::is_countable(config, tiles, kernel.slices))
    return text("m, n, k and ", kGrouped ? "groups" : "batch", " are ", p.m, ", ", p.n, ", ", p.k, " and ", p.batch,
                "; that is too many tiles. Split the product");
  return {};
}

}  // namespace

bool is_empty(const cleave::GemmProblem& p) {
  return p.m == 0 || p.n == 0 || p.batch == 0;
}

std::string find_obstacle(const cleave::GemmProblem& p, const Kernel& kernel) {
  const cleave::GemmConfig& config = kernel.config;
  if (kGrouped && (p.batch < 1 || p.batch > config.schedule.group_capacity))
    return text("groups is ", p.batch, "; this kernel serves 1 to ", config.schedule.group_capacity);
  if (is_empty(p)) return {};
  if (!cleave::fits_maps(config, p)) {
    if (p.k == 0) return "k is 0; this kernel needs at least 1. Fill D without it";
    return text(kGroupedName, " is ", grouped_extent(p), "; this kernel serves at most ", cleave::kRaggedExtent);
  }
  const Access access(kernel);
  const Matrix a("a", p.a, kOrders.a, p.m, p.k, entries_of_a(p), access.a);
  const Matrix b("b", p.b, kOrders.b, p.k, columns_of_b(p), entries_of_b(p), access.b);
  const Matrix d("d", p.d, kOrders.d, p.m, p.n, entries_of_d(p), access.d);
  std::string fault;
  if (p.k > 0 && !(fault = a.check(false)).empty()) return fault;
  if (p.k > 0 && !(fault = b.check(false)).empty()) return fault;
  if (!(fault = d.check(true)).empty()) return fault;
  if (!cleave::gates_are_aligned(config, p))
    return text("n is ", p.n, "; it must be a multiple of ", access.b / b.element, ", since this kernel loads ",
                access.b, " bytes of B at once. Plan with such a size for another kernel");
  if (d.size.across * d.element % d.alignment != 0)
    return text(kOrders.d == cleave::Order::row ? "n" : "m", " is ", d.size.across, "; it must be a multiple of ",
                d.alignment / d.element,
                ", since this kernel stores 16 bytes of D at once. Plan with such a size for "
                "another kernel");
  return {};
}

std::string find_view(const cleave::GemmProblem& problem, const Kernel& kernel, View& view) {
  view.problem = kernel.transposed ? transposed(problem) : problem;
  const cleave::GemmProblem& p = view.problem;
  view.tiles = cleave::gemm_tiles(kernel.config, {uint32_t(p.m), uint32_t(p.n), uint32_t(p.k), uint32_t(p.batch)});
  return check_tiles(problem, kernel, view.tiles);
}

std::string find_misplaced(const Given& given, const Kernel& kernel) {
  const auto& [p, x] = given;
  const Access access(kernel);
  const auto check = [](const char* name, const void* data, uint32_t alignment) {
    if (reinterpret_cast<uintptr_t>(data) % alignment == 0) return std::string();
    return text(name, " is at ", data, "; it must be at a multiple of ", alignment, " bytes");
  };
  std::string fault;
  if (p.k > 0 && !(fault = check("a", x.a, access.a)).empty()) return fault;
  if (p.k > 0 && !(fault = check("b", x.b, access.b)).empty()) return fault;
  if (!(fault = check("d", x.d, access.d)).empty()) return fault;
  if (x.beta != 0.0f) {
    const Matrix c("c", p.c, kOrders.d, p.m, p.n, entries_of_d(p), access.c);
    if (!(fault = check("c", x.c, access.c)).empty()) return fault;
    if (!(fault = c.check(false)).empty()) return fault;
  }
  return find_factor_fault(p, x);
}

std::string find_missing(const Given& given) {
  const auto& [p, x] = given;
  constexpr bool scaled = kOperation.scale_a.kind != cleave::Scaling::none;
  constexpr cleave::GroupBounds bounds = kOperation.groups.bounds;
  constexpr bool counts = bounds == cleave::GroupBounds::counts;
  struct {
    const char* name;
    const void* data;
    bool is_read;
  } const pointers[] = {
      {"a", x.a, p.k > 0},
      {"b", x.b, p.k > 0},
      {"c", x.c, x.beta != 0.0f},
      {"d", x.d, true},
      {"bias", x.bias, p.bias != cleave::Bias::none},
      {"scale_a", x.scale_a, scaled},
      {"scale_b", x.scale_b, scaled},
      {"zero_b", x.zero_b, p.has_zero},
      {"scale_d", x.scale_d, p.has_scale_d},
      {"amax", x.amax, p.has_amax},
      {"offsets", x.group_offsets, kGrouped && !counts},
      {"sizes", x.group_sizes, kGrouped && (counts || bounds == cleave::GroupBounds::starts)},
  };
  for (const auto& pointer : pointers) {
    if (pointer.is_read && pointer.data == nullptr) return text(pointer.name, " is a null pointer; pass the data");
  }
  return {};
}

}  // namespace emitted::operation
