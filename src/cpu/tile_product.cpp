#include "cpu/tile_product.h"

#include <algorithm>

#include "cpu/pack.h"

namespace cleave::cpu {

TileProduct::TileProduct(const GemmProblem& problem, const GemmArguments& arguments,
                         const Tiling& tiling)
    : problem_(problem), arguments_(arguments), tiling_(tiling), multiply_(micro_kernel()) {}

void TileProduct::operator()(const WorkUnit& unit, Scratch& scratch, float* sums) const {
  const GemmProblem& p = problem_;
  const Tiling& t = tiling_;
  const int64_t row = int64_t(unit.m) * t.tile_m, column = int64_t(unit.n) * t.tile_n;
  const auto rows = uint32_t(min_of<int64_t>(t.tile_m, p.m - row));
  const auto columns = uint32_t(min_of<int64_t>(t.tile_n, p.n - column));
  const int64_t a_tile = unit.batch * p.a.stride_batch + row * p.a.stride_row;
  const int64_t b_tile = unit.batch * p.b.stride_batch + column * p.b.stride_col;

  std::fill_n(sums, t.tile_elements(), 0.0f);
  for (uint32_t i = 0; i < unit.k_count; ++i) {
    const int64_t first = int64_t(unit.k_block(i)) * t.tile_k;
    const auto k = uint32_t(min_of<int64_t>(t.tile_k, p.k - first));
    pack_a({p.a.dtype, arguments_.a, a_tile + first * p.a.stride_col, p.a.stride_row,
            p.a.stride_col, rows, k},
           scratch.a);
    pack_b({p.b.dtype, arguments_.b, b_tile + first * p.b.stride_row, p.b.stride_col,
            p.b.stride_row, columns, k},
           scratch.b);
    for (uint32_t j = 0; j < columns; j += kMicroColumns) {
      for (uint32_t r = 0; r < rows; r += kMicroRows) {
        multiply_(k, scratch.a + r * k, scratch.b + j * k, sums + r * t.tile_n + j, t.tile_n);
      }
    }
  }
}

}  // namespace cleave::cpu
