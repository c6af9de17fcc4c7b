// How threads stand in for the blocks of a GPU. Workers are claimed one at a time by whatever
// threads there are, so a worker may only wait for workers claimed before it:
//
// - none, cluster: a worker is one tile (a cluster's, with all slices, added in rank order). Nobody
//   waits.
// - serial: a worker is one unit. It waits for the slice before it, which is an earlier worker.
// - parallel: a worker is one unit. The reductions are a second region, after all of them.
// - stream_k: the owner of a tile waits for later workers, so the last worker is claimed first. A
//   contribution is always the first unit of its worker: it waits for nobody.

#include "cpu/executor.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <type_traits>

#include "cleave/epilogue/epilogue.h"
#include "cpu/for_type.h"
#include "cpu/thread_team.h"
#include "cpu/tile_product.h"
#include "problem/problem.h"

namespace cleave::cpu {
namespace {

constexpr double kFlopsWorthAThread = 2e6;  // about what starting it costs

/// |x| as an integer: the order is that of the numbers, and a NaN is larger than all of them.
int32_t magnitude(float x) {
  return int32_t(float_bits(x) & 0x7fffffffu);
}

/// `Sum`: float, or int32_t where the problem's sums are integers.
template <class Sum>
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
              const Sum* sums) const;
  void finish(const WorkUnit& unit, const Sum* sums) const {
    finish(unit.m, unit.n, unit.batch, 0, tiling_.tile_m, sums);
  }

  Sum* partial(size_t index) const { return partials_ + index * tiling_.tile_elements(); }
  std::atomic_ref<uint32_t> counter(uint32_t index) const {
    return std::atomic_ref(counters_[index]);
  }
  /// sums = first + second, element by element of a tile.
  void add_tiles(const Sum* first, const Sum* second, Sum* sums) const {
    std::transform(first, first + tiling_.tile_elements(), second, sums,
                   [](Sum x, Sum y) { return add(x, y); });
  }
  /// Stores `count` values of a row of D.
  template <class Value>
  void store_line(const Value* values, uint32_t count, uint32_t row, uint32_t column,
                  uint32_t batch) const;
  void raise_amax(const float* values, uint32_t count) const;

  const Tiling& tiling_;
  const Schedule& schedule_;
  const TileProduct<Sum> product_;
  EpilogueKind kind_;
  EpilogueParams epilogue_;
  uint32_t threads_;
  std::unique_ptr<Scratch<Sum>[]> scratch_;  // one per thread
  uint32_t* counters_;
  Sum* partials_;
};

int64_t line_stride(Order order, const MatrixLayout& layout) {
  return order == Order::row ? layout.stride_row : layout.stride_col;
}

template <class Sum>
Executor<Sum>::Executor(const GemmProblem& problem, const Tiling& tiling,
                        const GemmArguments& arguments, void* workspace, uint32_t threads)
    : tiling_(tiling), schedule_(tiling.schedule), product_(problem, arguments, tiling) {
  const Order order = output_order(problem).value();
  kind_ = {.c = problem.c.dtype,
           .d = problem.d.dtype,
           .bias_dtype = problem.bias_dtype,
           .order = order,
           .activation = problem.activation,
           .bias = problem.bias,
           .has_c = problem.has_c,
           .scaled = problem.scale_a.kind == Scaling::vector,
           .has_zero = problem.has_zero,
           .has_scale_d = problem.has_scale_d};
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
               .n = uint32_t(problem.n),
               .scale_a = arguments.scale_a,
               .scale_b = arguments.scale_b,
               .scale_a_stride = problem.scale_a.stride_row,
               .scale_a_batch_stride = problem.scale_a.stride_batch,
               .scale_b_stride = problem.scale_b.stride_row,
               .scale_b_batch_stride = problem.scale_b.stride_batch,
               .zero_a = arguments.zero_a,
               .zero_b = arguments.zero_b,
               .scale_d = arguments.scale_d,
               .amax = problem.has_amax ? arguments.amax : nullptr};

  const double worth = flops(problem) / kFlopsWorthAThread;
  threads_ = worth < threads ? max_of(uint32_t(worth), 1u) : threads;
  threads_ = max_of(min_of(threads_, tiling.workers), 1u);
  scratch_ = std::make_unique_for_overwrite<Scratch<Sum>[]>(threads_);
  counters_ = static_cast<uint32_t*>(workspace);
  partials_ = reinterpret_cast<Sum*>(static_cast<std::byte*>(workspace) + tiling.partials_offset());
}

