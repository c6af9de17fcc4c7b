// Lines of images on their way to shared memory as they lie, for those who read windows from there
// (config/direct_windows.h).
#pragma once

#include "cleave/config/direct_windows.h"
#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_params.h"
#include "cleave/ptx/copy_async.h"

namespace cleave {

/// What the windows of a CTA's tile see of `images`; zeros outside of them. By all threads, of which each has yet to
/// wait for its copies.
template <GemmConfig C>
CLEAVE_DEVICE void load_window_lines(const DirectShape& shape, const OperandParams& images, const DirectTile& tile,
                                     uint32_t stage) {
  constexpr DirectConfig D = C.direct;
  constexpr uint32_t kWords = window_words(C), kPiece = window_piece(D) / 4, kLines = window_lines(C);
  const int32_t y0 = D.height.map(shape.pad[0]).first(tile.row * window_rows(C));
  const int32_t word0 = window_first_word(D, tile.column * D.strips * kWindowStrip, shape.pad[1]);
  const uint32_t words = shape.gathered[1] * D.vector / 2;
  uint32_t image, plane;
  shape.depths.divmod(tile.image, image, plane);
  const int32_t z0 = D.depth.map(shape.pad_depth).first(plane);
  for (uint32_t line = threadIdx.x / 32; line < D.depth.taps * kLines; line += kDirectThreads / 32) {
    const uint32_t tap = D.depth.taps == 1 ? 0 : line / kLines;
    const int32_t z = z0 + int32_t(tap * D.depth.dilation), y = y0 + int32_t(line - tap * kLines);
    const bool exists = is_inside(z, shape.met_depth) && is_inside(y, shape.gathered[0]);
    const int64_t lines = (int64_t(image) * shape.met_depth + z) * shape.gathered[0] + y;
    const uint32_t* const from = static_cast<const uint32_t*>(images.data) + (exists ? lines : 0) * words;
#pragma unroll 4
    for (uint32_t i = threadIdx.x % 32 * kPiece; i < kWords; i += 32 * kPiece) {
      const uint32_t word = uint32_t(word0 + int32_t(i));
      const bool inside = exists && word < words;
      ptx::copy_async<kPiece * 4>(stage + (line * kWords + i) * 4, from + (inside ? word : 0), inside ? kPiece * 4 : 0);
    }
  }
}

}  // namespace cleave
