#include "plan/conv_params.h"

#include <cuda.h>

#include <cstring>
#include <memory>
#include <type_traits>

#include "cleave/conv.h"
#include "cleave/epilogue/store_chunk.h"
#include "plan/conv_choice.h"
#include "problem/conv_classes.h"
#include "runtime/tensor_map.h"

namespace cleave {
namespace {

/// Calls `body` with a pointer to `params` as the ConvParams that the configuration's kernel takes.
template <class Body>
auto visit_params(const GemmConfig& c, void* params, const Body& body) {
  const bool maps = c.family == KernelFamily::sm90;
  switch (c.class_capacity) {
#define CLEAVE_CAPACITY(n)                                        \
  case n:                                                         \
    return maps ? body(static_cast<ConvParams<n, true>*>(params)) \
                : body(static_cast<ConvParams<n, false>*>(params));
    CLEAVE_CAPACITY(1)
    CLEAVE_CAPACITY(2)
    CLEAVE_CAPACITY(4)
    CLEAVE_CAPACITY(8)
    CLEAVE_CAPACITY(16)
    CLEAVE_CAPACITY(32)
    default:
      CLEAVE_CAPACITY(64)
#undef CLEAVE_CAPACITY
  }
}

size_t params_bytes(const GemmConfig& c) {
  return visit_params(c, nullptr, [](auto* p) { return sizeof(*p); });
}

CUtensorMap& driver_map(TensorMap& map) {
  return reinterpret_cast<CUtensorMap&>(map);
}

struct Extents {
  int64_t channels, size[kConvAxes], images;
};

/// A tensor of images whose pixels are `pixel` elements apart, in width, height and depth `step` times
/// as much.
Im2colMapShape image_map(const char* name, DType dtype, uint32_t axes, const Extents& extents,
                         int64_t pixel, const int64_t (&apart)[kConvAxes], int64_t image_apart) {
  const int64_t element = size_of(dtype);
  Im2colMapShape shape;
  shape.name = name;
  shape.dtype = dtype;
  shape.round_to_tf32 = dtype == DType::f32;
  shape.rank = axes + 2;
  shape.size[0] = uint64_t(extents.channels);
  for (uint32_t i = 0; i < axes; ++i) {
    const uint32_t axis = kConvAxes - 1 - i;
    shape.size[1 + i] = uint64_t(extents.size[axis]);
    shape.stride_bytes[1 + i] = uint64_t(apart[axis] * pixel * element);
  }
  shape.size[1 + axes] = uint64_t(extents.images);
  shape.stride_bytes[1 + axes] = uint64_t(image_apart * pixel * element);
  return shape;
}

/// The gathered operand, at tap 0 of a class; all of it, if the class has none.
Im2colMapShape gathered_map(const GemmProblem& p, const GemmConfig& c, const ConvClass& of) {
  const MatrixLayout& layout = gathers_a(c) ? p.a : p.b;
  const int64_t groups = p.conv.kind == Conv::wgrad ? 1 : p.batch;
  Extents extents{gathered_channels(p.conv) * groups, {}, p.conv.images};
  int64_t apart[kConvAxes], pixels = 1;
  for (uint32_t i = kConvAxes; i-- > 0;) {
    const ConvAxis& axis = p.conv.axes[i];
    extents.size[i] = p.conv.kind == Conv::dgrad ? outputs(axis) : axis.size;
    apart[i] = pixels;
    pixels *= extents.size[i];
  }
  Im2colMapShape shape = image_map(gathers_a(c) ? "a" : "b", layout.dtype, c.conv_axes, extents,
                                   layout.stride_row, apart, pixels);
  for (uint32_t i = 0; of.depth > 0 && i < c.conv_axes; ++i) {
    const uint32_t axis = kConvAxes - 1 - i;
    const int32_t last = of.origin[axis] + int32_t(of.pixels.extent[axis] - 1) * of.row_step[axis];
    shape.lower[i] = of.origin[axis];
    shape.upper[i] = last - int32_t(extents.size[axis] - 1);
    shape.step[i] = uint32_t(of.row_step[axis]);
  }
  shape.box_channels = atom_elements(c.a);
  shape.box_pixels = gathers_a(c) ? c.tile_m / c.multicast_n : c.tile_k;
  return shape;
}

/// A class's pixels of D.
Im2colMapShape output_map(const GemmProblem& p, const GemmConfig& c, const ConvClass& of) {
  Extents extents{p.n, {}, p.conv.images};
  int64_t apart[kConvAxes];
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    extents.size[i] = of.pixels.extent[i];
    apart[i] = of.output_step[i];
  }
  Im2colMapShape shape =
      image_map("d", p.d.dtype, c.conv_axes, extents, p.d.stride_row, apart, of.outputs_per_image);
  shape.box_channels = store_box_columns(c);
  shape.box_pixels = 64;
  return shape;
}

/// Whether a class's pixels come by im2col. Without taps nothing is gathered but zeros, through the
/// first class's map.
bool maps_gathered(const GemmConfig& c, const ConvClass& of, size_t number) {
  const bool by_im2col = c.family == KernelFamily::sm90 && (!c.gather || c.side_by_side);
  return by_im2col && (of.depth > 0 || number == 0);
}

bool maps_output(const GemmConfig& c) {
  return scatters(c) && c.store_by_tma;
}

// Maps are encoded for this address and pointed at the arguments in each run.
const void* const kNowhere = reinterpret_cast<const void*>(uintptr_t(1) << 20);

}  // namespace

