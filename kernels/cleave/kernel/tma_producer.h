// The lane of gemm_sm90 that asks TMA for the k blocks of the CTA's work tiles.
#pragma once

#include "cleave/config/dependent_launch.h"
#include "cleave/config/loads.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv_load/im2col_loader.h"
#include "cleave/mainloop/tma_loader.h"
#include "cleave/memory/pipeline.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/sync.h"
#include "cleave/tile/cta_coord.h"

namespace cleave {

template <GemmConfig C>
using Loader = Either<C.conv.kind == Conv::none, MatrixLoader<C>, Im2colLoader<C>>;

template <GemmConfig C>
CLEAVE_DEVICE void wait_late() {
  if constexpr (waits_late(C)) ptx::grid_dependency_wait();
}

/// What the lane has at hand: the CTA's work tiles, and the pipeline's next stage.
template <GemmConfig C>
struct TmaProducer {
  static constexpr SmemPlan kPlan = smem_plan(C);

  const CtaCoord<C>& cta;
  uint32_t smem;
  uint32_t full = smem + kPlan.barriers, empty = full + C.tile.stages * 8;
  Loader<C> loader;
  CtaScheduler<C> scheduler;
  PipelineState<C.tile.stages> state;

  CLEAVE_DEVICE TmaProducer(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem)
      : cta(cta), smem(smem), loader(p, {cta.share_rank, cta.rank - cta.share_rank}), scheduler(cta.scheduler(p)) {}

  /// The next work tile, if there is one.
  CLEAVE_DEVICE bool next(WorkTile& work) {
    if (!scheduler.next(work)) return false;
    if constexpr (has_group_maps(C)) loader.find_maps(work, smem + kPlan.group_map);
    loader.start(work, cta.first_row(work), cta.first_column(work));
    return true;
  }

  /// The first work tile's k blocks, `most` of them: static operands while the launch ahead still runs, the others once
  /// it has ended. Returns the number of k blocks.
  CLEAVE_DEVICE uint32_t load_around_wait(const WorkTile& work, uint32_t most) {
    constexpr bool kA = C.operands.static_a, kB = C.operands.static_b;
    const uint32_t blocks = min_of(work.k_count, most);
    for (uint32_t i = 0; i < blocks; ++i) {
      ptx::mbarrier_arrive_expect(full + i * 8, tma_bytes<C>());
      load_to<kA, kB>(work, i, i);
    }
    ptx::grid_dependency_wait();
    for (uint32_t i = 0; i < blocks; ++i) load_to<!kA, !kB>(work, i, i);
    state.advance(blocks);
    return blocks;
  }

  /// The k blocks from `first` on, each as soon as its stage has been handed back.
  CLEAVE_DEVICE void load(const WorkTile& work, uint32_t first) {
    if constexpr (unrolls_loads<C>()) {
      for (uint32_t i = first; i < work.k_count; ++i) load_block(work, i);
    } else {
      CLEAVE_NO_UNROLL
      for (uint32_t i = first; i < work.k_count; ++i) load_block(work, i);
    }
  }

 private:
  CLEAVE_DEVICE void load_block(const WorkTile& work, uint32_t i) {
    ptx::mbarrier_wait(empty + state.stage * 8, state.parity ^ 1);
    ptx::mbarrier_arrive_expect(full + state.stage * 8, tma_bytes<C>());
    load_to(work, i, state.stage);
    state.advance();
  }

  template <bool OfA = true, bool OfB = true>
  CLEAVE_DEVICE void load_to(const WorkTile& work, uint32_t i, uint32_t stage) {
    const uint32_t a = smem + kPlan.a + stage * kPlan.a_stage, b = smem + kPlan.b + stage * kPlan.b_stage;
    if constexpr (OfA && OfB) {
      loader.load(work, work.k_block(i), a, b, full + stage * 8);
    } else {  // of matrices alone
      loader.template load<OfA, OfB>(work, work.k_block(i), a, b, full + stage * 8);
    }
  }
};

/// Launches that wait for this one may begin, once its last loads are on their way. No earlier, or they would take
/// bandwidth from these loads (docs/notes/2026-11-choice.md). Over ranks later: what that launch would fill is what
/// other kernels have while this one waits (split_k/across.h).
template <GemmConfig C>
CLEAVE_DEVICE void launch_dependents() {
  if constexpr (C.across.ranks == 1) ptx::launch_dependents();
}

/// Asks for all k blocks, by one lane.
template <GemmConfig C>
CLEAVE_DEVICE void produce(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem) {
  TmaProducer<C> producer(p, cta, smem);
  bool waits = waits_late(C);
  for (WorkTile work; producer.next(work);) {
    uint32_t loaded = 0;
    if constexpr (loads_early(C)) {
      if (waits) loaded = producer.load_around_wait(work, C.tile.stages);
    } else if (waits) {
      ptx::grid_dependency_wait();
    }
    waits = false;
    producer.load(work, loaded);
  }
  launch_dependents<C>();
}

/// The same by a whole warp, of which a lane begins before the CTA's threads `meet`: it makes the barriers of full
/// stages, to which `loaders` arrive, and asks for the first blocks.
template <GemmConfig C, class Meet>
CLEAVE_DEVICE void produce_before_meeting(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem, uint32_t loaders,
                                          const Meet& meet) {
  TmaProducer<C> producer(p, cta, smem);
  WorkTile work;
  uint32_t loaded = 0;
  bool more = false;
  if (ptx::elect_lane()) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.tile.stages; ++i) ptx::mbarrier_init(producer.full + i * 8, loaders);
    ptx::fence_mbarrier_init();
    more = producer.next(work);
    if (more) loaded = producer.load_around_wait(work, blocks_before_meeting(C));
  }
  __syncwarp();
  meet();
  if (!ptx::elect_lane()) return;
  for (; more; more = producer.next(work)) {
    producer.load(work, loaded);
    loaded = 0;
  }
  launch_dependents<C>();
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
