#include "cpu/gather.h"

#include "base/enumerators.h"
#include "cleave/core/element.h"
#include "cpu/micro_kernel.h"
#include "cpu/tiling.h"
#include "launch/conv_grid.h"

namespace cleave::cpu {
namespace {

PixelCoord locate(const ConvClass& c, uint32_t pixel) {
  return c.pixels.locate<kConvAxes, true>(pixel);
}

}  // namespace

Gather::Gather(const GemmProblem& problem, const GemmArguments& arguments) {
  const ConvLayout& conv = problem.conv;
  data_ = gathers_a(conv.kind) ? arguments.a : arguments.b;
  layout_ = gathers_a(conv.kind) ? problem.a : problem.b;
  per_tap_ = FastDivmod(max_of(gathered_channels(conv), 1u));
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    const ConvAxis& axis = conv.axes[i];
    extent_[i] = uint32_t(conv.kind == Conv::dgrad ? outputs(axis) : axis.size);
  }
}

int64_t Gather::find(const ConvClass& c, const PixelCoord& pixel, const PixelCoord& tap) const {
  int64_t number = pixel.image;
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    const int32_t at = c.axis(i).at(pixel.at[i], tap.at[i]);
    if (!is_inside(at, extent_[i])) return kOutside;
    number = number * extent_[i] + at;
  }
  return number * layout_.stride_row;
}

// Functions for each type, as in pack.cpp.
template <DType type>
[[gnu::noinline]] void Gather::pack_rows(const ConvClass& c, int64_t group, Span pixels, Span depth, float* out) const {
  constexpr uint32_t width = kMicroRows;
  for (uint32_t begin = 0; begin < pixels.count; begin += width, out += width * depth.count) {
    const uint32_t used = min_of(width, pixels.count - begin);
    PixelCoord rows[width];
    for (uint32_t i = 0; i < used; ++i) rows[i] = locate(c, pixels.first + begin + i);
    for_each_tap(c, per_tap_, depth, [&](const TapRun& run) {
      for (uint32_t i = 0; i < width; ++i) {
        float* const to = out + run.begin * width + i;
        const int64_t found = i < used ? find(c, rows[i], run.tap) : kOutside;
        if (found == kOutside) {
          for (uint32_t p = 0; p < run.count; ++p) to[p * width] = 0.0f;
          continue;
        }
        const int64_t first = group + found + run.channel;
#pragma GCC unroll 4  // or counting costs as much as copying
        for (uint32_t p = 0; p < run.count; ++p) {
          to[p * width] = load_element(type, data_, first + p);
        }
      }
    });
  }
}

template <DType type>
[[gnu::noinline]] void Gather::pack_columns(const ConvClass& c, int64_t group, Span columns, Span pixels,
                                            float* out) const {
  constexpr uint32_t width = kMicroColumns;
  PixelCoord coords[kMaxTileK];
  for (uint32_t p = 0; p < pixels.count; ++p) coords[p] = locate(c, pixels.first + p);
  const auto copy = [&](const TapRun& run, uint32_t count) {
    float* to = out + run.begin;
    for (uint32_t p = 0; p < pixels.count; ++p, to += width) {
      const int64_t found = find(c, coords[p], run.tap);
      if (found == kOutside) {
        for (uint32_t j = 0; j < count; ++j) to[j] = 0.0f;
        continue;
      }
      const int64_t first = group + found + run.channel;
      for (uint32_t j = 0; j < count; ++j) to[j] = load_element(type, data_, first + j);
    }
  };
  for (uint32_t begin = 0; begin < columns.count; begin += width, out += width * pixels.count) {
    const uint32_t used = min_of(width, columns.count - begin);
    for_each_tap(c, per_tap_, {columns.first + begin, used}, [&](const TapRun& run) {
      if (run.count == width) {
        copy(run, width);  // a constant: short copies without a loop
      } else {
        copy(run, run.count);
      }
    });
    for (uint32_t p = 0; used < width && p < pixels.count; ++p) {
      for (uint32_t j = used; j < width; ++j) out[p * width + j] = 0.0f;
    }
  }
}

void Gather::pack_a(const ConvClass& c, uint32_t batch, Span pixels, Span depth, float* out) const {
  dispatch(layout_.dtype, [&]<DType type>() { pack_rows<type>(c, batch * layout_.stride_batch, pixels, depth, out); });
}

void Gather::pack_b(const ConvClass& c, uint32_t batch, Span columns, Span pixels, float* out) const {
  dispatch(layout_.dtype,
           [&]<DType type>() { pack_columns<type>(c, batch * layout_.stride_batch, columns, pixels, out); });
}

}  // namespace cleave::cpu
