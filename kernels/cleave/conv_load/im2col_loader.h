// The producer's half of the sm_90a mainloop, for convolutions: one k block of A and B into one
// stage.
//
//   fprop, dgrad   a k block is tile_k channels of one tap. A: the tile's pixels, moved to the tap.
//                  B: the filters' matrix of that tap; the taps are its map's batch
//   wgrad          a k block is tile_k pixels. A: dy, a matrix. B: those pixels, strip by strip of the
//                  columns, which are channels of the taps (or, where a tap is no whole number of
//                  strips, of one tap: the batch's entry), each moved to its tap
//   turned         the same, A and B change places
//   half lines     a k block (wgrad: the columns) are lines of half a swizzle atom, each at its own tap, so that taps
//                  follow each other without a gap where their channels are so many lines
//
// Gathered tiles lie in shared memory just as those of matrices do, so consumers see no difference.
#pragma once

#include "cleave/config/loads.h"
#include "cleave/mainloop/tma_loader.h"
#include "cleave/ptx/tma_im2col.h"

namespace cleave {

template <GemmConfig C>
class Im2colLoader {
 public:
  CLEAVE_DEVICE Im2colLoader(const Params<C>& p, Sharing sharing) : p_(p), sharing_(sharing) {}

  CLEAVE_DEVICE void start(const WorkTile& work, uint32_t m0, uint32_t n0) {
    m0_ = m0, n0_ = n0;
    k_blocks_ = p_.classes[work.conv_class].k_blocks;
    // Without taps, zeros from outside any map do: the first class always has one.
    const uint32_t of = k_blocks_ == 0 ? 0 : work.conv_class;
    class_ = p_.classes + of;
    map_ = &p_.maps[of].gathered;
    if constexpr (has_taps_along_k(C)) {
      const uint32_t row = (gathers_a(C) ? m0 : n0) + shared_row();
      go_to(k_blocks_ == 0 ? 0 : row);
    } else {
      first_strip_ = kSharers == 1 ? 0 : sharing_.share_rank * kStrips;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kStrips; ++i) strips_[i] = find_strip(work, first_strip_ + i);
    }
  }

