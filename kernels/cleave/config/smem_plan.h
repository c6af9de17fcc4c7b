// Where everything lies in a CTA's shared memory: one plan, used by the host for the size of the
// launch and the number of stages, and by the kernels for the offsets.
#pragma once

#include "cleave/config/direct_at_once.h"
#include "cleave/config/direct_lines.h"
#include "cleave/config/direct_pixels.h"
#include "cleave/config/direct_rows.h"
#include "cleave/config/direct_shift.h"
#include "cleave/config/direct_spread.h"
#include "cleave/config/direct_spread_wgrad.h"
#include "cleave/config/direct_staged_wgrad.h"
#include "cleave/config/direct_sweep.h"
#include "cleave/config/direct_windows.h"
#include "cleave/config/direct_work.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/scale_lines.h"
#include "cleave/config/staged_c.h"
#include "cleave/config/store_chunk.h"
#include "cleave/config/threads.h"
#include "cleave/config/weight_lines.h"
#include "cleave/memory/tensor_map.h"
#include "cleave/schedule/groups.h"

namespace cleave {

/// A cluster's buffer for partial tiles up to this size lies beside the stages; a larger one over them, at the price of
/// one more meeting of the cluster, since a rank may only send once all are done with their stages.
inline constexpr uint32_t kOwnClusterBytes = 32768;

/// streamed: tiles whose parts are on their way between a CTA's warps.
inline constexpr uint32_t kWarpPartStages = 2;

/// The most shared memory a CTA may have (sm_90). Swizzles want its base at a multiple of 1024
/// bytes.
inline constexpr uint32_t kSharedLimit = 232448;
inline constexpr uint32_t kSharedAlignment = 1024;

struct SmemPlan {
  uint32_t a_stage = 0, b_stage = 0;  // bytes of one stage
  uint32_t a = 0, b = 0;              // offsets of the first stage
  uint32_t staging = 0;               // sm90, stages_output
  uint32_t scale_stage = 0;           // Scaling::block, weights: bytes of one stage's scales
  uint32_t scales = 0;                // and the first stage's offset
  uint32_t group_table = 0;           // Grouping: groups.h
  uint32_t group_map = 0;             // has_group_maps: one that is being made
  uint32_t broadcast = 0;             // sm90: the columns' values for the epilogue, per warpgroup
  uint32_t cluster_reduce = 0;        // cluster_k > 1: parts of the tile sent by the other ranks
  bool cluster_over_stages = false;   // that buffer is too large for a place of its own
  uint32_t cluster_barrier = 0;
  uint32_t paired_reach = 0;  // pairs_scales: what the partner's columns reach, by warpgroup and turn
  uint32_t paired_barriers = 0;
  uint32_t fixup = 0;       // parallel without clusters: a word for the math threads
  uint32_t warp_parts = 0;  // streamed: weights/warp_parts.h
  uint32_t barriers = 0;    // sm90: full[stages], empty[stages]; streamed: the same of parts
  uint32_t staged_c = 0;    // stages_c: the tile's rows of C
  uint32_t c_barriers = 0;  // stages_c: full and empty
  uint32_t bytes = 0;       // dynamic shared memory to ask for
};

/// Bytes that a warpgroup sends its partner for a tile: two rows' reaches of each 64, from each quad of lanes.
CLEAVE_HD constexpr uint32_t paired_reach_bytes(const GemmConfig& c) {
  const uint32_t rows = c.tile.m / (c.warps.pingpong ? 1 : c.warps.consumers);
  return rows / 64 * 2 * 32 * uint32_t(sizeof(int32_t));
}

CLEAVE_HD constexpr SmemPlan smem_plan(const GemmConfig& c) {
  const bool specialised = has_tma(c.family);
  SmemPlan plan;
  if (c.family == KernelFamily::direct) {
    const bool back = c.conv.kind == Conv::wgrad;
    plan.bytes = c.direct.method == DirectMethod::windows   ? window_bytes(c)
                 : c.direct.method == DirectMethod::spread  ? (back ? tap_bytes(c) : spread_bytes(c))
                 : c.direct.method == DirectMethod::shift   ? shift_bytes(c)
                 : c.direct.method == DirectMethod::rows    ? rows_bytes(c)
                 : c.direct.method == DirectMethod::lines   ? lines_bytes(c)
                 : c.direct.method == DirectMethod::staged  ? staged_wgrad_bytes(c)
                 : c.direct.method == DirectMethod::at_once ? at_once_bytes(c)
                 : c.direct.method == DirectMethod::sweep   ? sweep_bytes(c)
                 : back ? direct_places(c) * direct_made(c) * uint32_t(sizeof(float))
                 : c.direct.method == DirectMethod::columns ? columns_bytes(c)
                                                            : pixels_bytes(c);
    return plan;
  }
  const bool streamed = c.family == KernelFamily::streamed;  // A, and its scales, through registers alone
  plan.a_stage = streamed ? 0 : has_weights(c) ? c.tile.m * c.tile.k / 2 : c.tile.m * c.tile.k * size_of(c.operands.a);
  plan.b_stage = stage_columns(c) * c.tile.k * size_of(c.operands.a);
  uint32_t at = 0;
  plan.a = at;
  at += c.tile.stages * plan.a_stage;
  plan.b = at;
  at += c.tile.stages * plan.b_stage;
  plan.staging = at;
  if (specialised && stages_output(c)) at += c.warps.consumers * c.store.chunks * store_chunk_bytes(c);
  plan.scale_stage = streamed ? 0 : has_weights(c) ? weight_line_bytes(c) : scale_stage_bytes(c);
  plan.scales = at;
  at += c.tile.stages * plan.scale_stage;
  plan.broadcast = at;
  if (specialised) at += c.warps.consumers * c.tile.n * column_broadcast_values(c) * uint32_t(sizeof(float));
  if (c.cluster.k > 1) {
    const uint32_t together = blocks_finished_together(c);
    // float4 per thread from each rank
    const uint32_t part = ceil_div(accumulators_per_thread(c) / 4 / together, c.cluster.k) * together;
    const uint32_t bytes = c.cluster.k * part * math_threads(c) * 16;
    plan.cluster_over_stages = bytes > kOwnClusterBytes;
    plan.cluster_reduce = plan.cluster_over_stages ? 0 : at;
    at = plan.cluster_over_stages ? max_of(at, bytes) : at + bytes;
    plan.cluster_barrier = at;
    at += uint32_t(sizeof(uint64_t));
  }
  if (pairs_scales(c)) {
    plan.paired_reach = round_up(at, 16u);
    plan.paired_barriers = plan.paired_reach + c.warps.consumers * 2 * paired_reach_bytes(c);
    at = plan.paired_barriers + c.warps.consumers * 2 * uint32_t(sizeof(uint64_t));
  }
  plan.fixup = at;
  if (c.schedule.split == SplitKMode::parallel && c.cluster.k == 1) at += uint32_t(sizeof(uint64_t));
  plan.warp_parts = round_up(at, 16u);
  if (streamed) at = plan.warp_parts + kWarpPartStages * c.warps.k * c.tile.m * c.tile.n * uint32_t(sizeof(float));
  plan.barriers = at;
  if (streamed) at += 2 * kWarpPartStages * uint32_t(sizeof(uint64_t));
  if (specialised) at += 2 * c.tile.stages * uint32_t(sizeof(uint64_t));
  if (c.schedule.group_capacity > 0) {
    plan.group_table = round_up(at, uint32_t(alignof(GroupEntry)));
    at = plan.group_table + group_table_bytes(c.schedule.group_capacity);
  }
  if (has_group_maps(c)) {
    plan.group_map = round_up(at, uint32_t(sizeof(TensorMap)));
    at = plan.group_map + uint32_t(sizeof(TensorMap));
  }
  if (stages_c(c)) {
    plan.c_barriers = round_up(at, uint32_t(sizeof(uint64_t)));
    plan.staged_c = round_up(plan.c_barriers + 2 * uint32_t(sizeof(uint64_t)), 16u);
    at = plan.staged_c + c.tile.m * staged_c_pitch(c);
  }
  plan.bytes = at;
  return plan;
}

/// `c` with as many stages as fit, at most `most`; 0 stages if not even one fits.
CLEAVE_HD constexpr GemmConfig with_stages(GemmConfig c, uint32_t most, uint32_t limit = kSharedLimit) {
  c.tile.stages = most;
  while (c.tile.stages > 0 && smem_plan(c).bytes > limit) --c.tile.stages;
  return c;
}

}  // namespace cleave
