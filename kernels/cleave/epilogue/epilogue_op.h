// The epilogue of a thread's accumulators, a block of four at a time (fragment.h).
#pragma once

#include "cleave/config/output.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue/broadcast.h"
#include "cleave/epilogue/element_inputs.h"
#include "cleave/epilogue/reduce_tile.h"
#include "cleave/epilogue/store_pair.h"

namespace cleave {

/// What D's elements are before they are converted: integers stay integers.
template <GemmConfig C>
using Value = Either<C.epilogue.d == DType::i32, int32_t, float>;

/// An element of D.
struct OutputCoord {
  uint32_t row, col;
  bool exists;
};

/// The epilogue's operands for a block.
template <GemmConfig C>
struct BlockInputs {
  ElementInputs<C> elements;
  LineValues<C> rows[2], columns[2], up_columns[2];
};

/// One tile's epilogue, as one thread sees it. `Broadcast`: see broadcast.h.
template <GemmConfig C, class Broadcast>
class EpilogueOp {
 public:
  CLEAVE_DEVICE EpilogueOp(const GemmParams& p, const Tile<C>& tile, Broadcast& broadcast)
      : p_(p), tile_(tile), broadcast_(broadcast), factor_(stored_factor(C.epilogue, p.epilogue)) {}

  /// Requests a block's element-wise inputs.
  CLEAVE_DEVICE ElementInputs<C> fetch(uint32_t block) {
    ElementInputs<C> elements;
    fetch_inputs<0>(block, elements);
    return elements;
  }

  /// Requests these, and the values of the block's rows and columns.
  CLEAVE_DEVICE void fetch_all(uint32_t block, BlockInputs<C>& inputs) {
    inputs.elements = fetch(block);
    broadcast_.rows(block, inputs.rows);
    broadcast_.columns(block, inputs.columns);
    if constexpr (gated(C)) broadcast_.columns(block + Fragment<C>::kUpBlocks, inputs.up_columns);
  }

  /// Turns a block's sums into what D stores. `up_sums`: those of the up projection, where `sums` are the gate's, or
  /// begin with them.
  /// Elements outside D get any value.
  CLEAVE_DEVICE void operator()(uint32_t block, const Sum<C>* sums, const Sum<C>* up_sums, Value<C> (&values)[4]) {
    (*this)(block, sums, up_sums, fetch(block), values);
  }
  /// The same with what `fetch` brought.
  CLEAVE_DEVICE void operator()(uint32_t block, const Sum<C>* sums, const Sum<C>* up_sums,
                                const ElementInputs<C>& elements, Value<C> (&values)[4]) {
    LineValues<C> rows[2], columns[2], up_columns[2];
    broadcast_.rows(block, rows);
    broadcast_.columns(block, columns);
    if constexpr (gated(C)) broadcast_.columns(block + Fragment<C>::kUpBlocks, up_columns);
    finish(block, sums, up_sums, elements, rows, columns, up_columns, values);
  }
  /// The same with what `fetch_all` brought. A function's outputs beside D are stored at once.
  CLEAVE_DEVICE void operator()(uint32_t block, const Sum<C>* sums, const Sum<C>* up_sums, const BlockInputs<C>& inputs,
                                Value<C> (&values)[4]) {
    finish(block, sums, up_sums, inputs.elements, inputs.rows, inputs.columns, inputs.up_columns, values);
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
    LineValues<C> rows[2], columns[2];
    if constexpr (scatters(C)) broadcast_.rows(block, rows);
    if constexpr (C.conv.fuses_classes) broadcast_.columns(block, columns);
    return place(rows[i / 2], columns[i % 2], tile_.row(block) + i / 2 * 8, tile_.col(block) + i % 2);
  }

  CLEAVE_DEVICE const Tile<C>& tile() const { return tile_; }

 private:
  static constexpr FunctionConfig kFunction = C.epilogue.function;

  CLEAVE_DEVICE void finish(uint32_t block, const Sum<C>* sums, const Sum<C>* up_sums, const ElementInputs<C>& elements,
                            const LineValues<C> (&rows)[2], const LineValues<C> (&columns)[2],
                            const LineValues<C> (&up_columns)[2], Value<C> (&values)[4]) {
    [[maybe_unused]] float outputs[1 + kFunction.outputs][4];
    const Sum<C>* const ups = gates_rows(C) ? sums + 2 : up_sums;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Fragment<C>::kElements; ++i) {
      const uint32_t row = tile_.row(block) + i / 2 * 8, col = tile_.col(block) + i % 2;
      const bool exists = !C.epilogue.has_amax || (row < tile_.m_end(p_.size) && col < tile_.n_end(p_.size));
      // A whole group's values wait for its scale: with a branch around each the compiler keeps them in memory.
      if (!exists && !C.epilogue.has_scale_out) continue;
      if constexpr (C.epilogue.d == DType::i32) {
        values[i] =
            epilogue_integer(C.epilogue, p_.epilogue, sums[i], rows[i / 2], columns[i % 2], tile_.empty, elements.c(i));
      } else {
        float value =
            epilogue_value(C.epilogue, p_.epilogue, sums[i], rows[i / 2], columns[i % 2], tile_.empty, elements.c(i));
        [[maybe_unused]] float up = 0.0f;
        if constexpr (gated(C)) {
          up = epilogue_value(C.epilogue, p_.epilogue, ups[i], rows[i / 2], up_columns[i % 2], tile_.empty, 0.0f);
        } else if constexpr (gates_rows(C)) {
          up = epilogue_value(C.epilogue, p_.epilogue, ups[i], rows[1], columns[i], tile_.empty, 0.0f);
        }
        if constexpr (kFunction.given) {
          FunctionValues<C> inputs;
          const LineValues<C>&row_values = rows[i / 2], &column_values = columns[i % 2];
          gather_inputs<0>(row_values.inputs, column_values.inputs, elements, i, inputs);
          float made[1 + kFunction.outputs];
          if constexpr (kFunction.gated) {
            FunctionBody<C>::run(value, up, inputs, made);
          } else {
            FunctionBody<C>::run(value, inputs, made);
          }
          CLEAVE_UNROLL
          for (uint32_t o = 0; o < 1 + kFunction.outputs; ++o) outputs[o][i] = made[o];
          value = made[0];
        }
        if (C.epilogue.has_amax && exists) amax_ = max_of(amax_, __float_as_uint(value) & 0x7fffffffu);
        values[i] = value * factor_;
      }
    }
    store_outputs<0>(block, outputs);
  }

