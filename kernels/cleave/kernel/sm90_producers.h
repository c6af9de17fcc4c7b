// The producers of gemm_sm90, which fill stages of shared memory: by TMA, or by threads where TMA cannot load.
#pragma once

#include "cleave/config/dependent_launch.h"
#include "cleave/config/loads.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/conv_load/gather_loader.h"
#include "cleave/conv_load/im2col_loader.h"
#include "cleave/mainloop/listed_rows_loader.h"
#include "cleave/mainloop/narrow_loader.h"
#include "cleave/mainloop/scale_loader.h"
#include "cleave/mainloop/tma_loader.h"
#include "cleave/memory/pipeline.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/sync.h"
#include "cleave/tile/cta_coord.h"
#include "cleave/weights/loader.h"
#include "cleave/weights/scale_loader.h"

namespace cleave {

template <GemmConfig C>
using Loader = Either<C.conv.kind == Conv::none, MatrixLoader<C>, Im2colLoader<C>>;

template <GemmConfig C>
CLEAVE_DEVICE void wait_late() {
  if constexpr (waits_late(C)) ptx::grid_dependency_wait();
}

/// Loads the first work tile's k blocks, as many as there are stages: static operands while the launch ahead still
/// runs, the others once it has ended. Returns the number of k blocks.
template <GemmConfig C>
CLEAVE_DEVICE uint32_t load_around_wait(const Loader<C>& loader, const WorkTile& work, uint32_t smem) {
  constexpr SmemPlan kPlan = smem_plan(C);
  constexpr bool kA = C.operands.static_a, kB = C.operands.static_b;
  const uint32_t blocks = min_of(work.k_count, C.tile.stages);
  for (uint32_t i = 0; i < blocks; ++i) {
    const uint32_t barrier = smem + kPlan.barriers + i * 8;
    ptx::mbarrier_arrive_expect(barrier, tma_bytes<C>());
    loader.template load<kA, kB>(work, work.k_block(i), smem + kPlan.a + i * kPlan.a_stage,
                                 smem + kPlan.b + i * kPlan.b_stage, barrier);
  }
  ptx::grid_dependency_wait();
  for (uint32_t i = 0; i < blocks; ++i) {
    loader.template load<!kA, !kB>(work, work.k_block(i), smem + kPlan.a + i * kPlan.a_stage,
                                   smem + kPlan.b + i * kPlan.b_stage, smem + kPlan.barriers + i * 8);
  }
  return blocks;
}

/// Asks for the k blocks of the CTA's work tiles, one after the other, each as soon as its stage has been handed back.
template <GemmConfig C>
CLEAVE_DEVICE void produce(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem) {
  constexpr SmemPlan kPlan = smem_plan(C);
  const uint32_t full = smem + kPlan.barriers, empty = full + C.tile.stages * 8;
  Loader<C> loader(p, {cta.share_rank, cta.rank - cta.share_rank});
  PipelineState<C.tile.stages> state;
  const auto load_block = [&](const WorkTile& work, uint32_t i) {
    ptx::mbarrier_wait(empty + state.stage * 8, state.parity ^ 1);
    const uint32_t barrier = full + state.stage * 8;
    ptx::mbarrier_arrive_expect(barrier, tma_bytes<C>());
    loader.load(work, work.k_block(i), smem + kPlan.a + state.stage * kPlan.a_stage,
                smem + kPlan.b + state.stage * kPlan.b_stage, barrier);
    state.advance();
  };
  const auto load = [&](const WorkTile& work, uint32_t first) {
    if constexpr (unrolls_loads<C>()) {
      for (uint32_t i = first; i < work.k_count; ++i) load_block(work, i);
    } else {
      CLEAVE_NO_UNROLL
      for (uint32_t i = first; i < work.k_count; ++i) load_block(work, i);
    }
  };
  auto scheduler = cta.scheduler(p.schedule);
  bool waits = waits_late(C);
  for (WorkTile work; scheduler.next(work);) {
    if constexpr (has_group_maps(C)) loader.find_maps(work, smem + kPlan.group_map);
    loader.start(work, cta.first_row(work), cta.first_column(work));
    uint32_t loaded = 0;
    if constexpr (loads_early(C)) {
      if (waits) loaded = load_around_wait<C>(loader, work, smem);
      state.advance(loaded);
    } else if (waits) {
      ptx::grid_dependency_wait();
    }
    waits = false;
    load(work, loaded);
  }
  // No earlier, or the next launch would take bandwidth from these loads (docs/notes/2026-11-choice.md). Over ranks
  // later: what that launch would fill is what other kernels have while this one waits (split_k/across.h).
  if constexpr (C.across.ranks == 1) ptx::launch_dependents();
}

/// The same for a packed weight, or its scales, each by a thread of its own, since computing addresses would hold up
/// the TMA lane. A static weight does not wait for the launch ahead.
template <class Loader, GemmConfig C>
CLEAVE_DEVICE void produce_weights(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem) {
  constexpr SmemPlan kPlan = smem_plan(C);
  const uint32_t full = smem + kPlan.barriers, empty = full + C.tile.stages * 8;
  Loader loader(p);
  PipelineState<C.tile.stages> state;
  auto scheduler = cta.scheduler(p.schedule);
  if constexpr (!C.operands.static_a) wait_late<C>();
  for (WorkTile work; scheduler.next(work);) {
    loader.start(work, cta.first_row(work));
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
  auto scheduler = cta.scheduler(p.schedule);
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

/// The same for what threads copy beside the TMA lane.
template <GemmConfig C>
CLEAVE_DEVICE void produce_beside(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem) {
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
  auto scheduler = cta.scheduler(p.schedule);
  wait_late<C>();
  for (WorkTile work; scheduler.next(work);) {
    loader.start(work, cta.tile(p, fragment, work));
    for (uint32_t i = 0; i < work.k_count; ++i) {
      ptx::mbarrier_wait(empty + state.stage * 8, state.parity ^ 1);
      if constexpr (C.operands.listed) {
        loader.load(smem, state.stage);
      } else {
        loader.load(smem + kAt + state.stage * kStage);
      }
      ptx::copy_async_arrive(full + state.stage * 8);
      state.advance();
    }
  }
}

/// Whether this thread, of the warp whose first thread is `first`, issues its loads. With a single consumer, a k block
/// is so small that issuing its loads takes longer than multiplying it. An elected lane issues them in a fifth of the
/// clocks; other kernels gain nothing by it (docs/notes/2026-11-choice.md). With packed weights it is the other way
/// round (docs/notes/2026-11-four-bit-weights.md).
template <GemmConfig C>
CLEAVE_DEVICE bool asks_for_loads(uint32_t first) {
  constexpr bool kProduct = C.conv.kind == Conv::none && C.schedule.grouping == Grouping::none;
  if constexpr (has_weights(C) ? C.warps.consumers > 1 : C.warps.consumers == 1 && kProduct) {
    return __shfl_sync(0xffffffffu, threadIdx.x, 0) == first && ptx::elect_lane();
  } else {
    return threadIdx.x == first;
  }
}

}  // namespace cleave
