// How a kernel sees the operation's problem.
#pragma once

#include <algorithm>
#include <array>
#include <new>
#include <type_traits>
#include <utility>

#include "config.h"
#include "launch/conv_maps.h"
#include "launch/conv_params.h"
#include "launch/conv_view.h"
#include "launch/function_operands.h"
#include "launch/product_params.h"

namespace emitted::operation {

using Kind = cleave::Conv;
inline constexpr Kind kKind = kOperation.conv.kind;
/// Channels of what fprop and dgrad make.
inline constexpr int64_t kResultChannels = kKind == Kind::fprop ? kFilters : kChannels;

/// Two axes, or three with the depth; and where they begin in ConvLayout::axes.
inline constexpr size_t kAxes = kOperation.conv.axes[0] != cleave::ConvAxis{} ? 3 : 2;
inline constexpr size_t kFirstAxis = 3 - kAxes;

/// Elements from pixel to pixel of X and Y, in their roles of this kind.
inline int64_t& pixel_stride_x(cleave::GemmProblem& p) {
  return kKind == Kind::fprop ? p.a.stride_row : kKind == Kind::dgrad ? p.d.stride_row : p.b.stride_row;
}
inline int64_t& pixel_stride_y(cleave::GemmProblem& p) {
  return kKind == Kind::fprop ? p.d.stride_row : kKind == Kind::dgrad ? p.a.stride_row : p.a.stride_col;
}

/// Sets the number and the sizes of images. Throws std::invalid_argument for those that the filters
/// do not fit, or that are too many pixels.
void set_images(int64_t images, const std::array<int64_t, kAxes>& size, cleave::ConvLayout& conv);

/// Says how far apart an operand of the epilogue function has the groups' values, its stride being known: groups are
/// channels, or filters, side by side.
void place_groups(cleave::EpilogueLayout& layout, const cleave::GemmProblem& problem);

struct View {
  cleave::GemmProblem problem = {};  ///< the product that the kernel computes
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
    cleave::set_geometry(config, view.problem.conv, view.classes, *params);
  });
  return *static_cast<cleave::GemmParams*>(memory);
}

/// Calls `visit(map, data, shape)` for each tensor map of the parameter (conv_maps.h).
template <class Visit>
void visit_maps(const View& view, const cleave::GemmConfig& config, void* params, const Visit& visit) {
  cleave::visit_matrix_maps(config, view.problem, *static_cast<cleave::GemmParams*>(params), visit);
  cleave::visit_params(config, params,
                       [&](auto* of_kernel) { cleave::visit_class_maps(config, view.problem, *of_kernel, visit); });
}

}  // namespace emitted::operation
