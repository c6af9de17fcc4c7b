// Copies an operand of few rows of M (or columns of N) that is contiguous along them, by threads. With 8 rows of 16
// bits a k's are 16 bytes, and TMA asks L2 for each k's by itself: 64 requests a k block, by every CTA, for the same 8
// lines. Neighbouring threads ask for what lies side by side at once.
//
// The tile's rows past the matrix keep what was in the stage: of D they are never stored, and no other row has a part
// of them. K's past the end are zeros.
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/gemm_params.h"
#include "cleave/mainloop/narrow_vectors.h"
#include "cleave/memory/descriptor.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/schedule/schedule.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// One of `Threads` threads that copy it together.
template <GemmConfig C, uint32_t Threads>
class NarrowLoader {
  static_assert(sharers(C) == 1, "what threads copy is nobody else's");
  static_assert(!(C.operands.copied_a && C.operands.copied_b) && size_of(C.operands.a) == 2);

  static constexpr bool kIsA = C.operands.copied_a;
  static constexpr uint32_t kElement = size_of(C.operands.a);
  static constexpr uint32_t kTileRows = kIsA ? C.tile.m : C.tile.n;
  static constexpr uint32_t kWidth = line_bytes(Major::mn, kTileRows, C.operands.a);
  static constexpr uint32_t kVector = kIsA ? C.operands.load_bytes_a : C.operands.load_bytes_b;

 public:
  CLEAVE_DEVICE NarrowLoader(const GemmParams& p, uint32_t thread) : p_(p), thread_(thread) {}

  CLEAVE_DEVICE void start(const WorkTile& work, const Tile<C>& tile) {
    const OperandParams& operand = kIsA ? p_.a : p_.b;
    const uint32_t first = kIsA ? tile.m0 : tile.n0, extent = kIsA ? p_.size.m : p_.size.n;
    bytes_ = min_of(extent - first, kTileRows) * kElement;
    vectors_.start(ceil_div(bytes_, kVector), thread_);
    const uint32_t k0 = work.k_first * C.tile.k;
    left_ = p_.size.k - k0;
    step_ = work.k_step * C.tile.k;
    from_ = static_cast<const char*>(operand.data) +
            (int64_t(work.batch) * operand.batch_stride + int64_t(k0) * operand.stride + first) * kElement;
  }

  /// The work tile's next k block, into the stage at `stage`.
  CLEAVE_DEVICE void load(uint32_t stage) {
    const int64_t stride = (kIsA ? p_.a.stride : p_.b.stride) * kElement;
    vectors_.for_each(C.tile.k, [&](uint32_t k, uint32_t vector) {
      const uint32_t byte = vector * kVector;
      ptx::copy_async<kVector>(stage + strip_offset<kWidth>(k, byte, C.tile.k), from_ + k * stride + byte,
                               k < left_ ? min_of(bytes_ - byte, kVector) : 0);
    });
    from_ += step_ * stride;
    left_ -= step_;
  }

 private:
  const GemmParams& p_;
  uint32_t thread_;
  NarrowVectors<Threads> vectors_;
  uint32_t bytes_ = 0;  // of the tile's rows, within the matrix
  uint32_t left_ = 0;   // k's, from the next block's first on
  uint32_t step_ = 0;   // k's from one block to the next
  const char* from_ = nullptr;
};

}  // namespace cleave
