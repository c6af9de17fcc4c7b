// Sixteen bytes that start anywhere: where pixels are no whole number of vectors (three channels), a
// vector runs over channels of several taps, and is put together from reads of what alignment there is.
//
// Almost all pixels have all taps of a vector inside their image, which one comparison of the vector's
// corners shows; only at edges is every read checked for itself.
#pragma once

#include "cleave/conv_load/gather_coord.h"
#include "cleave/mainloop/copy_loader.h"

namespace cleave {

/// The ways from tap 0 to the reads of a vector, for all pixels. Small numbers, of which a thread keeps
/// many: `reaches_packed` and `reaches_image` (launch/conv_maps.h) bound images to those.
template <GemmConfig C, uint32_t Bytes>
class UnalignedTapShift {
  static_assert(C.conv.axes == 2);

 public:
  UnalignedTapShift() = default;

  /// For the vector that begins with element `number` of all taps' channels.
  CLEAVE_DEVICE static UnalignedTapShift to(const Params<C>& p, const ConvClass& c, int64_t pixel_bytes,
                                            uint32_t number) {
    UnalignedTapShift shifts;
    TapChannel place = c.find_tap<C.conv.axes, C.conv.fast_load>(p.per_tap, number);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kReads; ++i) {
      const int32_t y = place.exists ? c.axis(1).way(place.tap.at[1]) : kNoPackedTap;  // past the last tap
      const int32_t x = c.axis(2).way(place.tap.at[2]);
      shifts.by_[i] = pack(y, x);
      // Unsigned: past the last tap it means nothing, but may be large.
      const uint32_t pixels = uint32_t(y) * p.extent[2] + uint32_t(x);
      shifts.offset_[i] = int32_t(pixels * uint32_t(pixel_bytes) + place.channel * kElement);
      if (i == 0) shifts.least_ = shifts.most_ = shifts.by_[0];
      shifts.least_ = pack(min_of(y_of(shifts.least_), y), min_of(x_of(shifts.least_), x));
      shifts.most_ = pack(max_of(y_of(shifts.most_), y), max_of(x_of(shifts.most_), x));
      go_on(p, c, place);
    }
    return shifts;
  }

  /// Begins the reads that `pixel` has inside its image.
  CLEAVE_DEVICE void load(UnalignedVector<Bytes>& vector, const Params<C>& p, const char* base,
                          const GatheredPixel& pixel) const {
    const char* const from = base + pixel.offset;
    uint32_t exist = (1u << kReads) - 1;
    if (!inside(p, pixel, least_) || !inside(p, pixel, most_)) {
      exist = 0;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kReads; ++i) exist |= uint32_t(inside(p, pixel, by_[i])) << i;
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kReads; ++i) vector.load(i, from + offset_[i], exist >> i & 1);
  }

 private:
  static constexpr uint32_t kElement = size_of(C.operands.a), kReads = 16 / Bytes;

  CLEAVE_DEVICE static uint32_t pack(int32_t y, int32_t x) { return uint32_t(y) << 16 | (uint32_t(x) & 0xffff); }
  CLEAVE_DEVICE static int32_t y_of(uint32_t by) { return int32_t(by) >> 16; }
  CLEAVE_DEVICE static int32_t x_of(uint32_t by) { return int16_t(by); }

  CLEAVE_DEVICE static bool inside(const Params<C>& p, const GatheredPixel& pixel, uint32_t by) {
    return bool(is_inside(pixel.at[1] + y_of(by), p.extent[1]) & is_inside(pixel.at[2] + x_of(by), p.extent[2]));
  }

  /// To the next read: of the channels, then of the taps.
  CLEAVE_DEVICE static void go_on(const Params<C>& p, const ConvClass& c, TapChannel& place) {
    place.channel += Bytes / kElement;
    if (place.channel < p.per_tap.divisor) return;
    place.channel = 0;
    if (++place.tap.at[2] < c.taps.extent[2]) return;
    place.tap.at[2] = 0;
    if (++place.tap.at[1] == c.taps.extent[1]) place.exists = false;
  }

  uint32_t by_[kReads];  // y and x
  int32_t offset_[kReads];
  uint32_t least_, most_;  // of all reads' y, and x
};

}  // namespace cleave
