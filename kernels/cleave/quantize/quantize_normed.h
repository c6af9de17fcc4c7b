// Normalises rows and quantises what comes of them, in one pass: adds the residual and writes the sum, finds the row's
// statistics, then its scale or those of its pieces of 128.
//
// Roles      a team owns a row: some lanes of a warp, or a CTA for long rows
// Timeline   fetch weight and bias into L2 while the launch before ends; load what registers hold of x and the residual
//            (all loads under way together), write the sum; reduce; normalise; reduce; convert, store. What registers
//            do not hold of a long row is read again, from L2
// Order      from the last row to the first: what was written last is what L2 still has
#pragma once

#include "cleave/ptx/load_global.h"
#include "cleave/ptx/sync.h"
#include "cleave/quantize/row_statistics.h"

namespace cleave {

/// Weight and bias are not read before the launches ahead are done, one of which may write them. L2 is coherent: what
/// is fetched early into it is never stale.
template <QuantizeConfig C>
CLEAVE_DEVICE void fetch_weight(const QuantizeParams& p) {
  constexpr uint32_t kLine = 128;
  const uint32_t size = uint32_t(p.cols) * size_of(C.weight);
  for (uint32_t at = threadIdx.x * kLine; at < size; at += blockDim.x * kLine) {
    if constexpr (C.has_weight) ptx::prefetch_l2(static_cast<const char*>(p.weight) + at);
    if constexpr (C.has_bias) ptx::prefetch_l2(static_cast<const char*>(p.bias) + at);
  }
}

/// The row of a team, and the part of it that a thread holds.
template <QuantizeConfig C>
struct NormedRow {
  using Values = float[C.width];
  using Weight = Elements<C.weight, C.width>;
  using Residual = Elements<C.residual, C.width>;
  static constexpr uint32_t kLanes = RowTeam<C>::kWholeCta ? 32 : C.lanes;  // of a warp
  /// Accesses of a thread that a warp has side by side: as many as let it have all of a piece of 128.
  static constexpr uint32_t kRun = C.blocks ? min_of(C.hold, max_of(kScaleBlock / (32 * C.width), 1u)) : 1;
  static constexpr uint32_t kPieceLanes = min_of(kLanes, kScaleBlock / C.width);

  const QuantizeParams& p;
  const RowTeam<C> team;
  RowGroup row;
  Values held[C.hold] = {};
  Weight weight[C.hold], bias[C.hold];  // of what is held

  CLEAVE_DEVICE explicit NormedRow(const QuantizeParams& params) : p(params) {
    const uint32_t number = team.group(0);
    row = number < p.groups ? row_group(p, p.groups - 1 - number) : RowGroup{};
    if constexpr (C.summed) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < C.hold; ++i) {
        if (!exists(i)) continue;
        load_again(col(i), held[i]);
        load_weight(col(i), weight[i], bias[i]);
      }
      return;
    }
    // All loads, also that of the weight, before the first store and the first barrier, which they would wait for.
    Summands summands[C.hold];
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.hold; ++i) {
      if (!exists(i)) continue;
      summands[i] = load_summands(col(i));
      load_weight(col(i), weight[i], bias[i]);
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.hold; ++i) {
      if (exists(i)) add(summands[i], col(i), held[i]);
    }
    if constexpr (!C.whole && C.has_residual) {
      for (uint32_t i = C.hold; remains(i); ++i) {
        Values values;
        if (exists(i)) add(load_summands(col(i)), col(i), values);
      }
    }
  }

  CLEAVE_DEVICE uint32_t col(uint32_t i) const {
    const uint32_t warp = team.rank / 32 * 32, lane = team.rank % 32;
    return ((i / kRun * team.size + warp) * kRun + i % kRun * 32 + lane) * C.width;
  }
  CLEAVE_DEVICE bool exists(uint32_t i) const { return col(i) < row.size; }
  /// Whether any thread of the team has an access `i` or a later one.
  CLEAVE_DEVICE bool remains(uint32_t i) const { return i / kRun * team.size * kRun * C.width < row.size; }

  struct Summands {
    Elements<C.x, C.width> x;
    Residual residual;
  };
  CLEAVE_DEVICE Summands load_summands(uint32_t col) const {
    Summands summands;
    summands.x = summands.x.load(p.x, row.row * p.x_stride + col);
    if constexpr (C.has_residual)
      summands.residual = summands.residual.load(p.residual, row.row * p.residual_stride + col);
    return summands;
  }

  /// x, or x + residual, which is written.
  CLEAVE_DEVICE void add(const Summands& summands, uint32_t col, Values& values) const {
    unpack(summands.x, values);
    if constexpr (C.has_residual) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < C.width; ++i) values[i] += summands.residual[i];
      const Residual sum = Residual::of(values);
      sum.store(p.residual_out, row.row * p.residual_out_stride + col);
      unpack(sum, values);
    }
  }

  /// The same once more, of what this thread has loaded before.
  CLEAVE_DEVICE void load_again(uint32_t col, Values& values) const { unpack(load_summed<C>(p, row.row, col), values); }

  template <class Elements>
  CLEAVE_DEVICE static void unpack(const Elements& elements, Values& values) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.width; ++i) values[i] = elements[i];
  }

  CLEAVE_DEVICE void load_weight(uint32_t col, Weight& weight, Weight& bias) const {
    if constexpr (C.has_weight) weight = Weight::load(p.weight, col);
    if constexpr (C.has_bias) bias = Weight::load(p.bias, col);
  }

  /// use(values, whether they exist) for each access, before it is normalised; else they are zeros.
  template <class Use>
  CLEAVE_DEVICE void for_each_access(const Use& use) const {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.hold; ++i) use(held[i], exists(i));
    if constexpr (!C.whole) {
      for (uint32_t i = C.hold; remains(i); ++i) {
        Values values = {};
        if (exists(i)) load_again(col(i), values);
        use(values, exists(i));
      }
    }
  }

  CLEAVE_DEVICE void normalize(const RowStatistics& statistics, const Weight& weight, const Weight& bias,
                               Values& values) const {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.width; ++i) {
      values[i] = normalized(statistics, values[i], C.has_weight ? weight[i] + p.weight_offset : 1.0f,
                             C.has_bias ? bias[i] : 0.0f);
    }
  }

  CLEAVE_DEVICE void normalize_held(const RowStatistics& statistics) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.hold; ++i) {
      if (exists(i)) normalize(statistics, weight[i], bias[i], held[i]);
    }
  }

  CLEAVE_DEVICE void store(const Quantizer& quantizer, uint32_t col, const Values& values) const {
    if constexpr (C.has_smooth) {
      Values smoothed;
      smooth(col, values, smoothed);
      store_values<C>(p, row.row, col, quantizer, smoothed);
    } else {
      store_values<C>(p, row.row, col, quantizer, values);
    }
    if constexpr (C.has_normed) Elements<C.x, C.width>::of(values).store(p.normed, row.row * p.normed_stride + col);
  }

  /// visit(accesses from i on, normalised) for each run of them.
  template <class Visit>
  CLEAVE_DEVICE void for_each_run(const RowStatistics& statistics, const Visit& visit) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.hold; i += kRun) visit(i, &held[i]);
    if constexpr (!C.whole) {
      for (uint32_t i = C.hold; remains(i); i += kRun) {
        Values values[kRun] = {};
        CLEAVE_UNROLL
        for (uint32_t j = 0; j < kRun; ++j) {
          if (!exists(i + j)) continue;
          Weight weight, bias;
          load_again(col(i + j), values[j]);
          load_weight(col(i + j), weight, bias);
          normalize(statistics, weight, bias, values[j]);
        }
        visit(i, values);
      }
    }
  }

  CLEAVE_DEVICE void store_run(const Quantizer& quantizer, uint32_t first, Values* values) const {
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kRun; ++j) {
      if (exists(first + j)) store(quantizer, col(first + j), values[j]);
    }
  }

  CLEAVE_DEVICE void add_run(Reach& reach, uint32_t first, const Values* values) const {
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kRun; ++j) {
      if constexpr (C.has_smooth) {
        if (!exists(first + j)) continue;
        Values smoothed;
        smooth(col(first + j), values[j], smoothed);
        add_values<C>(reach, smoothed);
      } else {
        add_values<C>(reach, values[j]);
      }
    }
  }

  /// A copy, since the norm itself may be asked for, too.
  CLEAVE_DEVICE void smooth(uint32_t col, const Values& values, Values& smoothed) const {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.width; ++i) smoothed[i] = values[i];
    smooth_values<C>(p, col, smoothed);
  }
};

