#include "plan/cost/product_residual.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "cleave/config/clusters.h"
#include "cleave/config/output.h"
#include "cleave/config/scale_lines.h"
#include "cleave/conv.h"
#include "launch/conv_grid.h"
#include "plan/choice/resident_clusters.h"
#include "problem/problem.h"

namespace cleave {
namespace {

float mode_number(SplitKMode mode) {
  switch (mode) {
    case SplitKMode::cluster:
      return 1;
    case SplitKMode::serial:
    case SplitKMode::parallel:
      return 2;
    case SplitKMode::stream_k:
      return 3;
    default:
      return 0;
  }
}

/// Bytes that the rows of an operand begin at multiples of, as a logarithm: at most a line of L2's.
float aligned(const GemmConfig& c, int64_t row) {
  constexpr int kLine = 7;
  return float(std::min(std::countr_zero(uint64_t(row) * size_of(c.operands.a)), kLine));
}

/// How many of something there are where the last one is not full.
double whole(double count) {
  return std::max(std::ceil(count - 1e-9), 1.0);
}

/// A group's length in the dimension that groups share.
double mean_extent(Grouping dimension, const GemmProblem& p) {
  const int64_t shared = dimension == Grouping::m ? p.m : dimension == Grouping::n ? p.n : p.k;
  return std::max(double(shared), 1.0) / double(std::max<int64_t>(p.batch, 1));
}

/// What tiles, with those that share loads, have of that dimension; 1 of K, where no tile ends.
double step_of(const GemmConfig& c) {
  switch (c.schedule.grouping) {
    case Grouping::m:
      return c.tile.m * c.cluster.multicast_m;
    case Grouping::n:
      return c.tile.n * c.cluster.multicast_n;
    default:
      return 1;
  }
}

}  // namespace

std::optional<ForestKind> forest_kind(const Choice& choice) {
  const GemmConfig& c = choice.config;
  if (!has_tma(c.family) || has_weights(c)) return std::nullopt;
  if (c.conv.kind != Conv::none) return ForestKind::conv;
  if (c.schedule.grouping != Grouping::none) return ForestKind::grouped;
  return ForestKind(mainloop_kind(c));
}

ProductFeatures product_features(const Choice& choice, const DeviceInfo& device, double tiles,
                                 const ProductTime& time) {
  const GemmProblem& p = choice.problem;
  const GemmConfig& c = choice.config;
  const ScheduleShape& s = choice.schedule;
  const ConvLayout& conv = p.conv;
  const bool is_conv = conv.kind != Conv::none;
  const auto log2 = [](double x) { return float(std::log2(std::max(x, 1.0))); };
  const double tiles_m = double(s.tiles_m) * c.cluster.multicast_m, tiles_n = double(s.tiles_n) * c.cluster.multicast_n;
  const double resident = std::min<double>(s.clusters, resident_clusters(cluster_size(c), device));
  const double waves = tiles * s.slices / s.slices_per_cluster / resident, whole_waves = whole(waves);
  const double bytes = size_of(c.operands.a), m = double(p.m), n = double(columns_of_b(p)), k = double(p.k);
  const double extent = mean_extent(c.schedule.grouping, p), extent_tiles = extent / step_of(c);
  const double slice_blocks = double(s.k_blocks) / s.slices * c.schedule.turns;
  const auto share = [&](double us) { return float(us / time.us); };
  return {
      .m = log2(m),
      .n = log2(n),
      .k = log2(k),
      .bytes_a = log2(m * k * bytes),
      .bytes_b = log2(n * k * bytes),
      .outputs = log2(m * n),
      .transposed = float(choice.spec.transposed),
      .tile_m = float(c.tile.m),
      .tile_n = float(c.tile.n),
      .tile_area = log2(double(c.tile.m) * c.tile.n),
      .tile_aspect = float(std::log2(double(c.tile.m) / c.tile.n)),
      .pingpong = float(c.warps.pingpong),
      .multicast_m = float(c.cluster.multicast_m),
      .multicast_n = float(c.cluster.multicast_n),
      .mode = mode_number(s.mode),
      .slices = log2(s.slices / c.schedule.turns),
      .cluster_k = log2(c.cluster.k),
      .stages = float(c.tile.stages),
      .tiles_m = log2(tiles_m),
      .tiles_n = log2(tiles_n),
      .tiles = log2(tiles_m * tiles_n),
      .filled_m = float(double(p.m) / (tiles_m * output_rows(c))),
      .filled_n = float(double(p.n) / (tiles_n * output_columns(c))),
      .waves = log2(waves),
      .whole_waves = log2(whole_waves),
      .filled_waves = float(waves / whole_waves),
      .idle = float(whole_waves - waves),
      .slice_blocks = log2(slice_blocks),
      .filled_slices = float(slice_blocks / whole(slice_blocks)),
      .aligned_a = aligned(c, c.operands.a_major == Major::k ? p.k : p.m),
      .aligned_b = aligned(c, c.operands.b_major == Major::k ? p.k : columns_of_b(p)),
      .major_a = float(c.operands.a_major != Major::k),
      .major_b = float(c.operands.b_major != Major::k),
      .element = float(size_of(c.operands.a)),
      .integers = float(c.operands.a == DType::i8),
      .scaling = float(c.epilogue.scaling),
      .on_chip = share(time.on_chip),
      .l2 = share(time.l2),
      .memory = share(time.memory),
      .power = share(time.power),
      .epilogues = share(time.epilogues),
      .reduction = share(time.reduction),
      .us = log2(time.us),
      .narrow = float(c.operands.copied_a || c.operands.copied_b),
      .taps = is_conv ? float(taps(conv)) : 0,
      .channels = is_conv ? log2(double(gathered_channels(conv))) : 0,
      .stride = is_conv ? float(conv.axes[2].stride) : 0,
      .line = is_conv ? log2(double(outputs(conv.axes[2]))) : 0,
      .groups = is_conv ? log2(groups_of(c, p)) : log2(double(p.batch)),
      .gather = float(c.conv.gather),
      .classes = float(c.conv.fuses_classes),
      .direction = float(conv.kind),
      .grouping = float(c.schedule.grouping),
      .extent = log2(extent),
      .extent_tiles = float(std::log2(extent_tiles)),
      .filled_extent = float(extent_tiles / whole(extent_tiles)),
      .added = float(c.store.adds + holds_columns(c)),
  };
}

bool forests_know(const DeviceInfo& device) {
  const DeviceInfo& measured = device_info(kPlanOnlyH200);
  return device.num_sms == measured.num_sms && std::abs(device.memory_gb_per_s / measured.memory_gb_per_s - 1) < 0.1;
}

double product_residual(ForestKind kind, const ProductFeatures& features) {
  const auto values = std::bit_cast<std::array<float, kProductFeatures>>(features);
  double sum = 0;
  const auto forest = trees_of(kind);
  for (size_t i = 0; i < forest.size();) {
    const TreeNode& node = forest[i];
    const bool leaf = node.feature == TreeNode::kLeaf;
    if (leaf) sum += node.value;
    i += leaf || values[node.feature] > node.value ? node.next : 1;
  }
  return std::exp(sum);
}

}  // namespace cleave
