// Weight gradients of narrow groups, depthwise ones above all, by multiply-adds (sm_80 and later), line by line from
// shared memory: a filter's lines share what is loaded, and neither addresses nor edges are a thread's to find.
//
// Roles      a thread has `direct.vector` channels and one line of the filter's taps, and walks down a column of strips
//            of `tile.m` outputs; neighbouring threads have neighbouring channels, then the filter's lines, then other
//            strips, also of the next image
// Operands   lines of pixels and of outputs' gradients by cp.async, some lines ahead; zeros outside of the images
// Split,     as in wgrad_sums.h: a slice is a CTA's share of all columns' lines
// sums
#pragma once

#include "cleave/config/direct_staged_wgrad.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/direct/wgrad_sums.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <GemmConfig C>
class DirectStagedWgrad {
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kStrip = C.tile.m, kGroup = C.direct.group;
  static constexpr uint32_t kBytes = kVector * size_of(kType), kPixelBytes = C.tile.n * size_of(kType);
  static constexpr DirectAxis kAxis = C.direct.width, kDown = C.direct.height;
  static constexpr uint32_t kLanes = C.tile.n / kVector, kSlots = kLanes * kDown.taps, kPlaces = direct_places(C);
  static constexpr GatheredSpan kSpan = gathered_span(Conv::wgrad, kAxis, kStrip);
  static constexpr uint32_t kPixels = kSpan.size(), kStep = staged_step(C);
  static constexpr uint32_t kAhead = C.tile.stages - 1, kReach = staged_reach(C);
  static constexpr uint32_t kPixelLines = staged_pixel_lines(C), kPixelLine = staged_pixel_bytes(C);
  static constexpr uint32_t kGradientLine = staged_gradient_bytes(C);
  static constexpr uint32_t kPieces = kPixelBytes / 16;  // of a pixel
  static constexpr uint32_t kPixelPieces = C.direct.pixels * kPieces, kGradientPieces = kPlaces * kStrip * kPieces;
  static constexpr uint32_t kOwnPixels = ceil_div(kPixelPieces, kDirectThreads);
  static constexpr uint32_t kOwnGradients = ceil_div(kGradientPieces, kDirectThreads);
  static_assert(kPixelBytes % 16 == 0 && kVector % kGroup == 0 && kPlaces > 0 && kAhead > 0 && kPixels >= kStep);

 public:
  CLEAVE_DEVICE DirectStagedWgrad(const Params<C>& p, float* shared)
      : p_(p),
        shared_(shared),
        pixels_(ptx::shared_address(shared)),
        gradients_(pixels_ + kPixelLines * kPixelLine),
        own_(own_slice<C>(p.shape)) {}

  CLEAVE_DEVICE void run() {
    const uint32_t slot = threadIdx.x % kSlots;
    place_ = threadIdx.x / kSlots;
    tap_line_ = slot / kLanes;
    lane_ = slot % kLanes * kVector;
    TapSums sums = {};
    uint32_t next = own_.slice * p_.shape.steps;
    const uint32_t end = min_of(next + p_.shape.steps, p_.shape.tiles);
    while (next < end) {
      uint32_t column = 0, line = 0;
      p_.shape.rows.divmod(next, column, line);
      const uint32_t lines = min_of(p_.shape.rows.divisor - line, end - next);
      add_column(column, line, lines, sums);
      next += lines;
    }
    ptx::copy_async_wait<0>();
    __syncthreads();  // sums lie where lines were
    WgradSums<C>(p_, shared_).finish(sums, own_.block);
  }

 private:
  using TapSums = float[kAxis.taps][kGroup][kVector];
  static constexpr uint32_t kNone = ~0u;

  /// What a thread copies of a line, and where the next one begins.
  template <uint32_t Own>
  struct Copies {
    const char* from;
    int64_t line;  // bytes
    uint32_t at[Own], to = 0;
  };

