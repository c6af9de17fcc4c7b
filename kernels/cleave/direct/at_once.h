// Convolutions of narrow groups of small images, and their data gradients, by multiply-adds (sm_80 and later). There is
// little to do, so that what they take is how often something waits for memory: here once.
//
// Roles      a thread makes `tile.m` neighbours of a line, `direct.vector` channels of each; neighbouring threads have
//            neighbouring channels, then the next strips: along the line, of the next line, of the next image
// Operands   all pixels that a strip meets straight from global memory, begun one after another before the first is
//            used. Filters, as they lie, come at the same time and are shared by the CTA; a thread has all of its own
//            in registers, or a line of taps at a time
// Sums       float32, in the order of the taps
#pragma once

#include "cleave/config/direct_at_once.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/epilogue/store_pixel.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/ptx/load_global.h"
#include "cleave/ptx/shared.h"

namespace cleave {

template <GemmConfig C>
class DirectAtOnce {
  static constexpr Conv kKind = C.conv.kind;
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kStrip = C.tile.m, kGroup = C.direct.group;
  static constexpr uint32_t kBytes = kVector * size_of(kType);
  static constexpr uint32_t kLanes = C.tile.n / kVector, kPlaces = column_places(C);
  static constexpr DirectAxis kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr GatheredSpan kSpan = gathered_span(kKind, kAcross, kStrip);
  static constexpr uint32_t kPixels = kSpan.size(), kTaps = kDown.taps * kAcross.taps;
  static constexpr uint32_t kPiece = at_once_filter_piece(C), kPieces = at_once_filter_bytes(C) / kPiece;
  static constexpr uint32_t kElements = kPiece / size_of(kType);  // of a piece
  static constexpr uint32_t kOfChannel = at_once_filter_bytes(C) / kVector;
  static constexpr uint32_t kOwn = ceil_div(C.tile.n * kOfChannel, kDirectThreads * 16);  // of a thread's, to be shared
  static_assert(kVector % kGroup == 0 && C.tile.n * size_of(kType) % 16 == 0 && kPlaces > 0);

 public:
  CLEAVE_DEVICE DirectAtOnce(const Params<C>& p, uint32_t shared) : p_(p), shared_(shared) {}

