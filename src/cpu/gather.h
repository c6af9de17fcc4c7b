// The gathered operand of a convolution (x, of dgrad dy) as the matrix that it stands for: a row for
// each pixel of a class, columns of taps x channels.
#pragma once

#include "cleave/conv/conv_classes.h"
#include "cleave/gemm.h"
#include "cpu/pack.h"

namespace cleave::cpu {

/// Part of taps x channels that lies in one tap.
struct TapRun : TapChannel {  // its first channel
  uint32_t begin;             // in the span that it is of
  uint32_t count;
};

/// Calls visit(run) for each tap of `span`, which counts `per_tap` channels for every tap of a class.
template <class Visit>
void for_each_tap(const ConvClass& c, const FastDivmod& per_tap, Span span, const Visit& visit) {
  for (uint32_t begin = 0, count; begin < span.count; begin += count) {
    const TapChannel first = c.find_tap<kConvAxes, true>(per_tap, span.first + begin);
    count = min_of(per_tap.divisor - first.channel, span.count - begin);
    visit(TapRun{first, begin, count});
  }
}

class Gather {
 public:
  Gather(const GemmProblem& problem, const GemmArguments& arguments);

  /// Channels of a tap.
  const FastDivmod& per_tap() const { return per_tap_; }

  /// As cpu::pack_a: pixels are rows.
  void pack_a(const ConvClass& c, uint32_t batch, Span pixels, Span depth, float* out) const;

  /// As cpu::pack_b: taps x channels are columns, and K is pixels.
  void pack_b(const ConvClass& c, uint32_t batch, Span columns, Span pixels, float* out) const;

 private:
  template <DType type>
  void pack_rows(const ConvClass& c, int64_t group, Span pixels, Span depth, float* out) const;
  template <DType type>
  void pack_columns(const ConvClass& c, int64_t group, Span columns, Span pixels, float* out) const;

  /// The offset, in a group, of the pixel on which `tap` lands; kOutside if it is padding.
  int64_t find(const ConvClass& c, const PixelCoord& pixel, const PixelCoord& tap) const;

  static constexpr int64_t kOutside = -1;

  const void* data_;
  MatrixLayout layout_;
  FastDivmod per_tap_;
  uint32_t extent_[kConvAxes];
};

}  // namespace cleave::cpu