  /// So many lines of outputs from `line` on.
  CLEAVE_DEVICE void add_column(uint32_t column, uint32_t line, uint32_t lines, TapSums& sums) const {
    uint32_t first_image = 0, first_along = 0;
    p_.shape.columns.divmod(column * kPlaces, first_image, first_along);
    int32_t y = kDown.map(p_.shape.pad[0]).first(line);
    Copies<kOwnPixels> pixels;
    Copies<kOwnGradients> gradients;
    find_pixels(first_image, first_along, y, pixels);
    find_gradients(column, line, gradients);
    __syncthreads();  // all are done with the lines before
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < kReach - kDown.stride; ++i) send_pixels(pixels, y);
    uint32_t sent = 0;
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) send(pixels, gradients, y, sent++ < lines);
    uint32_t image = 0, along = 0;
    p_.shape.columns.divmod(column * kPlaces + place_, image, along);
    const bool exists =
        place_ < kPlaces && image < p_.shape.images && own_.block * C.tile.n + lane_ < p_.shape.channels;
    const uint32_t made = min_of(kStrip, p_.shape.made[1] - along * kStrip);
    const uint32_t begin =
        (image - first_image) * staged_image_line(C, p_.shape.columns.divisor) + along * kStep - first_along * kStep;
    const uint32_t own_pixels = pixels_ + begin * kPixelBytes + lane_ * size_of(kType);
    const uint32_t own_gradients = gradients_ + place_ * kStrip * kPixelBytes + lane_ * size_of(kType);
    uint32_t pixel_line = tap_line_ * kDown.dilation, gradient_line = 0;
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < lines; ++i) {
      ptx::copy_async_wait<int(kAhead) - 1>();
      __syncthreads();
      send(pixels, gradients, y, sent++ < lines);
      if (exists) {
        const uint32_t from_b = own_pixels + pixel_line * kPixelLine;
        const uint32_t from_a = own_gradients + gradient_line * kGradientLine;
        if (made == kStrip) {
          add_strip(from_a, from_b, sums);
        } else {
          add_part(from_a, from_b, made, sums);
        }
      }
      pixel_line += kDown.stride;
      if (pixel_line >= kPixelLines) pixel_line -= kPixelLines;
      if (++gradient_line == C.tile.stages) gradient_line = 0;
    }
  }

  CLEAVE_DEVICE void add_strip(uint32_t from_a, uint32_t from_b, TapSums& sums) const {
    float gradients[kStrip][kVector];
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kStrip; ++j) load(from_a + j * kPixelBytes, gradients[j]);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) {
      float pixel[kVector];
      load(from_b + i * kPixelBytes, pixel);
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kStrip; ++j) {
        const int32_t s = tap_between(Conv::wgrad, kAxis, j, int32_t(i) + kSpan.first);
        if (s != kApart) multiply(gradients[j], pixel, sums[uint32_t(s)]);
      }
    }
  }

  /// What a strip adds that its line's end cuts: pixels that no output meets may be infinite.
  CLEAVE_DEVICE void add_part(uint32_t from_a, uint32_t from_b, uint32_t made, TapSums& sums) const {
    CLEAVE_NO_UNROLL
    for (uint32_t j = 0; j < made; ++j) {
      float gradient[kVector];
      load(from_a + j * kPixelBytes, gradient);
      CLEAVE_UNROLL
      for (uint32_t s = 0; s < kAxis.taps; ++s) {
        float pixel[kVector];
        load(from_b + (j * kAxis.stride + s * kAxis.dilation) * kPixelBytes, pixel);
        multiply(gradient, pixel, sums[s]);
      }
    }
  }

  CLEAVE_DEVICE static void load(uint32_t from, float (&to)[kVector]) {
    RawVector<kBytes> raw;
    ptx::load_shared<kBytes>(from, raw.words);
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVector; ++v) to[v] = element_of<kType>(raw, v);
  }

  CLEAVE_DEVICE static void multiply(const float (&gradient)[kVector], const float (&pixel)[kVector],
                                     float (&sums)[kGroup][kVector]) {
    CLEAVE_UNROLL
    for (uint32_t other = 0; other < kGroup; ++other) {
      CLEAVE_UNROLL
      for (uint32_t v = 0; v < kVector; ++v) sums[other][v] += gradient[v] * pixel[v / kGroup * kGroup + other];
    }
  }

  CLEAVE_DEVICE void find_pixels(uint32_t image, uint32_t along, int32_t y, Copies<kOwnPixels>& copies) const {
    const auto apart = uint32_t(p_.b.stride * size_of(kType));
    const uint32_t length = staged_image_line(C, p_.shape.columns.divisor);
    const int32_t x0 = first_gathered(Conv::wgrad, kAxis, 0, p_.shape.pad[1]) + kSpan.first;
    copies.from = static_cast<const char*>(p_.b.data) + own_.block * kPixelBytes +
                  pixel_number(int64_t(image), y, 0, p_.shape.gathered) * int64_t(apart);
    copies.line = int64_t(p_.shape.gathered[1]) * apart;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kOwnPixels; ++i) {
      const uint32_t piece = threadIdx.x + i * kDirectThreads, at = along * kStep + piece / kPieces;
      const uint32_t beyond = at / length;
      const int32_t x = x0 + int32_t(at - beyond * length);
      const bool exists = image + beyond < p_.shape.images && is_inside(x, p_.shape.gathered[1]) && has(piece);
      copies.at[i] =
          exists ? (beyond * p_.shape.gathered[0] * p_.shape.gathered[1] + uint32_t(x)) * apart + piece % kPieces * 16
                 : kNone;
    }
  }

  CLEAVE_DEVICE void find_gradients(uint32_t column, uint32_t line, Copies<kOwnGradients>& copies) const {
    const auto apart = uint32_t(p_.a.stride * size_of(kType));
    uint32_t first = 0, unused = 0;
    p_.shape.columns.divmod(column * kPlaces, first, unused);
    copies.from = static_cast<const char*>(p_.a.data) + own_.block * kPixelBytes +
                  pixel_number(int64_t(first), line, 0, p_.shape.made) * int64_t(apart);
    copies.line = int64_t(p_.shape.made[1]) * apart;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kOwnGradients; ++i) {
      const uint32_t piece = threadIdx.x + i * kDirectThreads, pixel = piece / kPieces;
      uint32_t image = 0, along = 0;
      p_.shape.columns.divmod(column * kPlaces + pixel / kStrip, image, along);
      const uint32_t x = along * kStrip + pixel % kStrip;
      const bool exists = image < p_.shape.images && x < p_.shape.made[1] && has(piece);
      copies.at[i] =
          exists ? ((image - first) * p_.shape.made[0] * p_.shape.made[1] + x) * apart + piece % kPieces * 16 : kNone;
    }
  }

  /// Whether there are the channels of a piece.
  CLEAVE_DEVICE bool has(uint32_t piece) const {
    return own_.block * C.tile.n + piece % kPieces * (16 / size_of(kType)) < p_.shape.channels;
  }

  /// The lines that the next line of outputs meets first, and its gradients, set out; nothing, unless there is one.
  CLEAVE_DEVICE void send(Copies<kOwnPixels>& pixels, Copies<kOwnGradients>& gradients, int32_t& y, bool exists) const {
    if (exists) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kDown.stride; ++i) send_pixels(pixels, y);
      copy<kGradientPieces>(gradients, gradients_ + gradients.to * kGradientLine, true);
      if (++gradients.to == C.tile.stages) gradients.to = 0;
    }
    ptx::copy_async_commit();
  }

  CLEAVE_DEVICE void send_pixels(Copies<kOwnPixels>& copies, int32_t& y) const {
    copy<kPixelPieces>(copies, pixels_ + copies.to * kPixelLine, is_inside(y, p_.shape.gathered[0]));
    if (++copies.to == kPixelLines) copies.to = 0;
    ++y;
  }

  template <uint32_t Pieces, uint32_t Own>
  CLEAVE_DEVICE static void copy(Copies<Own>& copies, uint32_t to, bool inside) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Own; ++i) {
      const uint32_t piece = threadIdx.x + i * kDirectThreads;
      if ((i + 1) * kDirectThreads <= Pieces || piece < Pieces)
        ptx::copy_async_if<16>(to + piece * 16, copies.from + copies.at[i], inside && copies.at[i] != kNone);
    }
    copies.from += copies.line;
  }

  const Params<C>& p_;
  float* shared_;
  const uint32_t pixels_, gradients_;
  const BlockSlice own_;
  uint32_t place_ = 0, tap_line_ = 0, lane_ = 0;
};

}  // namespace cleave
