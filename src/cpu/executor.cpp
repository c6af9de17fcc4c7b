// How threads stand in for the blocks of a GPU. Workers are claimed one at a time by whatever
// threads there are, so a worker may only wait for workers claimed before it:
//
//   none, cluster   a worker is one tile (a cluster adds its slices by itself, in rank order);
//   nobody waits serial          a worker is one unit; it waits for the slice before it, which is
//   the worker before it parallel        a worker is one unit; the reductions are a second region,
//   after all of them stream_k        the owner of a tile waits for later workers, so the last
//   worker is claimed first. A contribution
//                   is always the first unit of its worker: it waits for nobody.

#include "cpu/executor.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "cleave/epilogue/epilogue.h"
#include "cpu/thread_team.h"
#include "cpu/tile_product.h"
#include "problem/problem.h"

namespace cleave::cpu {
namespace {

constexpr double kFlopsWorthAThread = 2e6;  // about what starting it costs

class Executor {
 public:
  Executor(const GemmProblem& problem, const Tiling& tiling, const GemmArguments& arguments,
           void* workspace, uint32_t threads);

  void run();

 private:
  void run_tiles();
  void run_clusters();
  void run_serial();
  void run_parallel();
  void run_stream_k();

  /// The epilogue on rows [begin, end) of a tile, as far as they lie in D.
  void finish(uint32_t m, uint32_t n, uint32_t batch, uint32_t begin, uint32_t end,
              const float* sums) const;
  void finish(const WorkUnit& unit, const float* sums) const {
    finish(unit.m, unit.n, unit.batch, 0, tiling_.tile_m, sums);
  }

  float* partial(size_t index) const { return partials_ + index * tiling_.tile_elements(); }
  std::atomic_ref<uint32_t> counter(uint32_t index) const {
    return std::atomic_ref(counters_[index]);
  }
  /// sums = first + second, element by element of a tile.
  void add(const float* first, const float* second, float* sums) const {
    std::transform(first, first + tiling_.tile_elements(), second, sums, std::plus<>());
  }

