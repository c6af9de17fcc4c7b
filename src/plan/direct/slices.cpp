#include "plan/direct/slices.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/direct_work.h"
#include "cleave/conv/direct_conv.h"
#include "plan/choice/resident_clusters.h"
#include "plan/direct/kernels.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostTogether = 8;  // slices of a cluster
constexpr double kSector = 32;         // bytes

/// What memory moves, in sectors, over what CTAs read of it: `c.tile.n` channels of each pixel.
double sector_factor(const GemmConfig& c, const GemmProblem& p) {
  constexpr double kPiece = 16;  // bytes, of which pixels are multiples as a rule
  const double bytes = c.tile.n * size_of(c.operands.a);
  if (bytes <= kPiece || p.b.stride_row * size_of(p.b.dtype) % int64_t(kSector) == 0)
    return std::max(1.0, kSector / bytes);
  return 1 + kPiece / bytes;  // every other pixel's begin within one
}

}  // namespace

void reserve_slices(Choice& choice, uint32_t blocks, uint32_t slices) {
  choice.schedule.slices = slices;
  if (slices == 1) return;
  const uint32_t together = choice.config.cluster.k;  // which leave one part
  if (together > 1) {
    const uint32_t clusters = slices / together;
    if (clusters == 1) return;
    choice.counter_bytes = round_up<uint64_t>(uint64_t(blocks) * together * sizeof(uint32_t), 16);
    choice.partial_bytes = uint64_t(blocks) * clusters * direct_made(choice.config) * sizeof(float);
    return;
  }
  const uint64_t counters = uint64_t(blocks) * DirectReduction(slices).counters();
  choice.counter_bytes = round_up<uint64_t>(counters * sizeof(uint32_t), 16);
  choice.partial_bytes = uint64_t(blocks) * slices * direct_made(choice.config) * sizeof(float);
}

bool has_slices(const Spec& spec, const DeviceInfo& device) {
  if (spec.slices == 0 || spec.split != (spec.slices > 1 ? SplitKMode::parallel : SplitKMode::none)) return false;
  if (spec.cluster_k == 1) return true;
  const bool whole = spec.cluster_k > 0 && spec.cluster_k <= kMostTogether && spec.slices % spec.cluster_k == 0;
  return whole && device.compute_capability >= 90;
}

std::vector<Spec> sliced_specs(const GemmProblem& p, const DeviceInfo& device, const Spec& spec, uint32_t blocks,
                               int64_t tiles, uint32_t room, Deal deal) {
  if (p.split_k_mode == SplitKMode::none) return {spec};
  std::vector<Spec> specs;
  const auto most_of = [&](int64_t slices) { return std::clamp<int64_t>(slices, 1, tiles); };
  const auto even = [&](int64_t most) { return even_parts(tiles, most_of(most)); };
  const int64_t filling = int64_t(device.num_sms) * room / blocks;
  const int64_t asked = deal == Deal::runs ? even(p.split_k_slices) : most_of(p.split_k_slices);
  const auto add = [&](int64_t slices, uint32_t together) {
    if (slices < 1 || slices > tiles || (p.split_k_slices > 0 && slices != asked)) return;
    Spec own = spec;
    own.slices = uint32_t(slices);
    own.cluster_k = together;
    if (slices > 1) own.split = SplitKMode::parallel;
    if (!has_slices(own, device)) return;
    if (std::find(specs.begin(), specs.end(), own) == specs.end()) specs.push_back(own);
  };
  for (const int64_t slices : {int64_t(1), even(filling), even(filling / 2), asked}) add(slices, 1);
  for (const uint32_t together : {2u, 4u, kMostTogether}) {
    const auto at_once = int64_t(clusters_at_once(together, room, device)) / blocks;
    for (const int64_t clusters : {int64_t(1), at_once, at_once / 2, asked / together})
      add(clusters * together, together);
  }
  return specs;
}

double clusters_at_once(uint32_t together, uint32_t room, const DeviceInfo& device) {
  constexpr double kPairedSixes = 36;  // clusters of 6 that ran at a time on 132 SMs, two CTAs each; 40 did not
  if (together == 6 && room == 2) return std::floor(kPairedSixes * device.num_sms / 132);
  return resident_clusters(together, device) * room;
}

Turns turns_of(const Choice& choice, uint32_t room, const DeviceInfo& device) {
  const uint32_t together = choice.config.cluster.k;
  const double clusters = double(choice.blocks) / together;
  return {.beside = std::min(std::ceil(clusters / resident_clusters(together, device)), double(room)),
          .turns = std::ceil(clusters / clusters_at_once(together, room, device))};
}

double meeting_us(const Choice& choice, const MeetingCosts& costs) {
  const uint32_t slices = choice.spec.slices, together = choice.spec.cluster_k, clusters = slices / together;
  if (slices == 1) return 0;
  if (together == 1) return costs.slices + costs.slices_factor * slice_sums_us(choice);
  if (clusters == 1) return costs.cluster;
  return costs.cluster + costs.clusters + costs.clusters_factor * clusters / together * sums_us(choice);
}

double narrow_gradient_us(const Choice& choice, const DeviceInfo& device, double turns, double clocks,
                          const GradientCosts& costs) {
  const GemmProblem& p = choice.problem;
  const double elements = (double(output_pixels(p.conv)) + double(image_pixels(p.conv))) * double(p.m);
  const double needed = elements * size_of(p.a.dtype), bytes = needed * sector_factor(choice.config, p);
  const bool alone = choice.config.tile.n * size_of(p.a.dtype) <= kSector && needed > device.l2_bytes;
  const double memory = bytes / (device.memory_gb_per_s * 1e3 * costs.memory_share);
  const double work = clocks / (device.clock_ghz * 1e3);
  const double others = (turns - 1) * costs.turn + meeting_us(choice, costs.meeting);
  const double longer = std::max(work, alone ? memory / costs.lone_share : memory);
  return costs.launch + others + longer + costs.beside * std::min(work, memory);
}

bool deal_slices(Choice& choice, int64_t tiles, uint32_t blocks) {
  const uint32_t slices = choice.spec.slices;
  if (tiles * blocks > INT32_MAX || slices > tiles) return false;
  deal_tiles(choice, tiles * blocks, blocks, blocks * slices);
  reserve_slices(choice, blocks, slices);
  return true;
}

double sums_us(const Choice& choice) {
  constexpr double kBytesPerUs = 50e3;  // of a CTA: an H200 took 1.7 to 2.7 us for 100 KB, kernel by kernel
  return direct_made(choice.config) * sizeof(float) / kBytesPerUs;
}

double slice_sums_us(const Choice& choice) {
  if (choice.spec.slices == 1) return 0;
  const DirectReduction of(choice.spec.slices);
  return double(of.team + of.teams) * sums_us(choice);
}

}  // namespace cleave