  template <uint32_t I>
  CLEAVE_DEVICE void fetch_inputs(uint32_t block, ElementInputs<C>& elements) {
    if constexpr (I < epilogue_inputs(C)) {
      constexpr FunctionOperandConfig kInput = epilogue_input(C, I);
      constexpr bool kIsC = I == kFunction.inputs;
      if constexpr (is_by_element(C, I)) {
        const FunctionOperand operand = epilogue_operand<C, I>(p_.epilogue);
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < Fragment<C>::kElements; i += kInput.pairs ? 2 : 1) {
          OutputCoord at = place(block, i);
          // Else the compiler finds all rows' addresses at once, for which 128 accumulators leave no registers.
          if constexpr (kIsC && has_two_waves(C) && accumulators_per_thread(C) >= 128) asm volatile("" : "+r"(at.row));
          const char* const from = matrix_element(kInput, operand, {at.row, at.col, tile_.batch});
          elements.template load<I>(i, from, at.exists && (!kIsC || p_.epilogue.beta != 0.0f));
        }
      }
      fetch_inputs<I + 1>(block, elements);
    }
  }

  /// What the function takes for element `i` of the block: inputs I and following.
  template <uint32_t I>
  CLEAVE_DEVICE void gather_inputs(const FunctionValues<C>& row_inputs, const FunctionValues<C>& column_inputs,
                                   const ElementInputs<C>& elements, uint32_t i, FunctionValues<C>& inputs) const {
    if constexpr (I < kFunction.inputs) {
      constexpr InputShape kShape = kFunction.input(I).shape;
      if constexpr (kShape == InputShape::scalar) inputs[I] = broadcast_.scalars()[I];
      if constexpr (kShape == InputShape::column && !is_by_element(C, I)) inputs[I] = row_inputs[I];
      if constexpr (kShape == InputShape::row) inputs[I] = column_inputs[I];
      if constexpr (is_by_element(C, I)) inputs[I] = elements.template value<I>(i);
      gather_inputs<I + 1>(row_inputs, column_inputs, elements, i, inputs);
    }
  }

  /// What the function makes beside D: outputs I and following; `values`: D's first.
  template <uint32_t I>
  CLEAVE_DEVICE void store_outputs(uint32_t block, const float (&values)[1 + kFunction.outputs][4]) {
    if constexpr (I < kFunction.outputs) {
      constexpr FunctionOperandConfig kOutput = kFunction.output(I);
      const float (&made)[4] = values[1 + I];
      if constexpr (kOutput.reduction != Reduction::none) {
        reduce<I>(block, made);
      } else {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < Fragment<C>::kElements; i += kOutput.pairs ? 2 : 1) {
          const OutputCoord at = place(block, i);
          if (!at.exists) continue;
          char* const to = matrix_element(kOutput, p_.epilogue.outputs[I], {at.row, at.col, tile_.batch});
          if constexpr (kOutput.pairs) {
            store_pair(kOutput.dtype, to, made[i], made[i + 1]);
          } else {
            store_element(kOutput.dtype, to, 0, made[i]);
          }
        }
      }
      store_outputs<I + 1>(block, values);
    }
  }

  /// Output I of a block, of which partial results are kept. By whole warps.
  template <uint32_t I>
  CLEAVE_DEVICE void reduce(uint32_t block, const float (&made)[4]) {
    constexpr FunctionOperandConfig kOutput = kFunction.output(I);
    const uint32_t row = tile_.row(block), col = tile_.col(block);
    float parts[4] = {};
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Fragment<C>::kElements; ++i) {
      const bool exists = row + i / 2 * 8 < tile_.m_end(p_.size) && col + i % 2 < tile_.n_end(p_.size);
      parts[i] = exists ? reduced_part(kOutput.reduction, made[i]) : 0.0f;
    }
    units_[I].template add<kOutput.reduction, kOutput.shape>(parts);
    if (!ends_unit<C, kOutput.shape>(block)) return;
    units_[I].template join_lanes<kOutput.reduction, kOutput.shape>();
    uint32_t rows_of_d[2];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Fragment<C>::kLines; ++i) rows_of_d[i] = place(block, 2 * i).row;
    store_unit<C, I>(p_, tile_, block, rows_of_d, units_[I]);
    units_[I] = {};
  }

  /// The same, of the lines that meet there: row `row` and column `col` of the product.
  CLEAVE_DEVICE OutputCoord place(const OutputOffset& of_row, const OutputOffset& of_column, uint32_t row,
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
  detail::ArrayOf<UnitParts, kFunction.reduces() ? kFunction.outputs : 0> units_;  // of outputs that are reduced
};

}  // namespace cleave