  const Tiling& tiling_;
  const Schedule& schedule_;
  const TileProduct product_;
  EpilogueKind kind_;
  EpilogueParams epilogue_;
  uint32_t threads_;
  std::unique_ptr<Scratch[]> scratch_;  // one per thread
  uint32_t* counters_;
  float* partials_;
};

int64_t line_stride(Order order, const MatrixLayout& layout) {
  return order == Order::row ? layout.stride_row : layout.stride_col;
}

Executor::Executor(const GemmProblem& problem, const Tiling& tiling, const GemmArguments& arguments,
                   void* workspace, uint32_t threads)
    : tiling_(tiling), schedule_(tiling.schedule), product_(problem, arguments, tiling) {
  const Order order = output_order(problem).value();
  kind_ = {.c = problem.c.dtype,
           .d = problem.d.dtype,
           .bias_dtype = problem.bias_dtype,
           .order = order,
           .activation = problem.activation,
           .bias = problem.bias,
           .has_c = problem.has_c};
  epilogue_ = {.alpha = arguments.alpha,
               .beta = arguments.beta,
               .d = arguments.d,
               .c = arguments.c,
               .bias = arguments.bias,
               .d_stride = line_stride(order, problem.d),
               .d_batch_stride = problem.d.stride_batch,
               .c_stride = line_stride(order, problem.c),
               .c_batch_stride = problem.c.stride_batch,
               .m = uint32_t(problem.m),
               .n = uint32_t(problem.n)};

  const double worth = flops(problem) / kFlopsWorthAThread;
  threads_ = worth < threads ? max_of(uint32_t(worth), 1u) : threads;
  threads_ = max_of(min_of(threads_, tiling.workers), 1u);
  scratch_ = std::make_unique_for_overwrite<Scratch[]>(threads_);
  counters_ = static_cast<uint32_t*>(workspace);
  partials_ =
      reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + tiling.partials_offset());
}

void Executor::run() {
  // A tile of one slice has nothing to join, and no workspace to join it in.
  const bool whole = schedule_.slices == 1 && tiling_.mode != SplitKMode::stream_k;
  switch (whole ? SplitKMode::none : tiling_.mode) {
    case SplitKMode::serial:
      return run_serial();
    case SplitKMode::parallel:
      return run_parallel();
    case SplitKMode::cluster:
      return run_clusters();
    case SplitKMode::stream_k:
      return run_stream_k();
    default:
      return run_tiles();
  }
}

void Executor::run_tiles() {
  run_in_order(threads_, tiling_.workers, [&](uint32_t thread, uint32_t worker) {
    Scratch& scratch = scratch_[thread];
    Walk<SplitKMode::none> walk(schedule_, worker, tiling_.workers);
    for (WorkUnit unit; walk.next(unit);) {
      product_(unit, scratch, scratch.sums);
      finish(unit, scratch.sums);
    }
  });
}

void Executor::run_clusters() {
  run_in_order(threads_, tiling_.workers, [&](uint32_t thread, uint32_t worker) {
    Scratch& scratch = scratch_[thread];
    WorkUnit unit;
    for (uint32_t rank = 0; rank < schedule_.slices; ++rank) {
      Walk<SplitKMode::cluster>(schedule_, worker, tiling_.workers, rank).next(unit);
      product_(unit, scratch, rank == 0 ? scratch.sums : scratch.share);
      if (rank > 0) add(scratch.sums, scratch.share, scratch.sums);
    }
    finish(unit, scratch.sums);
  });
}

void Executor::run_serial() {
  run_in_order(threads_, tiling_.workers, [&](uint32_t thread, uint32_t worker) {
    Scratch& scratch = scratch_[thread];
    Walk<SplitKMode::serial> walk(schedule_, worker, tiling_.workers);
    for (WorkUnit unit; walk.next(unit);) {
      product_(unit, scratch, scratch.sums);
      const auto turn = counter(unit.tile);
      float* const total = partial(unit.tile);
      for (uint32_t slice = turn.load(); slice != unit.slice; slice = turn.load()) turn.wait(slice);
      if (unit.slice > 0) add(total, scratch.sums, scratch.sums);
      if (unit.slice + 1 == schedule_.slices) {
        finish(unit, scratch.sums);
        turn.store(0);
      } else {
        std::copy_n(scratch.sums, tiling_.tile_elements(), total);
        turn.store(unit.slice + 1);
        turn.notify_all();
      }
    }
  });
}

void Executor::run_parallel() {
  run_in_order(threads_, tiling_.workers, [&](uint32_t thread, uint32_t worker) {
    Walk<SplitKMode::parallel> walk(schedule_, worker, tiling_.workers);
    for (WorkUnit unit; walk.next(unit);) {
      product_(unit, scratch_[thread], partial(size_t(unit.tile) * schedule_.slices + unit.slice));
    }
  });

  const uint32_t width = tiling_.tile_n;
  const Shares rows(tiling_.tile_m, schedule_.reduce_chunks);
  const uint32_t reductions = schedule_.tiles * schedule_.reduce_chunks;
  run_in_order(threads_, reductions, [&](uint32_t thread, uint32_t index) {
    const ReduceUnit unit = reduce_unit(schedule_, index);
    const uint32_t first = rows.begin(unit.chunk), last = rows.begin(unit.chunk + 1);
    float* const sums = scratch_[thread].sums;
    const float* const shares = partial(size_t(unit.tile) * schedule_.slices);
    for (uint32_t i = first * width; i < last * width; ++i) {
      float sum = shares[i];
      for (uint32_t slice = 1; slice < schedule_.slices; ++slice) {
        sum += shares[size_t(slice) * tiling_.tile_elements() + i];
      }
      sums[i] = sum;
    }
    finish(unit.m, unit.n, unit.batch, first, last, sums);
  });
}

void Executor::run_stream_k() {
  run_in_order(threads_, tiling_.workers, [&](uint32_t thread, uint32_t index) {
    Scratch& scratch = scratch_[thread];
    const uint32_t worker = tiling_.workers - 1 - index;
    Walk<SplitKMode::stream_k> walk(schedule_, worker, tiling_.workers);
    for (WorkUnit unit; walk.next(unit);) {
      if (unit.slice > 0) {
        product_(unit, scratch, partial(worker));
        counter(worker).store(1);
        counter(worker).notify_all();
        continue;
      }
      product_(unit, scratch, scratch.sums);
      for (uint32_t other = worker + 1; other <= worker + unit.contributors; ++other) {
        counter(other).wait(0);
        add(scratch.sums, partial(other), scratch.sums);
        counter(other).store(0);
      }
      finish(unit, scratch.sums);
    }
  });
}

void Executor::finish(uint32_t m, uint32_t n, uint32_t batch, uint32_t begin, uint32_t end,
                      const float* sums) const {
  const uint32_t row = m * tiling_.tile_m, column = n * tiling_.tile_n;
  const uint32_t rows = min_of(end, epilogue_.m - row);
  const uint32_t columns = min_of(tiling_.tile_n, epilogue_.n - column);
  for (uint32_t i = begin; i < rows; ++i) {
    for (uint32_t j = 0; j < columns; ++j) {
      const float value = epilogue_value(kind_, epilogue_, sums[i * tiling_.tile_n + j], row + i,
                                         column + j, batch);
      const int64_t at = int64_t(batch) * epilogue_.d_batch_stride +
                         epilogue_offset(kind_.order, epilogue_.d_stride, row + i, column + j);
      store_element(kind_.d, epilogue_.d, at, value);
    }
  }
}

}  // namespace

void execute(const GemmProblem& problem, const Tiling& tiling, const GemmArguments& arguments,
             void* workspace, uint32_t threads) {
  Executor(problem, tiling, arguments, workspace, threads).run();
}

}  // namespace cleave::cpu
