// The operands of a tile's product, in panels: matrices as they lie in memory, or those that a
// convolution stands for.
#pragma once

#include <optional>

#include "cleave/config/gate_columns.h"
#include "cleave/config/list_params.h"
#include "cleave/gemm.h"
#include "cpu/gather.h"
#include "cpu/pack.h"
#include "cpu/tiling.h"

namespace cleave::cpu {

class Operands {
 public:
  Operands(const GemmProblem& problem, const GemmArguments& arguments, const Tiling& tiling);

  /// `k` of some rows of A, or columns of B, that the tile at `coord` needs. In fprop and dgrad, rows
  /// are pixels of the tile's class, and K is the taps of the class x channels.
  void pack_a(const TileCoord& coord, Span rows, Span k, float* out) const;
  /// `is_up`: of the ups that go with these columns of D, else of their gates.
  void pack_b(const TileCoord& coord, Span columns, bool is_up, Span k, float* out) const;

 private:
  /// The offset of the element at the first of `line` and `k`, and the stride of the lines, in a matrix whose strided
  /// dimension has `lines` elements. Where groups lie apart, both are the group's.
  struct Place {
    int64_t offset, stride;
  };
  Place place(const MatrixLayout& layout, const TileCoord& coord, int64_t line_stride, int64_t k_stride, int64_t lines,
              uint32_t line, uint32_t k) const;

  /// dgrad's B: of the filters' taps only those of the class.
  void pack_filters(const TileCoord& coord, Span columns, Span k, float* out) const;

  const GemmProblem& problem_;
  const GemmArguments& arguments_;
  const Tiling& tiling_;
  ListParams listed_;  // where a list names A's rows
  GateColumns gates_;
  std::optional<Gather> gather_;
};

}  // namespace cleave::cpu
