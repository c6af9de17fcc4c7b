// Places in the gathered tensor of a convolution, as threads that load find them: a pixel at tap 0, and
// the way from there to a channel of a tap.
#pragma once

#include "cleave/mainloop/copy_loader.h"

namespace cleave {

/// A pixel of a class at tap 0: its place in the gathered tensor, possibly outside.
struct GatheredPixel {
  int32_t at[kConvAxes] = {};
  int64_t offset = 0;  // bytes, from the tensor's first pixel
};

template <GemmConfig C>
CLEAVE_DEVICE GatheredPixel find_pixel(const Params<C>& p, const ConvClass& c, int64_t pixel_bytes, uint32_t row) {
  GatheredPixel pixel;
  const PixelCoord coord = c.pixels.locate<C.conv.axes, C.conv.fast_load>(row);
  int64_t number = coord.image;
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    pixel.at[i] = c.axis(i).first(coord.at[i]);
    number = number * p.extent[i] + pixel.at[i];
  }
  pixel.offset = number * pixel_bytes;
  // No pixel of that number: so far outside that no tap leads back (`validate` bounds spans).
  if (row >= c.rows) pixel.at[2] = -(1 << 30);
  return pixel;
}

/// The way from tap 0 to a channel of a tap, for all pixels.
template <GemmConfig C>
struct TapShift {
  int32_t by[kConvAxes] = {};
  int64_t offset = 0;  // bytes

  TapShift() = default;
  /// To element `number` of all taps' channels.
  CLEAVE_DEVICE static TapShift to(const Params<C>& p, const ConvClass& c, int64_t pixel_bytes, uint32_t number) {
    const TapChannel place = c.find_tap<C.conv.axes, C.conv.fast_load>(p.per_tap, number);
    TapShift shift;
    int64_t pixels = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kConvAxes; ++i) {
      shift.by[i] = c.axis(i).way(place.tap.at[i]);
      pixels = pixels * p.extent[i] + shift.by[i];
    }
    shift.offset = pixels * pixel_bytes + int64_t(place.channel) * size_of(C.operands.a);
    // A tap that is none leads outside, along another axis than a pixel that is none.
    if (!place.exists) shift.by[1] = 1 << 30;
    return shift;
  }

  template <uint32_t Bytes>
  CLEAVE_DEVICE CopyVector vector(const Params<C>& p, const char* base, const GatheredPixel& pixel) const {
    return {base + (pixel.offset + offset), inside(p, pixel) ? Bytes : 0};
  }

 private:
  CLEAVE_DEVICE bool inside(const Params<C>& p, const GatheredPixel& pixel) const {
    bool in = true;
    CLEAVE_UNROLL
    for (uint32_t i = kConvAxes - C.conv.axes; i < kConvAxes; ++i)
      in = bool(in & is_inside(pixel.at[i] + by[i], p.extent[i]));
    return in;
  }
};

}  // namespace cleave
