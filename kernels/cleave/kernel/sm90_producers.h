// The producers of gemm_sm90, which fill stages of shared memory: the TMA lane (tma_producer.h), others for packed
// weights, or for scales that lie side by side, and threads where TMA cannot load.
#pragma once

#include "cleave/config/dependent_launch.h"
#include "cleave/config/loads.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/conv_load/gather_loader.h"
#include "cleave/epilogue/staged_c.h"
#include "cleave/kernel/tma_producer.h"
#include "cleave/mainloop/listed_rows_loader.h"
#include "cleave/mainloop/narrow_loader.h"
#include "cleave/mainloop/scale_line_loader.h"
#include "cleave/mainloop/scale_loader.h"
#include "cleave/memory/pipeline.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/sync.h"
#include "cleave/tile/cta_coord.h"
#include "cleave/weights/loader.h"
#include "cleave/weights/scale_loader.h"

namespace cleave {

/// As produce(), for what comes by bulk copies, a packed weight or scales: each by a thread of its own, since finding
/// addresses would hold up the TMA lane. A static weight does not wait for the launch ahead.
template <class Loader, GemmConfig C>
CLEAVE_DEVICE void produce_by_bulk(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem) {
  constexpr SmemPlan kPlan = smem_plan(C);
  const uint32_t full = smem + kPlan.barriers, empty = full + C.tile.stages * 8;
  Loader loader(p);
  PipelineState<C.tile.stages> state;
  auto scheduler = cta.scheduler(p);
  if constexpr (!C.operands.static_a) wait_late<C>();
  for (WorkTile work; scheduler.next(work);) {
    loader.start(work, cta.first_row(work), cta.first_column(work));
    for (uint32_t i = 0; i < work.k_count; ++i) {
      ptx::mbarrier_wait(empty + state.stage * 8, state.parity ^ 1);
      loader.load(work.k_block(i), smem + Loader::kAt + state.stage * Loader::kStage, full + state.stage * 8);
      state.advance();
    }
  }
}

/// The same for a gathered operand of few channels, by all threads of the warpgroup.
template <GemmConfig C>
CLEAVE_DEVICE void produce_together(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem) {
  constexpr SmemPlan kPlan = smem_plan(C);
  const uint32_t full = smem + kPlan.barriers, empty = full + C.tile.stages * 8;
  GatherLoader<C> loader(p, threadIdx.x % 128);
  PipelineState<C.tile.stages> state;
  const Fragment<C> fragment(0);
  auto scheduler = cta.scheduler(p);
  wait_late<C>();
  for (WorkTile work; scheduler.next(work);) {
    const Tile<C> tile = cta.tile(p, fragment, work);
    loader.start(work, tile);
    for (uint32_t i = 0; i < work.k_count; ++i) {
      ptx::mbarrier_wait(empty + state.stage * 8, state.parity ^ 1);
      loader.load(work, tile, work.k_block(i), smem + kPlan.a + state.stage * kPlan.a_stage,
                  smem + kPlan.b + state.stage * kPlan.b_stage, full + state.stage * 8);
      state.advance();
    }
  }
  ptx::launch_dependents();
}

namespace detail {
template <GemmConfig C>
struct LoaderBeside {
  using type = ScaleLoader<C, threads_beside(C)>;
};
template <GemmConfig C>
  requires(may_load_scale_lines(C))
struct LoaderBeside<C> {
  using type = LeanScaleLoader<C, threads_beside(C)>;
};
template <GemmConfig C>
  requires(copies_narrow(C))
struct LoaderBeside<C> {
  using type = NarrowLoader<C, threads_beside(C)>;
};
template <GemmConfig C>
  requires(C.operands.listed)
struct LoaderBeside<C> {
  using type = ListedRowsLoader<C, threads_beside(C)>;
};
template <GemmConfig C>
  requires(has_weights(C))
struct LoaderBeside<C> {
  using type = WeightScaleLoader<C, threads_beside(C)>;
};
}  // namespace detail

/// A tile's C, by the threads beside the TMA lane.
template <GemmConfig C>
CLEAVE_DEVICE void load_c(const Params<C>& p, const CtaCoord<C>& cta, const WorkTile& work, StagedC<C>& staged_c) {
  if constexpr (stages_c(C)) {
    static_assert(!loads_before_meeting(C), "each role has to have waited for the launch ahead");
    staged_c.load(cta.tile(p, Fragment<C>(0), work), threadIdx.x % 128 - (128 - StagedC<C>::kProducers));
  }
}

/// C alone, where nobody copies beside the TMA lane.
template <GemmConfig C>
CLEAVE_DEVICE void produce_c(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem) {
  StagedC<C> staged_c(p, smem);
  auto scheduler = cta.scheduler(p);
  wait_late<C>();
  for (WorkTile work; scheduler.next(work);) load_c(p, cta, work, staged_c);
}

/// As produce_together(), for what threads copy beside the TMA lane, and C. Where that begins before the CTA's threads
/// `meet`, so do they; to arrive, they wait until another warp has made the barriers.
template <GemmConfig C, class Meet>
CLEAVE_DEVICE void produce_beside(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem, const Meet& meet) {
  constexpr SmemPlan kPlan = smem_plan(C);
  constexpr uint32_t kAt = C.operands.copied_a ? kPlan.a : C.operands.copied_b ? kPlan.b : kPlan.scales;
  constexpr uint32_t kStage = C.operands.copied_a   ? kPlan.a_stage
                              : C.operands.copied_b ? kPlan.b_stage
                                                    : kPlan.scale_stage;
  const uint32_t full = smem + kPlan.barriers, empty = full + C.tile.stages * 8;
  PipelineState<C.tile.stages> state;
  constexpr uint32_t kOthers = 128 - threads_beside(C);  // of the warpgroup, before these
  typename detail::LoaderBeside<C>::type loader(p, threadIdx.x % 128 - kOthers);
  const Fragment<C> fragment(0);
  [[maybe_unused]] StagedC<C> staged_c(p, smem);
  auto scheduler = cta.scheduler(p);
  wait_late<C>();
  WorkTile work;
  bool more = scheduler.next(work);
  uint32_t loaded = 0;
  if constexpr (loads_before_meeting(C)) {
    if (more) {
      loader.start(work, cta.tile(p, fragment, work));
      loaded = min_of(work.k_count, blocks_before_meeting(C));
    }
    for (uint32_t i = 0; i < loaded; ++i) loader.load(smem + kAt + i * kStage);
    meet();
    for (uint32_t i = 0; i < loaded; ++i) ptx::copy_async_arrive(full + i * 8);
    state.advance(loaded);
  }
  for (; more; more = scheduler.next(work)) {
    if (loaded == 0) loader.start(work, cta.tile(p, fragment, work));
    for (uint32_t i = loaded; i < work.k_count; ++i) {
      // Nobody waits for it here: this stage is empty once the tile is multiplied, and that is begun behind the last
      // one's epilogue.
      if (i == C.tile.stages) load_c(p, cta, work, staged_c);
      ptx::mbarrier_wait(empty + state.stage * 8, state.parity ^ 1);
      if constexpr (C.operands.listed) {
        loader.load(smem, state.stage);
      } else {
        loader.load(smem + kAt + state.stage * kStage);
      }
      ptx::copy_async_arrive(full + state.stage * 8);
      state.advance();
    }
    if (work.k_count <= C.tile.stages) load_c(p, cta, work, staged_c);
    loaded = 0;
  }
}

}  // namespace cleave
