// Weight gradients of narrow groups, depthwise ones above all, by multiply-adds (sm_80 and later), line by line down
// the images: each pixel, and each output's gradient, is read, and made a float32, once for all taps.
//
// Roles      as in columns.h, but that a thread holds the gradients of all outputs that the line's pixels meet, and the
//            sums of all taps
// Operands   straight from global memory; as soon as a pixel is multiplied, the next line's is on its way to its
//            register. What meets no output of the thread's is zero, pixels as well as gradients
// Infinity   A pixel meets zeros where the thread's outputs end: an infinite one that an output meets makes NaNs of the
//            other taps' sums there
// Split,     as in wgrad_sums.h: a slice is a CTA's share of all columns' lines
// sums
#pragma once

#include "cleave/config/direct_columns.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/column_share.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/direct/wgrad_sums.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/ptx/load_global.h"

namespace cleave {

template <GemmConfig C>
class DirectColumnsWgrad {
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kStrip = C.tile.m, kGroup = C.direct.group;
  static constexpr uint32_t kBytes = kVector * size_of(kType);
  static constexpr uint32_t kLanes = C.tile.n / kVector, kPlaces = column_places(C);
  static constexpr DirectAxis kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr GatheredSpan kSpan = gathered_span(Conv::wgrad, kAcross, kStrip);
  static constexpr GatheredSpan kReach = shift_span(Conv::wgrad, kDown);
  static constexpr uint32_t kPixels = kSpan.size(), kLines = kDown.stride, kSteps = column_steps(C);
  static constexpr uint32_t kTaps = kDown.taps * kAcross.taps;
  static constexpr bool kHasGaps =
      kDown.dilation > 1 || kAcross.dilation > 1;  // that only outputs beyond the ends meet
  static_assert(C.tile.n % kVector == 0 && kVector % kGroup == 0 && kPlaces > 0 && kPixels <= 32);

 public:
  CLEAVE_DEVICE DirectColumnsWgrad(const Params<C>& p, float* shared) : p_(p), shared_(shared) {}

  CLEAVE_DEVICE void run() {
    const BlockSlice own = own_slice<C>(p_.shape);
    const uint32_t place = threadIdx.x / kLanes;
    channel_ = own.block * C.tile.n + threadIdx.x % kLanes * kVector;
    TapSums sums = {};
    if (place < kPlaces && channel_ < p_.shape.channels) {
      walk_columns(p_.shape, own.slice, [&](uint32_t column, uint32_t cell, uint32_t cells) {
        go_down(column * kPlaces + place, cell, cells, sums);
      });
    }
    WgradSums<C>(p_, shared_).finish(sums, own.block);
  }

 private:
  using Raw = RawVector<kBytes>;
  using TapSums = float[kTaps][kGroup][kVector];
  using Gradients = float[kSteps][kStrip][kVector];  // of a strip's outputs; a line's successor takes its place

  /// Adds what so many lines of outputs of a column of strips, from `cell` on, have of the sums.
  CLEAVE_DEVICE void go_down(uint32_t strip, uint32_t cell, uint32_t cells, TapSums& sums) const {
    uint32_t image = 0, along = 0;
    p_.shape.columns.divmod(strip, image, along);
    if (image >= p_.shape.images) return;
    const uint32_t column = along * kStrip, made = min_of(kStrip, p_.shape.made[1] - column);
    const int32_t x0 = first_gathered(Conv::wgrad, kAcross, column, p_.shape.pad[1]) + kSpan.first;
    // The last that an output meets; there may be infinities behind it.
    const int32_t last_x = x0 + int32_t((made - 1) * kAcross.stride + (kAcross.taps - 1) * kAcross.dilation);
    const uint32_t outputs = (1u << made) - 1;
    uint32_t inside = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) {
      const int32_t x = x0 + int32_t(i);
      const bool meets = !kHasGaps || is_met(kAcross, int32_t(i) + kSpan.first, made);
      inside |= uint32_t(is_inside(x, p_.shape.gathered[1]) && x <= last_x && meets) << i;
    }
    int32_t y = first_gathered(Conv::wgrad, kDown, cell, p_.shape.pad[0]) + kReach.first;
    const int32_t met = y + int32_t((cells - 1) * kLines + (kDown.taps - 1) * kDown.dilation);
    const int32_t end_y = min_of(met + 1, int32_t(p_.shape.gathered[0]));
    const auto apart_a = uint32_t(p_.a.stride * size_of(kType)), apart_b = uint32_t(p_.b.stride * size_of(kType));
    const int64_t line_a = int64_t(p_.shape.made[1]) * apart_a, line_b = int64_t(p_.shape.gathered[1]) * apart_b;
    const char* from_a = static_cast<const char*>(p_.a.data) + channel_ * size_of(kType) +
                         pixel_number(int64_t(image), cell, column, p_.shape.made) * int64_t(apart_a);
    const char* from_b = static_cast<const char*>(p_.b.data) + channel_ * size_of(kType) +
                         pixel_number(int64_t(image), y, x0, p_.shape.gathered) * int64_t(apart_b);
    Raw gradient[kStrip], pixel[kPixels];
    load(from_a, apart_a, outputs, gradient);
    load(from_b, apart_b, y >= 0 && y < end_y ? inside : 0, pixel);
    Gradients gradients = {};
    Walk walk{.y = y,
              .first_y = y,
              .from_a = from_a,
              .from_b = from_b,
              .line_a = line_a,
              .line_b = line_b,
              .apart_a = apart_a,
              .apart_b = apart_b,
              .outputs = outputs,
              .inside = inside,
              .end_y = end_y,
              .cells = cells};
    while (add_steps<0>(walk, gradient, pixel, gradients, sums)) {
    }
  }