  CLEAVE_DEVICE void run() const {
    uint32_t turn = 0, block = 0, above = 0, along = 0, image = 0, line = 0;
    p_.shape.blocks.divmod(blockIdx.x, turn, block);
    RawVector<16> own[kOwn];
    load_filters(block * C.tile.n, own);
    const uint32_t lane = threadIdx.x % kLanes * kVector, channel = block * C.tile.n + lane;
    p_.shape.columns.divmod(turn * kPlaces + threadIdx.x / kLanes, above, along);
    p_.shape.rows.divmod(above, image, line);
    const bool exists = threadIdx.x < kPlaces * kLanes && channel < p_.shape.channels && image < p_.shape.images;
    Line lines[kDown.taps];
    const uint32_t column = along * kStrip;
    load_lines(image, line, column, channel, exists, lines);
    // What comes from parameters is there before the pixels are.
    const PixelStore<C> store(p_, min_of(channel, p_.shape.channels - kVector));
    const uint32_t pixel = pixel_number(image, line, column, p_.shape.made);
    char* to = store.place(pixel);
    share_filters(own);
    __syncthreads();
    if (!exists) return;
    const uint32_t own_filters = shared_ + lane * kOfChannel;
    Piece filters[kPieces];
    if constexpr (holds_all_filters(C)) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kPieces; ++i) ptx::load_shared<kPiece>(own_filters + i * kPiece, filters[i].words);
    }
    float sums[kStrip][kVector] = {};
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < kDown.taps; ++r) {
      if constexpr (!holds_all_filters(C)) load_line(own_filters, r, filters);
      // A tap that a line does not meet has zeros for pixels, but may be infinite.
      if (has_classes(kDown) && !is_inside(meets(line, r), p_.shape.gathered[0])) continue;
      multiply(r, lines[r], filters, sums);
    }
    const auto apart = uint32_t(p_.epilogue.d_stride * size_of(C.epilogue.d));
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kStrip; ++j)
      if (column + j < p_.shape.made[1]) store(pixel + j, sums[j], to + uint64_t(j) * apart);
  }

 private:
  using Line = RawVector<kBytes>[kPixels];  // what a strip meets of it
  using Piece = RawVector<kPiece>;

  CLEAVE_DEVICE static constexpr bool has_classes(const DirectAxis& axis) {
    return kKind == Conv::dgrad && axis.stride > 1;
  }
  CLEAVE_DEVICE int32_t meets(uint32_t line, uint32_t r) const {
    return gathered_at(kKind, kDown.map(p_.shape.pad[0]), line, r);
  }

  /// Those of a CTA's channels, which follow each other. By all threads.
  CLEAVE_DEVICE void load_filters(uint32_t channel0, RawVector<16> (&own)[kOwn]) const {
    const uint32_t bytes = (p_.shape.channels - channel0) * kOfChannel;
    const char* const from = static_cast<const char*>(p_.b.data) + uint64_t(channel0) * kOfChannel;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t at = (i * kDirectThreads + threadIdx.x) * 16;
      ptx::load_global_if<16>(own[i].words, from + at, at < min_of(bytes, C.tile.n * kOfChannel));
    }
  }
  CLEAVE_DEVICE void share_filters(const RawVector<16> (&own)[kOwn]) const {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t at = (i * kDirectThreads + threadIdx.x) * 16;
      if (at < C.tile.n * kOfChannel) ptx::store_shared_128(shared_ + at, own[i].words);
    }
  }

  /// What line `r` wants, and the one before has not left there.
  CLEAVE_DEVICE static void load_line(uint32_t from, uint32_t r, Piece (&filters)[kPieces]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPieces; ++i) {
      const bool there = r > 0 && has_filter_line(C, i, r - 1);
      if (has_filter_line(C, i, r) && !there) ptx::load_shared<kPiece>(from + i * kPiece, filters[i].words);
    }
  }

  CLEAVE_DEVICE void load_lines(uint32_t image, uint32_t line, uint32_t column, uint32_t channel, bool exists,
                                Line (&lines)[kDown.taps]) const {
    const int32_t x0 = first_gathered(kKind, kAcross, column, p_.shape.pad[1]) + kSpan.first;
    const auto apart = uint32_t(p_.a.stride * size_of(kType));
    const char* const pixels = static_cast<const char*>(p_.a.data) + channel * size_of(kType);
    bool inside[kPixels];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) inside[i] = is_inside(x0 + int32_t(i), p_.shape.gathered[1]);
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < kDown.taps; ++r) {
      const int32_t y = meets(line, r);
      const bool met = exists && is_inside(y, p_.shape.gathered[0]);
      const char* const from = pixels + pixel_number(int64_t(image), y, x0, p_.shape.gathered) * int64_t(apart);
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kPixels; ++i)
        ptx::load_global_if<kBytes>(lines[r][i].words, from + uint64_t(i) * apart, met && inside[i]);
    }
  }

  CLEAVE_DEVICE static void multiply(uint32_t r, const Line& line, const Piece (&filters)[kPieces],
                                     float (&sums)[kStrip][kVector]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) {
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kStrip; ++j) {
        const int32_t s = tap_between(kKind, kAcross, j, int32_t(i) + kSpan.first);
        if (s == kApart) continue;
        CLEAVE_UNROLL
        for (uint32_t v = 0; v < kVector; ++v) {
          CLEAVE_UNROLL
          for (uint32_t other = 0; other < kGroup; ++other)
            sums[j][v] += element_of<kType>(line[i], v / kGroup * kGroup + other) *
                          filter_of(filters, v, r * kAcross.taps + uint32_t(s), other);
        }
      }
    }
  }

  /// What channel `v` of the thread's has at `tap` for channel `other` of its group. Filters lie one after another,
  /// each tap by tap, with a group's channels.
  CLEAVE_DEVICE static float filter_of(const Piece (&filters)[kPieces], uint32_t v, uint32_t tap, uint32_t other) {
    constexpr bool kBack = kKind == Conv::dgrad;
    const uint32_t filter = kBack ? v / kGroup * kGroup + other : v, channel = kBack ? v % kGroup : other;
    const uint32_t at = (filter * kTaps + tap) * kGroup + channel;
    return element_of<kType>(filters[at / kElements], at % kElements);
  }

  const Params<C>& p_;
  const uint32_t shared_;
};

}  // namespace cleave