  CLEAVE_DEVICE void load(const WorkTile& work, uint32_t block, uint32_t a, uint32_t b, uint32_t barrier) {
    if constexpr (has_taps_along_k(C) && C.conv.half_lines) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kLines; ++i) load_line(work, block * kLines + i, i, a, b, barrier);
    } else if constexpr (has_taps_along_k(C)) {
      const uint32_t channel = gather(work, block, gathers_a(C) ? a : b, barrier);
      const bool exists = block < k_blocks_;
      // Groups are rows of the filters' matrix further on: of N in fprop, of K in dgrad.
      const bool along_n = C.conv.kind == Conv::fprop;
      const uint32_t group = work.batch * (along_n ? p_.size.n : p_.channels);
      const uint32_t k0 = channel + (along_n ? 0 : group), tap = exists ? class_->filter_tap(tap_) : kNowhere;
      if constexpr (C.conv.turned) {
        load_operand<C, C.operands.a_major, C.tile.m, C.cluster.multicast_n>(&p_.map_a, a, barrier, m0_, k0, work, tap,
                                                                             sharing_);
      } else {
        load_operand<C, C.operands.b_major, stage_columns(C), C.cluster.multicast_m>(
            &p_.map_b, b, barrier, n0_ + (along_n ? group : 0), k0, work, tap, sharing_);
      }
    } else {
      const uint32_t k0 = block * C.tile.k;
      if constexpr (C.conv.turned) {
        load_operand<C, C.operands.b_major, stage_columns(C), C.cluster.multicast_m>(
            &p_.map_b, b, barrier, n0_, k0, work, work.batch * p_.batched_b, sharing_);
      } else {
        load_operand<C, C.operands.a_major, C.tile.m, C.cluster.multicast_n>(&p_.map_a, a, barrier, m0_, k0, work,
                                                                             work.batch * p_.batched_a, sharing_);
      }
      go_to(k0);
      const uint32_t gathered = C.conv.turned ? a : b;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kStrips; ++i)
        load_box<kSharers>(gathered + (first_strip_ + i) * C.tile.k * kLineBytes, barrier, strips_[i]);
    }
  }

  /// The k block's pixels, whose first channel is returned.
  CLEAVE_DEVICE uint32_t gather(const WorkTile& work, uint32_t block, uint32_t stage, uint32_t barrier) {
    const Quotient tap = divide<C.conv.fast_load>(p_.per_tap, block);
    const uint32_t channel = tap.rest * C.tile.k;
    tap_ = class_->taps.locate<C.conv.axes, C.conv.fast_load>(tap.whole);
    if (block >= k_blocks_) image_ = kNowhere;
    Strip strip(*class_, tap_, work.batch * p_.channels + channel);
    CLEAVE_UNROLL
    for (uint32_t part = 0; part < kLines; ++part) {
      load_box<sharers_of_pixels(C)>(stage + (part * pixels_of_tile(C) + shared_row()) * kLineBytes, barrier, strip);
      strip.channel += kAtom;
    }
    return channel;
  }

 private:
  static constexpr uint32_t kAtom = pixel_line(C), kLineBytes = kAtom * size_of(C.operands.a);
  static constexpr uint32_t kLines = C.tile.k / kAtom;
  // wgrad: the gathered operand's strips, and who shares them.
  static constexpr uint32_t kSharers = sharers_of_pixels(C);
  static constexpr uint32_t kColumns = pixels_of_tile(C);
  static constexpr uint32_t kStrips = has_taps_along_k(C) ? 1 : kColumns / kSharers / kAtom;

  /// One line of channels, of one tap.
  struct Strip {
    uint32_t channel = 0;
    uint16_t offset[kConvAxes] = {};  // the way to the tap

    Strip() = default;
    CLEAVE_DEVICE Strip(const ConvClass& c, const PixelCoord& tap, uint32_t first_channel) : channel(first_channel) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kConvAxes; ++i) offset[i] = uint16_t(c.axis(i).way(tap.at[i]));
    }
  };

  /// Line `line` of K, the `place`th of a k block, of A and B.
  CLEAVE_DEVICE void load_line(const WorkTile& work, uint32_t line, uint32_t place, uint32_t a, uint32_t b,
                               uint32_t barrier) {
    const Quotient tap = divide<C.conv.fast_load>(p_.per_tap, line);
    const bool exists = k_blocks_ != 0 && tap.whole < class_->taps.size;
    const PixelCoord at = class_->taps.locate<C.conv.axes, C.conv.fast_load>(exists ? tap.whole : 0);
    const uint32_t channel = tap.rest * kAtom, image = image_;
    if (!exists) image_ = kNowhere;
    load_box<C.cluster.multicast_n>(a + (place * C.tile.m + shared_row()) * kLineBytes, barrier,
                                    Strip(*class_, at, channel));
    image_ = image;
    constexpr uint32_t kRowsOfB = C.operands.b_major == Major::k ? C.tile.n : kAtom;
    constexpr uint32_t kPlace = kRowsOfB * line_bytes_of_b(C);
    load_operand<C, C.operands.b_major, stage_columns(C), C.cluster.multicast_m, 1, kAtom>(
        &p_.map_b, b + place * kPlace, barrier, n0_, channel, work, exists ? class_->filter_tap(at) : kNowhere,
        sharing_);
  }

  /// Strip `i` of wgrad's taps and channels.
  CLEAVE_DEVICE Strip find_strip(const WorkTile& work, uint32_t i) const {
    const uint32_t column = (C.conv.turned ? m0_ : n0_) + i * kAtom;
    const Quotient tap =
        C.conv.batches_taps ? Quotient{work.batch, column} : divide<C.conv.fast_load>(p_.per_tap, column);
    const uint32_t channel = C.conv.batches_taps ? tap.rest : tap.rest + work.batch * p_.channels;
    return Strip(*class_, class_->taps.locate<C.conv.axes, C.conv.fast_load>(tap.whole), channel);
  }

  /// The first of the pixels that this CTA loads, of those that several share.
  CLEAVE_DEVICE uint32_t shared_row() const {
    return sharers_of_pixels(C) == 1 ? 0 : sharing_.share_rank * (pixels_of_tile(C) / sharers_of_pixels(C));
  }

  /// No image, no tap: all zeros.
  static constexpr uint32_t kNowhere = 1u << 30;

  /// Makes `row` the box's first; without any tap, a pixel that the map has.
  CLEAVE_DEVICE void go_to(uint32_t row) {
    const PixelCoord pixel = class_->pixels.locate<C.conv.axes, C.conv.fast_load>(row);
    image_ = pixel.image;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kConvAxes; ++i) {
      const int32_t at = class_->axis(i).first(pixel.at[i]);
      first_[i] = class_->k_blocks == 0 ? 0 : at;
    }
  }

  template <uint32_t Sharers>
  CLEAVE_DEVICE void load_box(uint32_t to, uint32_t barrier, const Strip& strip) const {
    constexpr auto kHint = ptx::CacheHint::normal;
    const auto ctas = uint16_t(((1 << Sharers) - 1) << sharing_.first_sharer);
    const int32_t z = first_[0], y = first_[1], x = first_[2];
    const uint16_t dz = strip.offset[0], dy = strip.offset[1], dx = strip.offset[2];
    const uint32_t image = image_, channel = strip.channel;
    if constexpr (C.conv.axes == 3) {
      if constexpr (Sharers == 1) {
        ptx::tma_load_im2col(to, map_, barrier, channel, x, y, z, image, dx, dy, dz, kHint);
      } else {
        ptx::tma_load_im2col_multicast(to, map_, barrier, channel, x, y, z, image, dx, dy, dz, ctas, kHint);
      }
    } else if constexpr (Sharers == 1) {
      ptx::tma_load_im2col(to, map_, barrier, channel, x, y, image, dx, dy, kHint);
    } else {
      ptx::tma_load_im2col_multicast(to, map_, barrier, channel, x, y, image, dx, dy, ctas, kHint);
    }
  }

  const Params<C>& p_;
  Sharing sharing_;
  const ConvClass* class_ = nullptr;
  const TensorMap* map_ = nullptr;
  PixelCoord tap_;
  Strip strips_[kStrips];
  uint32_t first_strip_ = 0;
  int32_t first_[kConvAxes] = {};  // the box's first pixel, at tap 0
  uint32_t image_ = 0;
  uint32_t m0_ = 0, n0_ = 0, k_blocks_ = 0;
};

}  // namespace cleave
