// Weight gradients of narrow groups, depthwise ones above all, by multiply-adds (sm_80 and later).
//
// Roles      a thread has `direct.vector` channels and one line of the filter's taps, and walks over strips of `tile.m`
//            outputs; neighbouring threads have neighbouring channels, then the filter's lines, then other strips
// Operands   outputs' gradients and pixels straight from global memory, each vector of a strip once into registers,
//            where all taps of a line share it; the filter's other lines find them in L1
// Split,     as in wgrad_sums.h; a thread's sums are in the order of its strips
// sums
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_params.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/direct/wgrad_sums.h"
#include "cleave/memory/channel_vector.h"

namespace cleave {

template <GemmConfig C>
class DirectWgrad {
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kStrip = C.tile.m, kGroup = C.direct.group;
  static constexpr DirectAxis kAxis = C.direct.width, kDown = C.direct.height;
  static constexpr uint32_t kLanes = C.tile.n / kVector, kSlots = kLanes * kDown.taps;
  static constexpr uint32_t kPlaces = direct_places(C);
  static constexpr uint32_t kBytes = kVector * size_of(kType);
  static constexpr GatheredSpan kSpan = gathered_span(Conv::wgrad, kAxis, kStrip);
  static_assert(C.tile.n % kVector == 0 && kVector % kGroup == 0 && kPlaces > 0);

 public:
  CLEAVE_DEVICE DirectWgrad(const Params<C>& p, float* shared) : p_(p), shared_(shared), own_(own_slice<C>(p.shape)) {}

  CLEAVE_DEVICE void run() {
    const uint32_t slot = threadIdx.x % kSlots, place = threadIdx.x / kSlots;
    tap_line_ = slot / kLanes;
    channel_ = own_.block * C.tile.n + slot % kLanes * kVector;
    float sums[kAxis.taps][kGroup][kVector] = {};
    if (place < kPlaces && channel_ < p_.shape.channels) add_strips(place, sums);
    WgradSums<C>(p_, shared_).finish(sums, own_.block);
  }

 private:
  using Raw = RawVector<kBytes>;

  /// The thread's share of all strips of the CTA's lines.
  CLEAVE_DEVICE void add_strips(uint32_t place, float (&sums)[kAxis.taps][kGroup][kVector]) const {
    const uint32_t first = min_of(own_.slice * p_.shape.steps, p_.shape.lines);
    const uint32_t end = min_of(first + p_.shape.steps, p_.shape.lines);
    const uint32_t strips = (end - first) * p_.shape.columns.divisor;
    CLEAVE_NO_UNROLL
    for (uint32_t i = place; i < strips; i += kPlaces) {
      uint32_t line = 0, column = 0, image = 0, row = 0;
      p_.shape.columns.divmod(i, line, column);
      p_.shape.rows.divmod(first + line, image, row);
      const int32_t y = kDown.map(p_.shape.pad[0]).at(row, tap_line_);
      if (is_inside(y, p_.shape.gathered[0])) add_strip(image, row, column * kStrip, uint32_t(y), sums);
    }
  }

  CLEAVE_DEVICE void add_strip(uint32_t image, uint32_t row, uint32_t column, uint32_t y,
                               float (&sums)[kAxis.taps][kGroup][kVector]) const {
    const int32_t x0 = first_gathered(Conv::wgrad, kAxis, column, p_.shape.pad[1]) + kSpan.first;
    const char* const gradients = at(p_.a, image, row, p_.shape.made, int32_t(column));
    const char* const pixels = at(p_.b, image, y, p_.shape.gathered, x0);
    Raw gradient[kStrip], pixel[kSpan.size()];
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kStrip; ++j)
      gradient[j] = load_vector<kBytes>(gradients + j * p_.a.stride * size_of(kType), column + j < p_.shape.made[1]);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kSpan.size(); ++i)
      pixel[i] = load_vector<kBytes>(pixels + i * p_.b.stride * size_of(kType),
                                     is_inside(x0 + int32_t(i), p_.shape.gathered[1]));
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kStrip; ++j) {
      if (column + j >= p_.shape.made[1]) break;  // pixels that no output meets may be infinite
      CLEAVE_UNROLL
      for (uint32_t s = 0; s < kAxis.taps; ++s) {
        const uint32_t from = uint32_t(gathered_at(Conv::wgrad, kAxis, j, s) - kSpan.first);
        CLEAVE_UNROLL
        for (uint32_t other = 0; other < kGroup; ++other) {
          CLEAVE_UNROLL
          for (uint32_t v = 0; v < kVector; ++v)
            sums[s][other][v] +=
                element_of<kType>(gradient[j], v) * element_of<kType>(pixel[from], v / kGroup * kGroup + other);
        }
      }
    }
  }

  /// The thread's channels of a pixel that may lie outside of the line.
  CLEAVE_DEVICE const char* at(const OperandParams& matrix, uint32_t image, uint32_t line, const uint32_t (&size)[2],
                               int32_t column) const {
    const int64_t pixel = pixel_number(int64_t(image), line, column, size);
    return static_cast<const char*>(matrix.data) + (pixel * matrix.stride + channel_) * size_of(kType);
  }

  const Params<C>& p_;
  float* shared_;
  const BlockSlice own_;
  uint32_t tap_line_ = 0, channel_ = 0;
};

}  // namespace cleave