template <class Sum>
void Executor<Sum>::run() {
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

template <class Sum>
void Executor<Sum>::run_tiles() {
  run_in_order(threads_, tiling_.workers, [&](uint32_t thread, uint32_t worker) {
    Scratch<Sum>& scratch = scratch_[thread];
    Walk<SplitKMode::none> walk(schedule_, worker, tiling_.workers);
    for (WorkUnit unit; walk.next(unit);) {
      product_(unit, scratch, scratch.sums);
      finish(unit, scratch.sums);
    }
  });
}

template <class Sum>
void Executor<Sum>::run_clusters() {
  run_in_order(threads_, tiling_.workers, [&](uint32_t thread, uint32_t worker) {
    Scratch<Sum>& scratch = scratch_[thread];
    WorkUnit unit;
    for (uint32_t rank = 0; rank < schedule_.slices; ++rank) {
      Walk<SplitKMode::cluster>(schedule_, worker, tiling_.workers, rank).next(unit);
      product_(unit, scratch, rank == 0 ? scratch.sums : scratch.share);
      if (rank > 0) add_tiles(scratch.sums, scratch.share, scratch.sums);
    }
    finish(unit, scratch.sums);
  });
}

template <class Sum>
void Executor<Sum>::run_serial() {
  run_in_order(threads_, tiling_.workers, [&](uint32_t thread, uint32_t worker) {
    Scratch<Sum>& scratch = scratch_[thread];
    Walk<SplitKMode::serial> walk(schedule_, worker, tiling_.workers);
    for (WorkUnit unit; walk.next(unit);) {
      product_(unit, scratch, scratch.sums);
      const auto turn = counter(unit.tile);
      Sum* const total = partial(unit.tile);
      for (uint32_t slice = turn.load(); slice != unit.slice; slice = turn.load()) turn.wait(slice);
      if (unit.slice > 0) add_tiles(total, scratch.sums, scratch.sums);
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

template <class Sum>
void Executor<Sum>::run_parallel() {
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
    Sum* const sums = scratch_[thread].sums;
    const Sum* const shares = partial(size_t(unit.tile) * schedule_.slices);
    for (uint32_t i = first * width; i < last * width; ++i) {
      Sum sum = shares[i];
      for (uint32_t slice = 1; slice < schedule_.slices; ++slice) {
        sum = add(sum, shares[size_t(slice) * tiling_.tile_elements() + i]);
      }
      sums[i] = sum;
    }
    finish(unit.m, unit.n, unit.batch, first, last, sums);
  });
}

template <class Sum>
void Executor<Sum>::run_stream_k() {
  run_in_order(threads_, tiling_.workers, [&](uint32_t thread, uint32_t index) {
    Scratch<Sum>& scratch = scratch_[thread];
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
        add_tiles(scratch.sums, partial(other), scratch.sums);
        counter(other).store(0);
      }
      finish(unit, scratch.sums);
    }
  });
}

template <class Sum>
void Executor<Sum>::finish(uint32_t m, uint32_t n, uint32_t batch, uint32_t begin, uint32_t end,
                           const Sum* sums) const {
  const uint32_t row = m * tiling_.tile_m, column = n * tiling_.tile_n;
  const uint32_t rows = min_of(end, epilogue_.m - row);
  const uint32_t columns = min_of(tiling_.tile_n, epilogue_.n - column);
  EpilogueLine column_lines[kMaxTileN];
  for (uint32_t j = 0; j < columns; ++j) {
    column_lines[j] = epilogue_column(kind_, epilogue_, column + j, batch);
  }
  for (uint32_t i = begin; i < rows; ++i) {
    const Sum* const line = sums + i * tiling_.tile_n;
    const EpilogueLine row_line = epilogue_row(kind_, epilogue_, row + i, batch);
    if constexpr (std::is_same_v<Sum, int32_t>) {
      if (kind_.d == DType::i32) {
        int32_t integers[kMaxTileN];
        for (uint32_t j = 0; j < columns; ++j) {
          integers[j] = epilogue_integer(kind_, line[j], row_line, column_lines[j]);
        }
        store_line(integers, columns, row + i, column, batch);
        continue;
      }
    }
    float values[kMaxTileN];
    for (uint32_t j = 0; j < columns; ++j) {
      values[j] = epilogue_value(kind_, epilogue_, line[j], row_line, column_lines[j], row + i,
                                 column + j, batch);
    }
    if (epilogue_.amax != nullptr) raise_amax(values, columns);
    if (kind_.has_scale_d) {
      const float factor = stored_factor(kind_, epilogue_);
      for (uint32_t j = 0; j < columns; ++j) values[j] *= factor;
    }
    store_line(values, columns, row + i, column, batch);
  }
}

template <class Sum>
template <class Value>
void Executor<Sum>::store_line(const Value* values, uint32_t count, uint32_t row, uint32_t column,
                               uint32_t batch) const {
  const int64_t first = int64_t(batch) * epilogue_.d_batch_stride +
                        epilogue_offset(kind_.order, epilogue_.d_stride, row, column);
  const int64_t step = epilogue_offset(kind_.order, epilogue_.d_stride, 0, 1);
  for_type(kind_.d, [&, d = epilogue_.d]<DType type>() {
    for (uint32_t j = 0; j < count; ++j) store_element(type, d, first + j * step, values[j]);
  });
}

template <class Sum>
void Executor<Sum>::raise_amax(const float* values, uint32_t count) const {
  int32_t largest = 0;
  for (uint32_t j = 0; j < count; ++j) largest = max_of(largest, magnitude(values[j]));
  const std::atomic_ref amax(*epilogue_.amax);
  float seen = amax.load();
  while (int32_t(float_bits(seen)) < largest &&
         !amax.compare_exchange_weak(seen, bits_float(uint32_t(largest)))) {
  }
}

}  // namespace

void execute(const GemmProblem& problem, const Tiling& tiling, const GemmArguments& arguments,
             void* workspace, uint32_t threads) {
  if (sums_are_integers(problem)) {
    Executor<int32_t>(problem, tiling, arguments, workspace, threads).run();
  } else {
    Executor<float>(problem, tiling, arguments, workspace, threads).run();
  }
}

}  // namespace cleave::cpu
