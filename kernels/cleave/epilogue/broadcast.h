// The scales, zero points, biases and places of a thread's rows and columns (BroadcastValues), read in two ways:
//
//   GlobalBroadcast   from global memory when they are needed, by threads that finish a few blocks of a tile
//                     (reductions, parts of a cluster)
//   TileBroadcast     for whole tiles, before the mainloop, which hides their latency. A thread keeps the values of its
//                     own rows; columns are read one per thread and shared with the warpgroup through shared memory.
#pragma once

#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue/function.h"
#include "cleave/tile/named_barriers.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// The first or second row of a thread's block, `half`, if it lies within D. A gate's row and the up's are the same one
/// of D: in A the up's rows are numbered behind the gate's.
template <GemmConfig C>
CLEAVE_DEVICE void tile_row_broadcast(const GemmParams& p, const Tile<C>& tile, uint32_t block, uint32_t half,
                                      LineValues<C>& values) {
  const uint32_t row = tile.row(block) + (gates_rows(C) ? 0 : half * 8);
  if (row >= tile.m_end(p.size)) return;
  const uint32_t of_a = gates_rows(C) ? half * p.size.m + row : row;
  static_cast<BroadcastValues&>(values) =
      row_broadcast(C.epilogue, p.epilogue, p.scales_a, of_a, tile.batch, scale_row<lists_a(C)>(p.list, of_a));
  tile.find_row(row, values);
  if constexpr (!C.conv.fuses_classes)
    load_line_inputs<C, InputShape::column>(p, scatters(C) ? values.output_row : row, tile.batch, values.inputs);
}

/// Column `column` of the tile, unless it lies outside D.
template <GemmConfig C>
CLEAVE_DEVICE void tile_column_broadcast(const GemmParams& p, const Tile<C>& tile, uint32_t column,
                                         LineValues<C>& values) {
  const bool up = gated(C) && column >= output_columns(C);
  const uint32_t col = tile.n0 + (up ? column - output_columns(C) : column);
  if (col >= tile.n_end(p.size)) return;
  OutputOffset offset;
  const uint32_t of_d = tile.find_column(col, offset);
  const uint32_t of_b = gated(C) ? p.gates.of(col, up) : of_d;
  static_cast<BroadcastValues&>(values) =
      column_broadcast(C.epilogue, p.epilogue, p.scales_b, of_b, tile.batch, scale_row<lists_b(C)>(p.list, of_b));
  static_cast<OutputOffset&>(values) = offset;
  load_line_inputs<C, InputShape::row>(p, of_d, tile.batch, values.inputs);
}

/// Remembers the last rows: consecutive blocks mostly share them, and in unrolled code it costs nothing.
template <GemmConfig C>
class GlobalBroadcast {
 public:
  CLEAVE_DEVICE GlobalBroadcast(const GemmParams& p, const Tile<C>& tile) : p_(p), tile_(tile) {
    load_line_inputs<C, InputShape::scalar>(p, 0, tile.batch, scalars_);
  }

  CLEAVE_DEVICE const FunctionValues<C>& scalars() const { return scalars_; }

  CLEAVE_DEVICE void rows(uint32_t block, LineValues<C> (&values)[2]) {
    const uint32_t row = tile_.row(block);
    if (row != row_) {
      row_ = row;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 2; ++i) tile_row_broadcast(p_, tile_, block, i, rows_[i]);
    }
    values[0] = rows_[0];
    values[1] = rows_[1];
  }

  CLEAVE_DEVICE void columns(uint32_t block, LineValues<C> (&values)[2]) const {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) tile_column_broadcast(p_, tile_, tile_.fragment.col(block) + i, values[i]);
  }

 private:
  const GemmParams& p_;
  const Tile<C>& tile_;
  uint32_t row_ = 0xffffffffu;
  LineValues<C> rows_[2];
  FunctionValues<C> scalars_;
};

