// The one argument of every kernel, filled by the host for each launch and passed as a
// __grid_constant__.
#pragma once

#include "cleave/config/cache_hints.h"
#include "cleave/config/epilogue_params.h"
#include "cleave/config/gate_columns.h"
#include "cleave/config/gemm_config.h"
#include "cleave/config/list_params.h"
#include "cleave/config/weight_lines.h"
#include "cleave/conv/fused_classes.h"
#include "cleave/memory/tensor_map.h"
#include "cleave/peers/meeting_params.h"
#include "cleave/schedule/schedule.h"

namespace cleave {

/// An operand as threads read it; TMA reads the same facts from a tensor map.
struct OperandParams {
  const void* data = nullptr;
  int64_t stride = 0;        // elements, of the dimension that is not contiguous
  int64_t batch_stride = 0;  // elements; 0 broadcasts
};

/// Rows and columns of D, and elements of K.
struct ProblemSize {
  uint32_t m = 0, n = 0, k = 0;
};

/// Scales of an operand. Strides count elements.
struct ScaleParams {
  const float* data = nullptr;
  int64_t stride_row = 0;  // to the next row's (column's) scale, or the next 128 rows'; 0: one for all
  int64_t stride_k = 0;    // Scaling::block: to the next k block's
  int64_t stride_batch = 0;
};

struct GemmParams {
  TensorMap map_a, map_b, map_d;  // sm90
  OperandParams a, b;             // copies by threads; cache hints
  ProblemSize size;
  GateColumns gates;  // gated
  ScaleParams scales_a, scales_b;
  WeightParams weights;
  uint32_t batched_a = 0, batched_b = 0;  // sm90, streamed: 0 where the batch broadcasts, else 1
  LeavesFirst leaves_first;               // sm90, but of groups
  Schedule schedule;
  GroupParams groups;
  ListParams list;  // operands.listed
  EpilogueParams epilogue;
  TensorMap* group_maps = nullptr;  // has_group_maps: of A and B of each group, made by the kernel
  float* partials = nullptr;        // float32 parts of tiles, in fragment order
  // One per tile (parallel: a FixupWord), of stream_k one per CTA; zero between launches.
  uint32_t* counters = nullptr;
};

/// For a sum over ranks.
struct AcrossParams : GemmParams {
  MeetingParams meeting;
};

/// For a convolution pixel by pixel.
struct DirectParams : GemmParams {
  DirectShape shape;
};

/// A class's tensor maps (sm90).
struct ConvMaps {
  TensorMap gathered;
  TensorMap output;  // its part of D, where that is strided
};

/// For a convolution with up to `Classes` classes.
template <uint32_t Classes, bool WithMaps>
struct ConvParams : GemmParams {
  uint32_t extent[kConvAxes] = {};  // of the gathered tensor's images
  uint32_t channels = 0;            // of a group, in the gathered tensor
  FastDivmod per_tap;               // fprop, dgrad: k blocks of a tap, or its lines (half_lines), or elements
                                    // (flattens_taps); wgrad: columns of a tap
  uint32_t tap_stride = 0;          // elements, in a filter
  FusedClasses columns;             // fused classes
  uint32_t class_count = 0;
  ConvClass classes[Classes];
  // Last, so that what keeps parameters need not keep maps of classes that there are not.
  ConvMaps maps[WithMaps ? Classes : 1];
};

template <GemmConfig C>
using Params = Either<C.family == KernelFamily::direct, DirectParams,
                      Either<C.conv.kind == Conv::none, Either<C.across.ranks == 1, GemmParams, AcrossParams>,
                             ConvParams<C.conv.class_capacity, has_tma(C.family)>>>;

}  // namespace cleave
