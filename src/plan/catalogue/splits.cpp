#include "plan/catalogue/splits.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "launch/gemm_grid.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostSlices = 1024;
constexpr uint32_t kMostClusterSlices = 16;
constexpr uint32_t kClusters[] = {2, 4, 8};  // of slices that are joined first

// Every size of a cluster is a kernel of its own: these are few, and for tiles that leave SMs idle.
constexpr uint32_t kClusterSlices[] = {2, 3, 4, 6, 8};
constexpr uint32_t kMostClusterTile = 128 * 128;
constexpr uint32_t kMostJoinedTile = 64 * 128;  // by clusters before others
constexpr uint32_t kLeastJoined = 12;           // slices that are joined first, where one order is to serve every M

/// Whether stream_k may pay where only the GPU knows how many tiles there are. With 8 bits it does not: on 52 pairs of
/// the same tile it took 1 to 3 % longer, whatever the waves, and three of unseen shapes lost 4 to 5 % by it.
bool worth_cutting_tail(const GemmProblem& p) {
  const bool ragged = p.groups.dimension == Grouping::m || p.groups.dimension == Grouping::n;
  return !ragged || size_of(p.a.dtype) > 1;
}

/// Slice counts that leave the GPU full: from two to about one unit per SM.
std::vector<uint32_t> slice_counts(uint32_t tiles, uint32_t k_blocks, uint32_t num_sms, uint32_t most) {
  std::vector<uint32_t> counts;
  const auto add = [&](uint32_t count) {
    if (count >= 2 && count <= std::min(k_blocks, most)) counts.push_back(count);
  };
  for (const uint32_t count : {2u, 3u, 4u, 5u, 6u, 8u, 10u, 12u, 14u, 16u, 24u, 32u, 48u, 64u, 96u, 128u}) {
    if (uint64_t(count) * tiles <= 2ull * num_sms) add(count);
  }
  add(num_sms / std::max(tiles, 1u));
  add(2 * num_sms / std::max(tiles, 1u));
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

/// Parallel split-K whose clusters, or CTAs in turn, join slices first.
void add_clustered(Considered& out, const GemmProblem& problem, const DeviceInfo& device, Spec spec) {
  for (const uint32_t cluster_k : kClusters) {
    if (spec.slices % cluster_k != 0 || spec.slices == cluster_k) continue;
    spec.cluster_k = cluster_k;
    out.add(problem, device, spec);
  }
}

bool worth_splitting(const Spec& s) {
  if (s.split != SplitKMode::cluster) return true;
  return s.tile_m * s.tile_n <= kMostClusterTile &&
         std::ranges::find(kClusterSlices, s.slices) != std::end(kClusterSlices);
}

bool worth_joining(const Spec& s) {
  return s.tile_m * s.tile_n <= kMostJoinedTile;
}

}  // namespace

void add_splits(Considered& out, const GemmProblem& problem, const DeviceInfo& device, Spec spec) {
  const SplitKMode mode = problem.split_k_mode;
  const bool any = mode == SplitKMode::automatic;
  const bool pruned = any && is_product(problem);  // only those were measured
  const uint32_t given = uint32_t(problem.split_k_slices);
  const bool invariant = is_batch_invariant(problem);
  const auto wants = [&](SplitKMode m) { return mode == m || any; };

  Spec unsplit = spec;
  unsplit.pingpong = false;
  const auto whole = make_choice(problem, device, unsplit);
  if (wants(SplitKMode::none) && given <= 1) out.add(problem, device, spec);
  if (!whole || spec.pingpong) return;
  if (invariant && any && given > 1) {
    Spec in_turn = spec;
    in_turn.in_turn = true;
    in_turn.slices = given;
    out.add(problem, device, in_turn);
    in_turn.split = SplitKMode::parallel;
    if (given >= kLeastJoined) add_clustered(out, problem, device, in_turn);
  }
  const auto tiles = uint32_t(sharers(whole->config) * whole->tiles);
  const uint32_t k_blocks = whole->schedule.k_blocks;

  for (const SplitKMode m : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster}) {
    if (!wants(m) || (any && ctas_wait(m))) continue;
    spec.split = m;
    if (given > 0) {
      spec.slices = given;
      out.add(problem, device, spec);
      const bool few = invariant && given < kLeastJoined;
      const bool worth = !pruned || worth_joining(spec);
      if (m == SplitKMode::parallel && !few && worth) add_clustered(out, problem, device, spec);
      continue;
    }
    const auto counts =
        slice_counts(tiles, k_blocks, device.num_sms, m == SplitKMode::cluster ? kMostClusterSlices : kMostSlices);
    for (const uint32_t slices : counts) {
      spec.slices = slices;
      if (!pruned || worth_splitting(spec)) out.add(problem, device, spec);
      if (m == SplitKMode::parallel && (!pruned || worth_joining(spec))) add_clustered(out, problem, device, spec);
    }
    if (counts.empty() && !any) {  // asked for by name, with nothing to split: one slice
      spec.slices = 1;
      out.add(problem, device, spec);
    }
  }
  if (wants(SplitKMode::stream_k)) {
    spec.split = SplitKMode::stream_k;
    spec.slices = std::max(given, 1u);
    if (!any || (tiles % uint32_t(device.num_sms) != 0 && worth_cutting_tail(problem))) out.add(problem, device, spec);
  }
}

void add_slices(Considered& out, const GemmProblem& problem, const DeviceInfo& device, Spec spec) {
  Spec unsplit = spec;
  unsplit.split = SplitKMode::none;
  unsplit.cluster_k = 1;
  const auto whole = make_choice(problem, device, unsplit);
  if (!whole) return;
  for (const uint32_t slices : slice_counts(uint32_t(sharers(whole->config) * whole->tiles), whole->schedule.k_blocks,
                                            device.num_sms, kMostSlices)) {
    spec.slices = slices;
    if (slices % spec.cluster_k == 0 && slices > spec.cluster_k) out.add(problem, device, spec);
  }
}

bool is_split(const Spec& spec) {
  if (spec.split == SplitKMode::automatic || ctas_wait(spec.split)) return false;
  const uint32_t most = spec.split == SplitKMode::none      ? 1
                        : spec.split == SplitKMode::cluster ? kMostClusterSlices
                                                            : kMostSlices;
  if (spec.slices < 1 || spec.slices > most) return false;
  return spec.cluster_k == 1 ||
         (spec.split == SplitKMode::parallel && std::ranges::find(kClusters, spec.cluster_k) != std::end(kClusters) &&
          spec.slices % spec.cluster_k == 0);
}

}  // namespace cleave
