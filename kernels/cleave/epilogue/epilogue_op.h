// The epilogue of a thread's accumulators, a block of four at a time (fragment.h).
#pragma once

#include "cleave/epilogue/broadcast.h"

namespace cleave {

/// What D's elements are before they are converted: integers stay integers.
template <GemmConfig C>
using Value = typename detail::SumOf<C.epilogue.d == DType::i32>::type;

/// An element of D.
struct OutputCoord {
  uint32_t row, col;
  bool exists;
};

/// One tile's epilogue, as one thread sees it. `Broadcast`: see broadcast.h.
template <GemmConfig C, class Broadcast>
class EpilogueOp {
 public:
  CLEAVE_DEVICE EpilogueOp(const GemmParams& p, const Tile<C>& tile, Broadcast& broadcast)
      : p_(p), tile_(tile), broadcast_(broadcast), factor_(stored_factor(C.epilogue, p.epilogue)) {}

  /// Turns a block's sums into what D stores. `up_sums`: those of the up projection, where `sums` are the gate's.
  /// Elements outside D get any value.
  CLEAVE_DEVICE void operator()(uint32_t block, const Sum<C>* sums, const Sum<C>* up_sums, Value<C> (&values)[4]) {
    BroadcastValues rows[2], columns[2], up_columns[2];
    broadcast_.rows(block, rows);
    broadcast_.columns(block, columns);
    if constexpr (gated(C)) broadcast_.columns(block + Fragment<C>::kUpBlocks, up_columns);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = tile_.row(block) + i / 2 * 8, col = tile_.col(block) + i % 2;
      if ((C.epilogue.has_c || C.epilogue.has_amax) && (row >= tile_.m_end(p_.size) || col >= tile_.n_end(p_.size)))
        continue;
      const OutputCoord at_d = place(rows[i / 2], columns[i % 2], row, col);
      if (C.conv.fuses_classes && C.epilogue.has_c && !at_d.exists) continue;
      const ElementCoord at{at_d.row, at_d.col, tile_.batch, tile_.empty};
      if constexpr (C.epilogue.d == DType::i32) {
        values[i] = epilogue_integer(C.epilogue, p_.epilogue, sums[i], rows[i / 2], columns[i % 2], at);
      } else {
        float value = epilogue_value(C.epilogue, p_.epilogue, sums[i], rows[i / 2], columns[i % 2], at);
        if constexpr (gated(C)) {
          value =
              swiglu(value, epilogue_value(C.epilogue, p_.epilogue, up_sums[i], rows[i / 2], up_columns[i % 2], at));
        }
        if (C.epilogue.has_amax) amax_ = max_of(amax_, __float_as_uint(value) & 0x7fffffffu);
        values[i] = value * factor_;
      }
    }
  }

  /// After the last call, by all threads of a warp. Magnitudes order like their bits, NaNs last;
  /// what was there before may be a zero of either sign.
  CLEAVE_DEVICE void done() const {
    if constexpr (C.epilogue.has_amax) {
      const uint32_t most = __reduce_max_sync(0xffffffffu, amax_);
      if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int32_t*>(p_.epilogue.amax), int32_t(most));
    }
  }

  /// Where accumulator `i` of the block lies in D.
  CLEAVE_DEVICE OutputCoord place(uint32_t block, uint32_t i) {
    BroadcastValues rows[2], columns[2];
    if constexpr (scatters(C)) broadcast_.rows(block, rows);
    if constexpr (C.conv.fuses_classes) broadcast_.columns(block, columns);
    return place(rows[i / 2], columns[i % 2], tile_.row(block) + i / 2 * 8, tile_.col(block) + i % 2);
  }

  CLEAVE_DEVICE const Tile<C>& tile() const { return tile_; }

 private:
  /// The same, of the lines that meet there: row `row` and column `col` of the product.
  CLEAVE_DEVICE OutputCoord place(const BroadcastValues& of_row, const BroadcastValues& of_column, uint32_t row,
                                  uint32_t col) const {
    OutputCoord coord{row, col, row < tile_.m_end(p_.size) && col < tile_.n_end(p_.size)};
    if constexpr (scatters(C)) coord.row = of_row.output_row;
    if constexpr (C.conv.fuses_classes) {
      coord.row += of_column.output_row;
      coord.col = of_column.output_column;
      coord.exists = coord.exists && (of_row.edges & of_column.edges) == 0;
    }
    return coord;
  }

  const GemmParams& p_;
  const Tile<C>& tile_;
  Broadcast& broadcast_;
  float factor_;
  uint32_t amax_ = 0;
};

}  // namespace cleave