std::vector<std::byte> make_conv_params(const Choice& choice, const GemmParams& gemm) {
  const GemmProblem& p = choice.problem;
  const GemmConfig& c = choice.config;
  ClassColumns columns;
  const auto classes = dealt_classes(p, c, &columns);
  // A vector's memory is not aligned to TensorMap's 128 bytes; what the driver encodes has to be.
  std::vector<std::byte> bytes(params_bytes(c));
  visit_params(c, nullptr, [&](auto* type) {
    auto params = std::make_unique<std::remove_pointer_t<decltype(type)>>();
    static_cast<GemmParams&>(*params) = gemm;
    for (uint32_t i = 0; i < kConvAxes; ++i) {
      const ConvAxis& axis = p.conv.axes[i];
      params->extent[i] = uint32_t(p.conv.kind == Conv::dgrad ? outputs(axis) : axis.size);
    }
    params->channels = gathered_channels(p.conv);
    params->per_tap = FastDivmod(std::max(per_tap(p, c), 1u));
    params->taps_apart = uint32_t(p.conv.channels);
    params->columns = columns;
    params->class_count = uint32_t(classes.size());
    for (size_t i = 0; i < classes.size(); ++i) {
      params->classes[i] = classes[i];
      if (c.family != KernelFamily::sm90) continue;
      ConvMaps& maps = params->maps[i];
      if (maps_gathered(c, classes[i], i))
        driver_map(maps.gathered) = make_tensor_map(kNowhere, gathered_map(p, c, classes[i]));
      if (maps_output(c))
        driver_map(maps.output) = make_tensor_map(kNowhere, output_map(p, c, classes[i]));
    }
    std::memcpy(bytes.data(), params.get(), sizeof(*params));
  });
  return bytes;
}

void place_conv_maps(const Choice& choice, void* params, const GemmArguments& arguments) {
  const GemmProblem& p = choice.problem;
  const GemmConfig& c = choice.config;
  const void* const gathered = gathers_a(c) ? arguments.a : arguments.b;
  visit_params(c, params, [&](auto* conv) {
    for (uint32_t i = 0; i < conv->class_count; ++i) {
      const ConvClass& of = conv->classes[i];
      if (maps_gathered(c, of, i)) replace_address(driver_map(conv->maps[i].gathered), gathered);
      if (!maps_output(c)) continue;
      const int64_t first = of.first_output * p.d.stride_row * int64_t(size_of(p.d.dtype));
      replace_address(driver_map(conv->maps[i].output), static_cast<char*>(arguments.d) + first);
    }
  });
}

}  // namespace cleave
