// Convolutions of narrow groups by multiply-adds (direct/pixels.h): what of the gathered images a CTA has in shared
// memory (`direct.pixels`).
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_config.h"

namespace cleave {

/// From a strip to its neighbour's first gathered pixel. A data gradient's strips are multiples of the stride.
CLEAVE_HD constexpr uint32_t strip_step(const GemmConfig& c) {
  return c.conv.kind == Conv::dgrad ? c.tile.m / c.direct.width.stride : c.tile.m * c.direct.width.stride;
}

/// Gathered lines that a CTA's lines meet, at most, and pixels along them.
CLEAVE_HD constexpr uint32_t staged_lines(const GemmConfig& c) {
  const DirectAxis& down = c.direct.height;
  const uint32_t reach = (down.taps - 1) * down.dilation, more = direct_lines(c) - 1;
  return c.conv.kind == Conv::dgrad ? (more + reach) / down.stride + 2 : more * down.stride + reach + 1;
}
CLEAVE_HD constexpr uint32_t staged_columns(const GemmConfig& c) {
  return (c.direct.strips - 1) * strip_step(c) + gathered_span(c.conv.kind, c.direct.width, c.tile.m).size();
}

/// The first of those lines, if `line` is the first that is made.
CLEAVE_HD constexpr int32_t staged_first(Conv kind, const DirectAxis& down, uint32_t line, int32_t pad) {
  if (kind != Conv::dgrad) return down.map(pad).first(line);
  const int32_t from = int32_t(line) + pad - int32_t((down.taps - 1) * down.dilation), stride = int32_t(down.stride);
  return from >= 0 ? from / stride : -((-from + stride - 1) / stride);
}

/// Filters, as float32; pixels behind them.
CLEAVE_HD constexpr uint32_t pixels_filter_bytes(const GemmConfig& c) {
  const uint32_t taps = c.direct.height.taps * c.direct.width.taps;
  return taps * c.direct.group * direct_filter_row(c) * uint32_t(sizeof(float));
}
CLEAVE_HD constexpr uint32_t pixels_bytes(const GemmConfig& c) {
  const uint32_t staged = c.direct.pixels * c.tile.n * size_of(c.operands.a);
  return round_up(pixels_filter_bytes(c), 16u) + staged;
}

}  // namespace cleave