/// A scale for each 128 neighbours.
template <QuantizeConfig C>
CLEAVE_DEVICE void store_pieces(const QuantizeParams& p, NormedRow<C>& row, const RowStatistics& statistics) {
  using Row = NormedRow<C>;
  row.for_each_run(statistics, [&](uint32_t i, typename Row::Values* values) {
    RowGroup piece = row.row;
    piece.index = row.col(i) / kScaleBlock;
    Quantizer quantizer;
    if constexpr (C.given_scale) {
      if (row.exists(i)) quantizer = given_quantizer<C>(p, piece);
    } else {
      Reach reach;
      row.add_run(reach, i, values);
      quantizer = quantizer_for(C.q, true, C.ue8m0, reduce_lanes<Row::kPieceLanes>(true, reach));
      if (row.exists(i) && threadIdx.x % Row::kPieceLanes == 0) write_quantizer<C>(p, piece, quantizer);
    }
    row.store_run(quantizer, i, values);
  });
}

/// One scale for the row.
template <QuantizeConfig C>
CLEAVE_DEVICE void store_row(const QuantizeParams& p, NormedRow<C>& row, const RowStatistics& statistics) {
  using Row = NormedRow<C>;
  const bool is_row = row.team.group(0) < p.groups;
  Quantizer quantizer;
  if constexpr (C.given_scale) {
    if (is_row) quantizer = given_quantizer<C>(p, row.row);
  } else {
    Reach reach;
    row.for_each_run(statistics,
                     [&](uint32_t i, const typename Row::Values* values) { row.add_run(reach, i, values); });
    quantizer = quantizer_for(C.q, C.symmetric, C.ue8m0, row.team.reduce(reach));
    if (is_row && row.team.rank == 0) write_quantizer<C>(p, row.row, quantizer);
  }
  row.for_each_run(statistics, [&](uint32_t i, typename Row::Values* values) { row.store_run(quantizer, i, values); });
}

template <QuantizeConfig C>
CLEAVE_DEVICE void quantize_normed(const QuantizeParams& p) {
  static_assert(C.norm != Norm::none && C.batch == 1);
  static_assert(C.hold * C.width <= kHeldNormedValues, "more would spill");
  static_assert(C.whole || C.lanes == 0, "a warp holds its rows");
  static_assert(!C.blocks || C.lanes != 0 || 32 * C.hold * C.width >= kScaleBlock, "128 neighbours are a warp's");
  ptx::launch_dependents();
  fetch_weight<C>(p);
  ptx::grid_dependency_wait();

  NormedRow<C> row(p);
  const RowStatistics statistics = find_statistics<C>(p, row);
  row.normalize_held(statistics);
  if constexpr (C.blocks) {
    store_pieces<C>(p, row, statistics);
  } else {
    store_row<C>(p, row, statistics);
  }
}

}  // namespace cleave