  /// Where the thread is.
  struct Walk {
    int32_t y, first_y;           // the line of pixels on its way, and the first
    const char *from_a, *from_b;  // where the lines on their way begin
    int64_t line_a, line_b;       // bytes
    uint32_t apart_a, apart_b;
    uint32_t outputs, inside;  // which there are of a line
    int32_t end_y;             // behind the last line that an output meets
    uint32_t cells, step = 0;
  };

  /// Steps from `U` on, as many as there are places for gradients; false after the last. By the compiler, since a
  /// register has no number that is found when it runs.
  template <uint32_t U>
  CLEAVE_DEVICE static bool add_steps(Walk& walk, Raw (&gradient)[kStrip], Raw (&pixel)[kPixels], Gradients& gradients,
                                      TapSums& sums) {
    if constexpr (U < kSteps) {
      walk.from_a += walk.line_a;
      convert(gradient, gradients[U]);
      clear(gradient);
      load_over(walk.from_a, walk.apart_a, walk.step + 1 < walk.cells ? walk.outputs : 0, gradient);
      CLEAVE_UNROLL
      for (uint32_t q = 0; q < kLines; ++q) {
        walk.from_b += walk.line_b;
        ++walk.y;
        const bool meets = !kHasGaps || is_met(kDown, walk.y - walk.first_y + kReach.first, walk.cells);
        const bool exists = walk.y >= 0 && walk.y < walk.end_y && meets;
        add_line<U>(q, walk.from_b, walk.apart_b, exists ? walk.inside : 0, pixel, gradients, sums);
      }
      if (++walk.step == walk.cells + kSteps - 1) return false;
      return add_steps<U + 1>(walk, gradient, pixel, gradients, sums);
    }
    return true;
  }

  /// Adds line `q` of step `U`, and has `from`'s pixels loaded in its place, those in `there`.
  template <uint32_t U>
  CLEAVE_DEVICE static void add_line(uint32_t q, const char* from, uint32_t apart, uint32_t there, Raw (&raw)[kPixels],
                                     const Gradients& gradients, TapSums& sums) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) {
      float pixel[kVector];
      CLEAVE_UNROLL
      for (uint32_t v = 0; v < kVector; ++v) pixel[v] = element_of<kType>(raw[i], v);
      raw[i] = {};
      ptx::load_global_over<kBytes>(raw[i].words, from + uint64_t(i) * apart, there & 1u << i);
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kStrip; ++j) {
        const int32_t s = tap_between(Conv::wgrad, kAcross, j, int32_t(i) + kSpan.first);
        if (s == kApart) continue;
        CLEAVE_UNROLL
        for (uint32_t k = 0; k < kSteps; ++k) {  // lines of outputs before the last one
          const int32_t r = tap_between(Conv::wgrad, kDown, 0, int32_t(k * kLines + q) + kReach.first);
          if (r == kApart) continue;
          multiply(gradients[(U + kSteps - k) % kSteps][j], pixel, sums[uint32_t(r) * kAcross.taps + uint32_t(s)]);
        }
      }
    }
  }

  CLEAVE_DEVICE static void multiply(const float (&gradient)[kVector], const float (&pixel)[kVector],
                                     float (&sums)[kGroup][kVector]) {
    CLEAVE_UNROLL
    for (uint32_t other = 0; other < kGroup; ++other) {
      CLEAVE_UNROLL
      for (uint32_t v = 0; v < kVector; ++v) sums[other][v] += gradient[v] * pixel[v / kGroup * kGroup + other];
    }
  }

  template <uint32_t Count>
  CLEAVE_DEVICE static void clear(Raw (&raw)[Count]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Count; ++i) raw[i] = {};
  }

  template <uint32_t Count>
  CLEAVE_DEVICE static void load_over(const char* from, uint32_t apart, uint32_t there, Raw (&raw)[Count]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Count; ++i)
      ptx::load_global_over<kBytes>(raw[i].words, from + uint64_t(i) * apart, there & 1u << i);
  }
  template <uint32_t Count>
  CLEAVE_DEVICE static void load(const char* from, uint32_t apart, uint32_t there, Raw (&raw)[Count]) {
    clear(raw);
    load_over(from, apart, there, raw);
  }

  template <uint32_t Count>
  CLEAVE_DEVICE static void convert(const Raw (&raw)[Count], float (&to)[Count][kVector]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Count; ++i) {
      CLEAVE_UNROLL
      for (uint32_t v = 0; v < kVector; ++v) to[i][v] = element_of<kType>(raw[i], v);
    }
  }

  const Params<C>& p_;
  float* shared_;
  uint32_t channel_ = 0;
};

}  // namespace cleave
