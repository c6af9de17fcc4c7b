#include "cpu/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cleave/core/math.h"
#include "cleave/names.h"
#include "problem/problem.h"

namespace cleave::cpu {
namespace {

// One nominal core, per microsecond; good to a factor of two.
constexpr double kFlops = 60e3;
constexpr double kBytes = 10e3;
constexpr double kThreadStart = 15;  // microseconds

constexpr uint32_t kMinBlocksPerSlice = 4;  // fewer, and storing the partial sums costs more than it gains
constexpr uint32_t kMaxClusterSlices = 16;

double rounds(double clusters, uint32_t threads) {
  return std::ceil(clusters / threads);
}

double predicted_us(const GemmProblem& p, const Tiling& t, uint32_t threads) {
  const double tiles = t.tiles, slices = t.schedule.slices;
  const double tile_us = 2.0 * t.tile_elements() * t.depth / kFlops;
  const double partials_us = 2.0 * double(t.partials) * t.tile_elements() * kSumSize / kBytes;

  double us = minimum_bytes(p) / (kBytes * threads);
  switch (t.mode) {
    case SplitKMode::serial:  // the additions of a tile take turns
      us = std::max(us, rounds(tiles * slices, threads) * tile_us / slices);
      return us + slices * partials_us / std::clamp(tiles, 1.0, double(threads)) + kThreadStart;
    case SplitKMode::parallel:
      us = std::max(us, rounds(tiles * slices, threads) * tile_us / slices);
      return us + partials_us / threads + 2 * kThreadStart;
    case SplitKMode::stream_k:
      if (t.partials > 0) {
        us = std::max(us, rounds(kStreamClusters, threads) * tiles * tile_us / kStreamClusters);
        return us + partials_us + kThreadStart;
      }
      [[fallthrough]];  // it cuts no tile
    default:
      return std::max(us, rounds(tiles, threads) * tile_us) + kThreadStart;
  }
}

std::vector<SplitKMode> modes_to_weigh(const GemmProblem& p) {
  if (p.split_k_mode != SplitKMode::automatic) return {p.split_k_mode};
  if (p.split_k_slices == 1) return {SplitKMode::none};
  if (p.split_k_slices > 1) return {SplitKMode::serial, SplitKMode::parallel};
  if (p.deterministic == Determinism::k_order && !sums_are_integers(p)) return {SplitKMode::none};
  if (is_batch_invariant(p)) return {SplitKMode::none, SplitKMode::parallel};
  return {SplitKMode::none, SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k};
}

std::vector<uint32_t> slices_to_weigh(const GemmProblem& p, SplitKMode mode) {
  if (mode == SplitKMode::none || mode == SplitKMode::stream_k) return {1};
  if (p.split_k_slices > 0) {  // at least an element of K each
    return {uint32_t(min_of<int64_t>(p.split_k_slices, max_of<int64_t>(p.k, 1)))};
  }
  const bool weighs_none = p.split_k_mode == SplitKMode::automatic;
  const Tiling whole = make_tiling(p, SplitKMode::none, 1);
  uint32_t most = min_of(2 * kNominalThreads / max_of(whole.tiles, 1u), whole.depth / (kMaxTileK * kMinBlocksPerSlice));
  if (mode == SplitKMode::cluster) most = min_of(most, kMaxClusterSlices);
  std::vector<uint32_t> slices;
  for (uint32_t count = weighs_none ? 2 : 1; count <= max_of(most, weighs_none ? 0u : 1u); count *= 2) {
    slices.push_back(count);
  }
  return slices;
}

std::string describe(SplitKMode mode, uint32_t slices) {
  return slices > 1 ? fmt::format("{} x {}", to_string(mode), slices) : std::string(to_string(mode));
}

/// What the tiles are of.
std::string describe_parts(const Tiling& t) {
  switch (t.grouping) {
    case Grouping::none:
      return {};
    case Grouping::classes:
      return fmt::format(" of {} residue classes", t.classes.size());
    default:
      return " of equally large groups";
  }
}

struct Weighed {
  Tiling tiling;
  double nominal_us;
  Candidate candidate;
};

std::string explain(const GemmProblem& p, const Weighed& chosen, const Weighed* second) {
  const Candidate& candidate = chosen.candidate;
  std::string why = describe(candidate.split_k_mode, candidate.split_k_slices);
  if (second == nullptr) {
    why += ", as asked";
  } else {
    why += fmt::format(
        " over {}: {} tile(s) of {} x {}{}; {:.0f} us against {:.0f} us predicted for {} threads (the choice ignores "
        "this machine's, so that results do not depend on them)",
        describe(second->candidate.split_k_mode, second->candidate.split_k_slices), chosen.tiling.tiles,
        chosen.tiling.tile_m, chosen.tiling.tile_n, describe_parts(chosen.tiling), chosen.nominal_us,
        second->nominal_us, kNominalThreads);
  }
  if (candidate.split_k_mode == SplitKMode::stream_k && p.split_k_slices > 1) {
    why += fmt::format("; stream_k cuts K by its clusters, so split_k_slices={} is not used", p.split_k_slices);
  }
  if (is_sliced(candidate.split_k_mode) && p.split_k_slices > candidate.split_k_slices) {
    why +=
        fmt::format("; split_k_slices={} reduced to {}, the elements of K", p.split_k_slices, candidate.split_k_slices);
  }
  if (candidate.split_k_mode == SplitKMode::stream_k && p.batch > 1 && chosen.tiling.grouping == Grouping::classes) {
    why += "; stream_k leaves the tiles of a strided dgrad in groups whole";
  }
  if (candidate.split_k_mode == SplitKMode::cluster && candidate.split_k_slices > 1) {
    why += "; on the CPU one thread computes all slices of a cluster";
  }
  return why;
}

/// Cheapest first.
std::vector<Weighed> weigh(const GemmProblem& problem, uint32_t threads) {
  std::vector<Weighed> weighed;
  for (const SplitKMode mode : modes_to_weigh(problem)) {
    for (const uint32_t slices : slices_to_weigh(problem, mode)) {
      const Tiling tiling = make_tiling(problem, mode, slices);
      weighed.push_back({tiling,
                         predicted_us(problem, tiling, kNominalThreads),
                         {.kernel = fmt::format("cpu {}x{}x{}", tiling.tile_m, tiling.tile_n, tiling.tile_k),
                          .split_k_mode = mode,
                          .split_k_slices = int32_t(tiling.schedule.slices),
                          .predicted_us = predicted_us(problem, tiling, threads),
                          .workspace_size = tiling.workspace_size()}});
    }
  }
  std::stable_sort(weighed.begin(), weighed.end(),
                   [](const Weighed& x, const Weighed& y) { return x.nominal_us < y.nominal_us; });
  return weighed;
}

/// The problem with a split that no M changes: the one for 64 rows (of each group).
GemmProblem for_any_m(GemmProblem p) {
  constexpr int64_t kRows = 64;
  GemmProblem some = p;
  some.m = kRows * (p.groups.dimension == Grouping::none ? 1 : p.batch);
  if (p.groups.dimension == Grouping::none) some.batch = 1;
  const std::vector<Weighed> weighed = weigh(some, kNominalThreads);
  p.split_k_mode = weighed.front().tiling.mode;
  p.split_k_slices = int32_t(weighed.front().tiling.schedule.slices);
  return p;
}

}  // namespace

Choice choose(const GemmProblem& given, uint32_t threads) {
  const bool invariant = is_batch_invariant(given);
  const GemmProblem problem = invariant ? for_any_m(given) : given;
  std::vector<Weighed> weighed = weigh(problem, threads);
  Choice choice{
      weighed.front().tiling, {}, explain(problem, weighed.front(), weighed.size() > 1 ? &weighed[1] : nullptr)};
  const bool k_order = given.deterministic == Determinism::k_order;
  if (invariant) choice.why += k_order ? " for every M and N (sum_order k)" : " for every M (batch_invariant)";
  for (Weighed& w : weighed) choice.candidates.push_back(std::move(w.candidate));
  std::stable_sort(choice.candidates.begin(), choice.candidates.end(),
                   [](const Candidate& x, const Candidate& y) { return x.predicted_us < y.predicted_us; });
  return choice;
}

double roofline_us(const GemmProblem& problem, uint32_t threads) {
  return std::max(minimum_bytes(problem) / kBytes, flops(problem) / kFlops) / threads;
}

}  // namespace cleave::cpu
