// Gathered lines of convolutions down the images (direct/columns.h), straight from global memory to registers: as soon
// as a pixel is multiplied, the next line's is on its way to its register.
#pragma once

#include "cleave/config/direct_columns.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/ptx/load_global.h"

namespace cleave {

/// What a thread's strip meets of them. direct/column_ring.h has the same functions.
template <GemmConfig C>
class ColumnLines {
  static constexpr Conv kKind = C.conv.kind;
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kBytes = kVector * size_of(kType);
  static constexpr DirectAxis kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr GatheredSpan kSpan = gathered_span(kKind, kAcross, C.tile.m), kReach = shift_span(kKind, kDown);
  static constexpr uint32_t kPixels = kSpan.size(), kLines = shift_step(kKind, kDown);

 public:
  CLEAVE_DEVICE ColumnLines(const Params<C>& p, uint32_t) : p_(p) {}

  /// Those of the thread's `place` and channels, of the CTA's cells; before any of them is asked for.
  CLEAVE_DEVICE void begin(uint32_t, uint32_t, uint32_t channel) { channel_ = channel; }

  /// Lines of a column of strips, from those of `cell` on.
  CLEAVE_DEVICE void begin_column(uint32_t image, uint32_t along, uint32_t cell) {
    const int32_t x0 = first_gathered(kKind, kAcross, along * C.tile.m, p_.shape.pad[1]) + kSpan.first;
    columns_ = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) columns_ |= uint32_t(is_inside(x0 + int32_t(i), p_.shape.gathered[1])) << i;
    y_ = first_gathered(kKind, kDown, cell * shift_cell(kKind, kDown), p_.shape.pad[0]) + kReach.first;
    apart_ = uint32_t(p_.a.stride * size_of(kType));
    line_bytes_ = int64_t(p_.shape.gathered[1]) * apart_;
    from_ = static_cast<const char*>(p_.a.data) + channel_ * size_of(kType) +
            pixel_number(int64_t(image), y_, x0, p_.shape.gathered) * int64_t(apart_);
    clear();
    there_ = columns_of(y_);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) load(i);
  }

  /// How many of `all` cells are done when the image ends, if `done` are now. The others meet nothing any more.
  CLEAVE_DEVICE int32_t last_of_image(int32_t done, int32_t all) const {
    const int32_t lines = max_of(int32_t(p_.shape.gathered[0]) - y_, 0);
    return min_of(done + int32_t(ceil_div(uint32_t(lines), kLines)), all);
  }

  /// Line `q` of a step, pixel by pixel in turn.
  CLEAVE_DEVICE void begin_line(uint32_t q) {
    if (q > 0 && y_ >= int32_t(p_.shape.gathered[0])) clear();
    from_ += line_bytes_;
    ++y_;
    there_ = columns_of(y_);
  }
  CLEAVE_DEVICE void take(uint32_t i, float (&pixel)[kVector]) {
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVector; ++v) pixel[v] = element_of<kType>(raw_[i], v);
    load(i);
  }

  /// What comes are zeros.
  CLEAVE_DEVICE void clear() {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) raw_[i] = {};
  }

 private:
  /// Which pixels of line `y` there are.
  CLEAVE_DEVICE uint32_t columns_of(int32_t y) const { return is_inside(y, p_.shape.gathered[0]) ? columns_ : 0; }

  /// A pixel that is not there has what its register had.
  CLEAVE_DEVICE void load(uint32_t i) {
    ptx::load_global_over<kBytes>(raw_[i].words, from_ + uint64_t(i) * apart_, there_ & 1u << i);
  }

  const Params<C>& p_;
  uint32_t channel_ = 0;
  uint32_t columns_ = 0, there_ = 0;  // which pixels of a line lie inside of it; and of the next one
  uint32_t apart_ = 0;                // bytes from pixel to pixel, and
  int64_t line_bytes_ = 0;            // from line to line
  int32_t y_ = 0;                     // the line that is multiplied next, and where the one after it begins
  const char* from_ = nullptr;
  RawVector<kBytes> raw_[kPixels];
};

}  // namespace cleave
