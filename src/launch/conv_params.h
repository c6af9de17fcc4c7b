// The parameters of a convolution's kernel beyond those of a product.
#pragma once

#include <algorithm>
#include <iterator>

#include "cleave/config/gemm_params.h"
#include "launch/conv_grid.h"

namespace cleave {

/// Calls `body` with a pointer to `params` as the ConvParams that the configuration's kernel takes.
template <class Body>
auto visit_params(const GemmConfig& c, void* params, const Body& body) {
  const bool maps = has_tma(c.family);
  switch (c.conv.class_capacity) {
#define CLEAVE_CAPACITY(n) \
  case n:                  \
    return maps ? body(static_cast<ConvParams<n, true>*>(params)) : body(static_cast<ConvParams<n, false>*>(params));
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

/// Bytes that a launch passes.
inline size_t params_bytes(const GemmConfig& c) {
  return visit_params(c, nullptr, [](auto* p) { return sizeof(*p); });
}

/// Bytes of ConvParams that mean something where there are `classes` classes: maps are last, and those
/// that no class has need not be kept.
inline size_t used_params_bytes(const GemmConfig& c, uint32_t classes) {
  return visit_params(c, nullptr, [&](auto* p) {
    const size_t maps = has_tma(c.family) ? classes : 0;
    return sizeof(*p) - (std::size(p->maps) - maps) * sizeof(ConvMaps);
  });
}

/// All but GemmParams and the maps. There are no more classes than the configuration has room for.
template <class Params>
void set_geometry(const GemmConfig& c, const ConvLayout& conv, const ConvClasses& classes, Params& params) {
  const ImageSize size = gathered_size(conv);
  std::copy(size.begin(), size.end(), params.extent);
  params.channels = gathered_channels(conv);
  params.per_tap = FastDivmod(std::max(per_tap(c, conv), 1u));
  params.tap_stride = uint32_t(conv.channels);
  params.columns = classes.columns;
  params.class_count = uint32_t(classes.list.size());
  std::copy(classes.list.begin(), classes.list.end(), params.classes);
}

}  // namespace cleave
