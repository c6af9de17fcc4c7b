// How a kernel sees the operation's problem.
#pragma once

#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

#include "config.h"
#include "launch/conv_maps.h"
#include "launch/conv_params.h"
#include "launch/conv_view.h"
#include "launch/product_params.h"

namespace emitted::operation {

using Kind = cleave::Conv;
inline constexpr Kind kKind = kOperation.conv.kind;

struct View {
  cleave::GemmProblem problem = {};  ///< the product that the kernel computes
  cleave::ConvGeometry geometry = {};
  cleave::ConvClasses classes = {};
  cleave::GemmTiles tiles = {};
};

namespace detail {

template <size_t... i>
constexpr size_t most_bytes(std::index_sequence<i...>) {
  return std::max({sizeof(cleave::Params<kKernels[i].config>)...});
}

}  // namespace detail

/// Bytes of the parameter of any of the kernels. All begin with GemmParams.
inline constexpr size_t kParamsBytes = detail::most_bytes(std::make_index_sequence<std::size(kKernels)>());

/// `params` in its memory, which has kParamsBytes.
inline cleave::GemmParams& construct_params(const View& view, const cleave::GemmConfig& config, void* memory) {
  cleave::visit_params(config, memory, [&](auto* params) {
    new (params) std::remove_pointer_t<decltype(params)>();
    cleave::set_geometry(config, view.geometry, view.classes, *params);
  });
  return *static_cast<cleave::GemmParams*>(memory);
}

/// Calls `visit(map, data, shape)` for each tensor map of the parameter (conv_maps.h).
template <class Visit>
void visit_maps(const View& view, const cleave::GemmConfig& config, void* params, const Visit& visit) {
  cleave::visit_matrix_maps(config, view.geometry, uint32_t(view.problem.batch),
                            *static_cast<cleave::GemmParams*>(params), visit);
  cleave::visit_params(config, params,
                       [&](auto* of_kernel) { cleave::visit_class_maps(config, view.geometry, *of_kernel, visit); });
}

}  // namespace emitted::operation
