// Gathered pixels on their way to shared memory, as those want them whom taps shift (config/direct_shift.h).
#pragma once

#include "cleave/config/direct_shift.h"
#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_params.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/shared.h"

namespace cleave {

/// Along an axis, the first gathered pixel of a tile whose first pixel made is `made`.
CLEAVE_HD constexpr int32_t shift_first(Conv kind, const DirectAxis& axis, uint32_t made, int32_t pad) {
  return first_gathered(kind, axis, made, pad) + shift_span(kind, axis).first;
}

/// A line of `columns` pixels, whose first is at `from`, on its way to shared memory: 16 bytes of `Pieces` a lane.
/// Those from `first` on exist, `count` of them, of as many channels; the others are zeros.
template <uint32_t Pieces, uint32_t PixelBytes>
CLEAVE_DEVICE void load_shift_line(uint32_t to, const uint16_t* from, int64_t stride, uint32_t columns, int32_t first,
                                   uint32_t count, uint32_t channels) {
  constexpr uint32_t kAtOnce = max_of(32 / Pieces, 1u);
  const uint32_t lane = threadIdx.x % 32;
  CLEAVE_UNROLL
  for (uint32_t begin = 0; begin < Pieces; begin += 32) {
    const uint32_t piece = begin + (Pieces < 32 ? lane % Pieces : lane);
    uint32_t column = Pieces < 32 ? lane / Pieces : 0;
    if (column >= kAtOnce || piece >= Pieces) continue;
    if (piece * 8 >= channels) count = 0;
    const uint16_t* at = from + column * stride + piece * 8;
    uint32_t own = to + column * PixelBytes + piece * 16;
    CLEAVE_NO_UNROLL
    for (; column < columns; column += kAtOnce) {
      const bool exists = column - uint32_t(first) < count;
      ptx::copy_async<16>(own, at, exists ? 16 : 0);  // which reads nothing where there is none
      at += kAtOnce * stride;
      own += kAtOnce * PixelBytes;
    }
  }
}

/// Those that a tile's cells meet, of its groups' channels; zeros outside of the images. By all threads, of which each
/// has yet to wait for its copies.
template <GemmConfig C>
CLEAVE_DEVICE void load_shift_pixels(const DirectShape& shape, const OperandParams& images, const DirectTile& tile,
                                     uint32_t stage) {
  constexpr Conv kKind = C.conv.kind;
  constexpr DirectAxis kDown = C.direct.height, kAcross = C.direct.width;
  constexpr uint32_t kPixelBytes = shift_pixel_bytes(C);
  const uint32_t lines = shift_reach(kKind, kDown, shape.cells[0]);
  const uint32_t columns = shift_reach(kKind, kAcross, shape.cells[1]);
  const uint32_t channel0 = tile.channel * shift_channels(C);
  const int32_t y0 = shift_first(kKind, kDown, tile.row * shape.cells[0] * shift_cell(kKind, kDown), shape.pad[0]);
  const int32_t x0 =
      shift_first(kKind, kAcross, tile.column * shape.cells[1] * shift_cell(kKind, kAcross), shape.pad[1]);
  const int64_t line_elements = shape.gathered[1] * images.stride;
  const uint32_t image0 = tile.image * shape.together;
  const uint16_t* from = static_cast<const uint16_t*>(images.data) + channel0 +
                         pixel_number(int64_t(image0), y0, x0, shape.gathered) * images.stride;
  for (uint32_t image = 0; image < shape.together; ++image) {
    for (uint32_t line = threadIdx.x / 32; line < lines; line += kDirectThreads / 32) {
      const bool exists = image0 + image < shape.images && is_inside(y0 + int32_t(line), shape.gathered[0]);
      load_shift_line<shift_channels(C) / 8, kPixelBytes>(
          stage + line * columns * kPixelBytes, from + line * line_elements, images.stride, columns, -x0,
          exists ? shape.gathered[1] : 0, shift_gathered(C, shape) - channel0);
    }
    from += shape.gathered[0] * line_elements;
    stage += lines * columns * kPixelBytes;
  }
}

/// What a CTA's shared memory begins with: zeros, and each row's cell. By all threads.
template <GemmConfig C>
CLEAVE_DEVICE void note_shift_cells(const DirectShape& shape, uint32_t smem) {
  if (threadIdx.x < kShiftZeros / 4) ptx::store_shared_32(smem + threadIdx.x * 4, 0);
  for (uint32_t row = threadIdx.x; row < C.tile.m; row += kDirectThreads) {
    const ShiftCell cell = shift_cell_of(shape, row);
    ptx::store_shared_32(smem + kShiftZeros + row * 4, cell.image << 20 | cell.line << 10 | cell.column);
  }
}

/// A row's cell, from there.
CLEAVE_DEVICE ShiftCell noted_shift_cell(uint32_t smem, uint32_t row) {
  const uint32_t cell = ptx::load_shared_32(smem + kShiftZeros + row * 4);
  return {cell >> 20, cell >> 10 & 1023, cell & 1023};
}

}  // namespace cleave
