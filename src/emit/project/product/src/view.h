// How a kernel sees the operation's problem.
#pragma once

#include <new>

#include "config.h"
#include "launch/function_operands.h"
#include "launch/gemm_maps.h"
#include "launch/product_params.h"

namespace emitted::operation {

inline constexpr const cleave::GroupLayout& kGroups = kOperation.groups;
inline constexpr bool kGrouped = kGroups.dimension != cleave::Grouping::none;
inline constexpr bool kSpaced = kGrouped && cleave::is_spaced(kGroups.bounds);
inline constexpr bool kHasOffsets = kGrouped && kGroups.bounds != cleave::GroupBounds::counts;
inline constexpr bool kHasSizes = kGrouped && (!kHasOffsets || kGroups.bounds == cleave::GroupBounds::starts);

inline constexpr bool kPackedWeight = kOperation.weights_b.format != cleave::WeightFormat::none;
/// One scale for each row of the packed weight, whatever K.
inline constexpr bool kWholeRows = kPackedWeight && kOperation.weights_b.group == kOperation.k;

/// Throws std::invalid_argument for sizes that no tensors have.
void check_sizes(const cleave::GemmProblem& problem);

struct View {
  cleave::GemmProblem problem = {};  ///< as the kernel reads it
  cleave::GemmTiles tiles = {};
};

/// Bytes of the parameter of any of the kernels.
inline constexpr size_t kParamsBytes = sizeof(cleave::GemmParams);

/// `params` in its memory, which has kParamsBytes.
inline cleave::GemmParams& construct_params(const View&, const cleave::GemmConfig&, void* memory) {
  return *new (memory) cleave::GemmParams();
}

/// Calls `visit(map, data, shape)` for each tensor map of the parameter (gemm_maps.h).
template <class Visit>
void visit_maps(const View& view, const cleave::GemmConfig& config, void* params, const Visit& visit) {
  cleave::visit_matrix_maps(config, uint32_t(view.problem.batch), *static_cast<cleave::GemmParams*>(params), visit);
}

}  // namespace emitted::operation
