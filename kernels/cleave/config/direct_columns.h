// Convolutions of narrow groups, line by line down the images (direct/columns.h): how many cells a thread has begun at
// the same time, and what it holds in registers.
//
// A cell is what direct_shift.h says, down a column of strips. It is made in steps, each of as many gathered lines as
// there are from a cell to its neighbour; in a step a thread adds to every cell that it has begun, ends one and
// begins one.
#pragma once

#include "cleave/config/direct_pixels.h"
#include "cleave/config/direct_shift.h"

namespace cleave {

/// In which a cell is made, so many of which a thread has begun.
CLEAVE_HD constexpr uint32_t column_steps(const GemmConfig& c) {
  return ceil_div(shift_span(c.conv.kind, c.direct.height).size(), shift_step(c.conv.kind, c.direct.height));
}

/// Whether gathered lines are on their way to shared memory (direct/column_ring.h): all of `tile.stages` but one, which
/// is multiplied. Otherwise one is on its way to registers.
CLEAVE_HD constexpr bool has_column_ring(const GemmConfig& c) {
  return c.tile.stages > 1;
}

/// Registers of a thread: sums; a line's gathered pixels on their way; filters. wgrad: outputs' gradients where others
/// have sums, and sums where they have filters.
CLEAVE_HD constexpr uint32_t column_sums(const GemmConfig& c) {
  return column_steps(c) * shift_cell(c.conv.kind, c.direct.height) * c.tile.m * c.direct.vector;
}
CLEAVE_HD constexpr uint32_t column_words(const GemmConfig& c) {
  // One pixel of a ring at a time, and as the compiler said where strides or dilation make a step longer, another.
  if (has_column_ring(c)) return c.direct.height.stride * c.direct.height.dilation > 1 ? c.direct.vector : 0;
  const uint32_t words = max_of(c.direct.vector * size_of(c.operands.a) / 4, 1u);
  return gathered_span(c.conv.kind, c.direct.width, c.tile.m).size() * words;
}
CLEAVE_HD constexpr uint32_t column_filters(const GemmConfig& c) {
  return c.direct.height.taps * c.direct.width.taps * c.direct.group * c.direct.vector;
}

/// Whether filters stay in registers. Otherwise they are read from shared memory line by line, and all of a line's
/// pixels wait for them, as float32.
inline constexpr uint32_t kColumnRegisters = 100;  // of 128, beside addresses
CLEAVE_HD constexpr bool holds_filters(const GemmConfig& c) {
  return column_sums(c) + column_words(c) + column_filters(c) + c.direct.vector <= kColumnRegisters;
}
CLEAVE_HD constexpr uint32_t column_registers(const GemmConfig& c) {
  const uint32_t line = gathered_span(c.conv.kind, c.direct.width, c.tile.m).size() * c.direct.vector;
  if (c.conv.kind == Conv::wgrad) {
    const uint32_t gradients = c.tile.m * max_of(c.direct.vector * size_of(c.operands.a) / 4, 1u);
    return column_sums(c) + column_words(c) + gradients + column_filters(c) + line;
  }
  const uint32_t multiplied = holds_filters(c) ? column_filters(c) : line;
  // C, a function's values, beside a ring those of its other outputs, and, beside filters from shared memory, steps of
  // several lines: as the compiler said.
  const bool several = !holds_filters(c) && shift_step(c.conv.kind, c.direct.height) > 1;
  const FunctionConfig& f = c.epilogue.function;
  const uint32_t function = !f.given ? 0 : has_column_ring(c) ? 8 * (1 + f.outputs) : 8;
  const uint32_t beside = (c.epilogue.has_c ? 8 : 0) + function + (several ? 8 : 0);
  return column_sums(c) + column_words(c) + multiplied + c.direct.vector + beside;
}

/// Filters, and lines behind them: what all threads' strips meet, each thread's beside its neighbours'.
CLEAVE_HD constexpr uint32_t column_slot_bytes(const GemmConfig& c) {
  const uint32_t pixels = gathered_span(c.conv.kind, c.direct.width, c.tile.m).size();
  return pixels * kDirectThreads * c.direct.vector * size_of(c.operands.a);
}
CLEAVE_HD constexpr uint32_t column_filter_bytes(const GemmConfig& c) {
  return round_up(pixels_filter_bytes(c), 16u);
}
CLEAVE_HD constexpr uint32_t columns_bytes(const GemmConfig& c) {
  return column_filter_bytes(c) + (has_column_ring(c) ? c.tile.stages * column_slot_bytes(c) : 0);
}

/// wgrad: whether one of `count` outputs meets the pixel at distance `at` from the first that they meet.
CLEAVE_HD constexpr bool is_met(const DirectAxis& axis, int32_t at, uint32_t count) {
  for (uint32_t tap = 0; tap < axis.taps; ++tap) {
    const int32_t way = at - int32_t(tap * axis.dilation), stride = int32_t(axis.stride);
    if (way >= 0 && way % stride == 0 && uint32_t(way / stride) < count) return true;
  }
  return false;
}

/// Strips beside each other, of lines and of images, that a CTA's threads walk down.
CLEAVE_HD constexpr uint32_t column_places(const GemmConfig& c) {
  return kDirectThreads / (c.tile.n / c.direct.vector);
}

}  // namespace cleave