/// For sm90 kernels only. `shared`: the warpgroup's part of SmemPlan::broadcast.
template <GemmConfig C>
class TileBroadcast {
 public:
  /// Before the mainloop.
  CLEAVE_DEVICE TileBroadcast(const GemmParams& p, const Tile<C>& tile, float* shared)
      : shared_(shared), col0_(threadIdx.x % 4 * 2) {
    if constexpr (C.conv.fuses_classes && !stages_output(C))
      return;  // too much for a thread to keep: GlobalBroadcast is used instead
    load_line_inputs<C, InputShape::scalar>(p, 0, tile.batch, scalars_);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2 * kWaves; ++i)
      tile_row_broadcast(p, tile, i / 2 * Fragment<C>::kColBlocks, i % 2, rows_[i]);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kOwn; ++i) {
      if (own_column(i) < C.tile.n) tile_column_broadcast(p, tile, own_column(i), columns_[i]);
    }
  }

  /// Before the epilogue, by all threads of the warpgroup; `barrier`: its named barrier.
  CLEAVE_DEVICE void share(uint32_t barrier) const {
    if constexpr (column_broadcast_values(C) > 0 && (!C.conv.fuses_classes || stages_output(C))) {
      ptx::named_barrier_sync(barrier, 128);  // the last tile's are no longer read
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kOwn; ++i) {
        const uint32_t col = own_column(i);
        if (col >= C.tile.n) break;
        if constexpr (kScales) shared_[col] = columns_[i].scale;
        if constexpr (kBiases) shared_[kBiasAt + col] = columns_[i].bias;
        if constexpr (C.epilogue.has_zero) shared_[kZeroAt + col] = __int_as_float(columns_[i].zero);
        if constexpr (kRowInputs > 0) {
          constexpr FunctionConfig function = C.epilogue.function;
          CLEAVE_UNROLL
          for (uint32_t k = 0; k < function.inputs; ++k)
            if (function.input(k).shape == InputShape::row) shared_[input_at(k) + col] = columns_[i].inputs[k];
        }
      }
      ptx::named_barrier_sync(barrier, 128);
    }
  }

  CLEAVE_DEVICE const FunctionValues<C>& scalars() const { return scalars_; }

  CLEAVE_DEVICE void rows(uint32_t block, LineValues<C> (&values)[2]) const {
    values[0] = rows_[block / Fragment<C>::kColBlocks * 2];
    values[1] = rows_[block / Fragment<C>::kColBlocks * 2 + 1];
  }

  CLEAVE_DEVICE void columns(uint32_t block, LineValues<C> (&values)[2]) const {
    const float* const at = shared_ + col0_ + block % Fragment<C>::kColBlocks * 8;
    const auto pair = [&](uint32_t kind) { return *reinterpret_cast<const float2*>(at + kind); };
    if constexpr (kScales) {
      const float2 scales = pair(0);
      values[0].scale = scales.x, values[1].scale = scales.y;
    }
    if constexpr (kBiases) {
      const float2 biases = pair(kBiasAt);
      values[0].bias = biases.x, values[1].bias = biases.y;
    }
    if constexpr (C.epilogue.has_zero) {
      const float2 zeros = pair(kZeroAt);
      values[0].zero = __float_as_int(zeros.x), values[1].zero = __float_as_int(zeros.y);
    }
    if constexpr (kRowInputs > 0) {
      constexpr FunctionConfig function = C.epilogue.function;
      CLEAVE_UNROLL
      for (uint32_t k = 0; k < function.inputs; ++k) {
        if (function.input(k).shape != InputShape::row) continue;
        const float2 both = pair(input_at(k));
        values[0].inputs[k] = both.x, values[1].inputs[k] = both.y;
      }
    }
  }

 private:
  static constexpr uint32_t kWaves = Fragment<C>::kRows / 64;
  static constexpr uint32_t kOwn = ceil_div(C.tile.n, 128u);
  static constexpr bool kScales = scales_columns(C), kBiases = C.epilogue.bias == Bias::row;
  static constexpr uint32_t kBiasAt = kScales ? C.tile.n : 0;
  static constexpr uint32_t kZeroAt = kBiasAt + (kBiases ? C.tile.n : 0);
  static constexpr uint32_t kInputsAt = kZeroAt + (C.epilogue.has_zero ? C.tile.n : 0);

  static constexpr uint32_t kRowInputs = C.epilogue.function.count(InputShape::row);

  /// Where an input that is a row begins in shared memory. A copy is asked, as functions take one
  /// (config/epilogue_params.h): a call of C's own member would refer to C; a copy of the class's nvcc refuses.
  CLEAVE_DEVICE static uint32_t input_at(uint32_t input) {
    constexpr FunctionConfig function = C.epilogue.function;
    return kInputsAt + function.count(InputShape::row, input) * C.tile.n;
  }
  CLEAVE_DEVICE static uint32_t own_column(uint32_t i) { return i * 128 + threadIdx.x % 128; }

  float* shared_;
  uint32_t col0_;
  LineValues<C> rows_[2 * kWaves];
  LineValues<C> columns_[kOwn];
  FunctionValues<C> scalars_;
};

}  // namespace cleave
