// Copies the rows of A (columns of B) that a list names (config/list_params.h), by threads: TMA would take an
// instruction for each. Eight neighbouring threads ask for 128 bytes of a row, a line of L2, and a warp has the same
// rows for all k blocks of a work tile; its lanes keep their numbers, some each. Scales of blocks, which the same
// threads copy, follow.
#pragma once

#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/mainloop/scale_loader.h"
#include "cleave/memory/swizzle.h"

namespace cleave {

/// One of `Threads` threads that copy them together.
template <GemmConfig C, uint32_t Threads>
class ListedRowsLoader {
  static constexpr bool kIsA = lists_a(C), kScales = C.epilogue.scaling == Scaling::block;
  static constexpr uint32_t kElement = size_of(C.operands.a), kAtom = atom_elements(C.operands.a);
  static constexpr uint32_t kTileRows = kIsA ? C.tile.m : C.tile.n;
  static constexpr uint32_t kVector = 16, kPerLine = 128 / kVector;
  static constexpr uint32_t kTogether = Threads / kPerLine;  // rows that are copied at once,
  static constexpr uint32_t kOfWarp = 32 / kPerLine;         // and by one warp
  static constexpr uint32_t kOwn = ceil_div(kTileRows, kTogether);
  static constexpr uint32_t kKept = ceil_div(kOwn * kOfWarp, 32u);  // rows of a lane
  static_assert(Threads % 32 == 0 && 2 * kTogether % 8 == 0 && kTileRows % kOfWarp == 0);
  static_assert((kIsA ? C.cluster.multicast_n : C.cluster.multicast_m) == 1 || pairs_scales(C),
                "what threads copy is nobody else's");
  static_assert((kIsA ? C.operands.a_major : C.operands.b_major) == Major::k && !(gated(C) && !kIsA));

 public:
  CLEAVE_DEVICE ListedRowsLoader(const GemmParams& p, uint32_t thread) : p_(p), thread_(thread), scales_(p, thread) {}

  CLEAVE_DEVICE void start(const WorkTile& work, const Tile<C>& tile) {
    const uint32_t first = kIsA ? tile.m0 : tile.n0, end = kIsA ? tile.m_end(p_.size) : tile.n_end(p_.size);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kKept; ++i) {
      const uint32_t of_warp = i * 32 + thread_ % 32;
      const uint32_t line = of_warp / kOfWarp * kTogether + thread_ / 32 * kOfWarp + of_warp % kOfWarp;
      kept_[i] = line < kTileRows && first + line < end ? listed_row(p_.list, first + line) : kNoRow;
    }
    k_ = work.k_first * C.tile.k + byte() / kElement;
    step_ = work.k_step * C.tile.k;
    if constexpr (kScales) scales_.start(work, tile);
  }

  /// The work tile's next k block, into stage `stage` of shared memory at `smem`.
  CLEAVE_DEVICE void load(uint32_t smem, uint32_t stage) {
    constexpr SmemPlan kPlan = smem_plan(C);
    const uint32_t to = smem + (kIsA ? kPlan.a : kPlan.b) + stage * (kIsA ? kPlan.a_stage : kPlan.b_stage);
    const OperandParams& operand = kIsA ? p_.a : p_.b;
    const uint32_t vectors_of_row = uint32_t(operand.stride * kElement / kVector);  // rows are aligned to them
    const uint32_t place[2] = {to + swizzle(line(0), byte()), to + swizzle(line(1), byte())};
    CLEAVE_UNROLL
    for (uint32_t part = 0; part < C.tile.k / kAtom; ++part) {
      const uint32_t k = k_ + part * kAtom;
      const uint32_t bytes = k < p_.size.k ? min_of((p_.size.k - k) * kElement, kVector) : 0;
      const char* const from = static_cast<const char*>(operand.data) + (bytes == 0 ? 0 : uint64_t(k) * kElement);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kKept; ++i) {
        constexpr uint32_t kOfKept = 32 / kOfWarp;
#pragma unroll 4  // the producer has no registers for more
        for (uint32_t own = i * kOfKept; own < min_of((i + 1) * kOfKept, kOwn); ++own) {
          if (kTileRows % kTogether != 0 && line(own) >= kTileRows) break;
          const uint32_t row = __shfl_sync(0xffffffffu, kept_[i], own % kOfKept * kOfWarp + thread_ % 32 / kPerLine);
          const bool exists = row != kNoRow;
          ptx::copy_async<kVector>(place[own % 2] + part * kTileRows * 128 + own / 2 * (2 * kTogether * 128),
                                   from + (exists ? uint64_t(row) * vectors_of_row * kVector : 0), exists ? bytes : 0);
        }
      }
    }
    k_ += step_;
    if constexpr (kScales) scales_.load(smem + kPlan.scales + stage * kPlan.scale_stage);
  }

 private:
  /// The line of the tile in which vector `own` lies. With the next but one it shares its place in the swizzle.
  CLEAVE_DEVICE uint32_t line(uint32_t own) const { return own * kTogether + thread_ / kPerLine; }
  /// Within a line, where the thread's vectors begin.
  CLEAVE_DEVICE uint32_t byte() const { return thread_ % kPerLine * kVector; }

  struct NoScales {
    CLEAVE_DEVICE NoScales(const GemmParams&, uint32_t) {}
  };

  const GemmParams& p_;
  uint32_t thread_;
  uint32_t k_ = 0;     // of the next block's first vector
  uint32_t step_ = 0;  // from one block's to the next one's
  uint32_t kept_[kKept];
  Either<kScales, ScaleLoader<C, Threads>, NoScales> scales_;
};

}  // namespace cleave
