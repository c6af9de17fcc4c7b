// Loads the scales of one k block into its stage, asynchronously, four bytes at a time: any strides.
#pragma once

#include "cleave/kernel/gemm_params.h"
#include "cleave/mainloop/scale_lines.h"
#include "cleave/ptx/mma_sync.h"

namespace cleave {

/// By `threads` threads. (m0, n0): the tile's first row and column. Lines outside the operands get
/// the last one's scale; nothing of theirs is stored.
template <GemmConfig C>
CLEAVE_DEVICE void load_scales(const GemmParams& p, uint32_t stage, uint32_t m0, uint32_t n0,
                               uint32_t k_block, uint32_t batch, uint32_t thread,
                               uint32_t threads) {
  const auto load = [&](const BlockScales& scales, uint32_t to, uint32_t rows, uint32_t first,
                        uint32_t count, uint32_t end) {
    const float* const base =
        scales.data + int64_t(batch) * scales.stride_batch + int64_t(k_block) * scales.stride_k;
    const uint32_t last = (end - 1) / rows;
    for (uint32_t i = thread; i < count; i += threads) {
      const uint32_t line = min_of(first / rows + i, last);
      ptx::copy_async<4>(stage + (to + i) * 4, base + int64_t(line) * scales.stride_row, 4);
    }
  };
  load(p.scales_a, 0, C.scale_rows_a, m0, scale_lines_a(C), p.epilogue.m);
  load(p.scales_b, scale_lines_b_at(C), C.scale_rows_b, n0, scale_lines_b(C), p.epilogue.n);
}

}  // namespace cleave
