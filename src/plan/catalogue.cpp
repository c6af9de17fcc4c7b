#include "plan/catalogue.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/refuse.h"
#include "cleave/config/clusters.h"
#include "cleave/conv.h"
#include "launch/conv_grid.h"
#include "plan/conv_choice.h"
#include "plan/cost/cost.h"
#include "plan/direct/choice.h"
#include "plan/direct/rows.h"
#include "plan/measured/covering.h"
#include "plan/operand_layout.h"
#include "plan/quantize_apart.h"
#include "problem/conv.h"
#include "problem/problem.h"
#include "process/fork.h"

namespace cleave {
namespace {

// The tiles. sm90: 64 rows per consumer warpgroup and m64 instruction; narrow tiles for small M or
// N. 192 rows are for promoted sums: while two of three warpgroups multiply, the third adds; and for products.
constexpr Spec kSm90Tiles[] = {
    {.tile_m = 64, .tile_n = 16},
    {.tile_m = 64, .tile_n = 32},
    {.tile_m = 64, .tile_n = 64},
    {.tile_m = 64, .tile_n = 128},
    {.tile_m = 128, .tile_n = 16},
    {.tile_m = 128, .tile_n = 32},
    {.tile_m = 128, .tile_n = 64},
    {.tile_m = 128, .tile_n = 96},
    {.tile_m = 128, .tile_n = 128},
    {.tile_m = 128, .tile_n = 144},
    {.tile_m = 128, .tile_n = 160},
    {.tile_m = 128, .tile_n = 176},
    {.tile_m = 128, .tile_n = 192},
    {.tile_m = 128, .tile_n = 224},
    {.tile_m = 128, .tile_n = 256},
    {.tile_m = 192, .tile_n = 128},
    {.tile_m = 256, .tile_n = 128},
    {.tile_m = 64, .tile_n = 256, .pingpong = true},
    {.tile_m = 128, .tile_n = 128, .pingpong = true},
};

// The more sizes there are, the fuller is the last wave. Groups and convolutions, whose waves nobody
// knows so well, do without.
constexpr Spec kSm90ProductTiles[] = {
    {.tile_m = 64, .tile_n = 48},
    {.tile_m = 64, .tile_n = 80},
    {.tile_m = 64, .tile_n = 96},
    {.tile_m = 64, .tile_n = 112},
    {.tile_m = 64, .tile_n = 144},
    {.tile_m = 64, .tile_n = 160},
    {.tile_m = 64, .tile_n = 176},
    {.tile_m = 64, .tile_n = 192},
    {.tile_m = 64, .tile_n = 208},
    {.tile_m = 64, .tile_n = 224},
    {.tile_m = 64, .tile_n = 256},
    {.tile_m = 128, .tile_n = 48},
    {.tile_m = 128, .tile_n = 80},
    {.tile_m = 128, .tile_n = 112},
    {.tile_m = 128, .tile_n = 208},
    {.tile_m = 128, .tile_n = 240},
    {.tile_m = 192, .tile_n = 64},
    {.tile_m = 192, .tile_n = 80},
    {.tile_m = 192, .tile_n = 96},
    {.tile_m = 192, .tile_n = 112},
    {.tile_m = 192, .tile_n = 144},
    {.tile_m = 192, .tile_n = 176},
    {.tile_m = 192, .tile_n = 192},
    {.tile_m = 256, .tile_n = 80},
    {.tile_m = 256, .tile_n = 96},
    {.tile_m = 256, .tile_n = 112},
    {.tile_m = 256, .tile_n = 144},
    {.tile_m = 256, .tile_n = 160},
    {.tile_m = 256, .tile_n = 176},
    {.tile_m = 256, .tile_n = 192},
    {.tile_m = 64, .tile_n = 128, .pingpong = true},
    {.tile_m = 64, .tile_n = 192, .pingpong = true},
    {.tile_m = 128, .tile_n = 160, .pingpong = true},
    {.tile_m = 128, .tile_n = 192, .pingpong = true},
};

// Where M are 64 filters, and N channels of taps: a third less to fetch than in tiles of 64 x 128.
constexpr Spec kSm90GradientTiles[] = {{.tile_m = 64, .tile_n = 192}};

// Where pixels come in half lines, since they have 96 channels: so have what they make.
constexpr Spec kSm90HalfLineTiles[] = {{.tile_m = 256, .tile_n = 96}};

// For packed weights alone: four warpgroups make elements, and multiply them. Sharing loads never paid.
constexpr Spec kSm90WeightTiles[] = {
    {.transposed = true, .tile_m = 256, .tile_n = 16},
    {.transposed = true, .tile_m = 256, .tile_n = 32},
    {.transposed = true, .tile_m = 256, .tile_n = 48},
    {.transposed = true, .tile_m = 256, .tile_n = 64},
};

constexpr Spec kPortableTiles[] = {
    {.family = KernelFamily::portable, .tile_m = 64, .tile_n = 64},
    {.family = KernelFamily::portable, .tile_m = 128, .tile_n = 128},
};

constexpr Spec kStreamedTiles[] = {
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 16, .tile_n = 8},
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 16, .tile_n = 16},
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 32, .tile_n = 8},
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 32, .tile_n = 16},
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 64, .tile_n = 8},
};

constexpr uint32_t kMulticasts[][2] = {{1, 1}, {2, 1}, {1, 2}};

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

/// Large enough that sharing a load pays for keeping two CTAs in step.
bool worth_multicast(const Spec& s) {
  return s.tile_m * s.tile_n >= 64 * 64;
}

bool is_plain(const Spec& tile) {
  return tile.multicast_m * tile.multicast_n == 1 && !tile.transposed && !tile.pingpong;
}

void add_sharings(std::vector<Spec>& specs, Spec tile) {
  for (const auto& [m, n] : kMulticasts) {
    if (m * n > 1 && !worth_multicast(tile)) continue;
    tile.multicast_m = m;
    tile.multicast_n = n;
    for (const bool transposed : {false, true}) {
      tile.transposed = transposed;
      specs.push_back(tile);
    }
  }
}

}  // namespace

bool is_product(const GemmProblem& p) {
  return p.conv.kind == Conv::none && p.groups.dimension == Grouping::none;
}

std::vector<Spec> tiles(const GemmProblem& problem) {
  std::vector<Spec> specs = tiles(problem.kernel, is_product(problem));
  const bool sm90 = problem.kernel == KernelFamily::automatic || problem.kernel == KernelFamily::sm90;
  if (problem.conv.kind == Conv::wgrad && sm90)
    specs.insert(specs.end(), std::begin(kSm90GradientTiles), std::end(kSm90GradientTiles));
  if (sm90 && may_halve_lines(problem, {.half_lines = true}))
    for (const Spec& tile : kSm90HalfLineTiles) add_sharings(specs, tile);
  if (problem.weights_b.format == WeightFormat::none) return specs;
  // Loads of tokens are not what they wait for: 14 of 15 pairs of the same tile took longer in step, up to 9 %.
  std::erase_if(specs, [](const Spec& tile) { return tile.multicast_m * tile.multicast_n > 1; });
  if (sm90) specs.insert(specs.end(), std::begin(kSm90WeightTiles), std::end(kSm90WeightTiles));
  return specs;
}

std::vector<Spec> tiles(KernelFamily family, bool products) {
  std::vector<Spec> specs;
  const auto wants = [&](KernelFamily one) { return family == KernelFamily::automatic || family == one; };
  if (wants(KernelFamily::sm90)) {
    for (const Spec& tile : kSm90Tiles) add_sharings(specs, tile);
    if (products)
      for (const Spec& tile : kSm90ProductTiles) add_sharings(specs, tile);
  }
  if (wants(KernelFamily::portable)) specs.insert(specs.end(), std::begin(kPortableTiles), std::end(kPortableTiles));
  if (wants(KernelFamily::streamed)) specs.insert(specs.end(), std::begin(kStreamedTiles), std::end(kStreamedTiles));
  return specs;
}

namespace {

/// Whether an operand of few rows (or columns) is contiguous along them. Beyond 72 TMA's boxes lie mostly inside of it,
/// and beyond 128 threads have no advantage of what TMA cannot read.
bool is_narrow(const GemmProblem& p) {
  if (!is_product(p) || size_of(p.a.dtype) != 2) return false;
  const auto are_few = [](int64_t rows, const OperandLayout& operand) {
    return operand.major == Major::mn && rows <= (operand.load_bytes == 16 ? 72 : 128);
  };
  const OperandLayouts operands = operand_layouts(p);
  return are_few(p.m, operands.a) || are_few(p.n, operands.b);
}

/// Whether clusters of four may share the columns of a B that is contiguous along N: TMA takes long for those whose
/// lines do not begin with a sector of L2, and each CTA then asks for a quarter of them. Wide tiles of 64 rows lose.
bool may_share_by_fours(const Spec& tile, const GemmProblem& p) {
  if (!is_product(p) || !has_tma(tile.family) || size_of(p.a.dtype) != 2) return false;
  if (tile.pingpong || tile.multicast_m * tile.multicast_n > 1 || !worth_multicast(tile)) return false;
  if (tile.tile_m == 64 && tile.tile_n > 192) return false;
  const OperandLayouts operands = operand_layouts(p);
  return (tile.transposed ? operands.a : operands.b).major == Major::mn;
}

}  // namespace

std::vector<Spec> variants(const Spec& tile, const GemmProblem& p) {
  std::vector<Spec> specs{tile};
  if (may_share_by_fours(tile, p)) {
    specs.push_back(tile);
    specs.back().multicast_m = 4;
  }
  if (has_tma(tile.family) && !tile.pingpong && tile.multicast_m * tile.multicast_n == 1 && is_narrow(p)) {
    specs.push_back(tile);
    specs.back().narrow = true;
  }
  Spec fused = tile;
  fused.fuses_classes = true;
  const bool patches = makes_patches(p, fused);
  if (patches) specs.push_back(fused);
  const auto few = [&](int64_t channels) {
    constexpr int64_t kFew = 64;  // bytes of a pixel: half of what TMA fetches
    return channels * int64_t(size_of(p.a.dtype)) <= kFew;
  };
  if (has_tma(tile.family) && !tile.transposed && may_run_by_group(p)) {
    specs.push_back(tile);
    specs.back().by_group = true;
  }
  // Never behind whole ones (docs/notes/2026-11-convolution.md).
  specs.front().half_lines = true;
  specs.front().half_lines = may_halve_lines(p, specs.front());
  if (p.conv.kind == Conv::none || !is_plain(tile)) return specs;
  Spec gathering = tile;
  gathering.gather = has_tma(tile.family);
  const int64_t gathered = gathered_channels(p.conv);
  const bool narrow = gathered * size_of(p.a.dtype) % 16 != 0;  // TMA cannot fetch it
  if (gathering.gather && (few(gathered) || narrow)) specs.push_back(gathering);
  if (p.conv.kind == Conv::dgrad && few(p.conv.channels) && !patches) {
    gathering.fuses_classes = true;
    specs.push_back(gathering);
  }
  return specs;
}

namespace {

/// Tiles more than twice as large as the output (of a group, on average) are left to smaller ones,
/// if there are any.
bool oversized(const Spec& s, const GemmProblem& p) {
  const auto size = [&](int64_t total, Grouping grouping) {
    return p.groups.dimension == grouping ? ceil_div(total, p.batch) : total;
  };
  int64_t classes = 1;
  for (const ConvAxis& axis : p.conv.axes) classes *= s.fuses_classes ? axis.stride : 1;
  const int64_t rows = size(p.m, Grouping::m), columns = size(p.n, Grouping::n) * classes;
  const int64_t m = s.transposed ? columns : rows, n = s.transposed ? rows : columns;
  const bool tall = s.tile_m > 64 && m * 2 <= s.tile_m;
  // Operands that are contiguous along N come in strips of 128 bytes.
  const bool strips = p.conv.kind == Conv::dgrad || p.conv.kind == Conv::wgrad;
  const uint32_t least = strips ? 64 : family_traits(s.family).least_tile_n;
  const bool wide = s.tile_n > least && n * 2 <= s.tile_n;
  return tall || wide || (s.multicast_m > 1 && m <= s.tile_m) || (s.multicast_n > 1 && n <= s.tile_n);
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

bool is_cheaper(const Choice& a, const Choice& b) {
  return a.predicted_us < b.predicted_us;
}

/// What is considered, by specs and rough predictions: choices are large. The portable kernel is for what the Hopper
/// kernel cannot serve in one launch.
class Considered {
 public:
  void add(const Choice& choice, double rough_us) { add(choice.spec, rough_us); }

  /// Those of the product whose D another kernel quantises, in `us`.
  void add_apart(const Considered& products, bool halves, double us) {
    for (Rough each : products.list_) {
      each.spec.apart = true;
      each.spec.halves = halves;
      add(each.spec, each.us + us);
    }
  }

  size_t count() const { return list_.size(); }

  /// They were those of the product that a convolution is, and are to serve the convolution.
  void serve_convolution() {
    for (Rough& each : list_) each.spec.product = true;
  }

  /// Calls visit(choice), with a close prediction, of each whose rough one is at most `far` times the least.
  template <class Visit>
  void visit_near(double far, const GemmProblem& problem, const DeviceInfo& device, const Visit& visit) const {
    double least = std::numeric_limits<double>::infinity();
    for (const Rough& each : list_) least = std::min(least, each.us);
    for (const Rough& each : list_) {
      if (each.us > far * least) continue;
      std::optional<Choice> choice = make_choice(problem, device, each.spec);
      choice->predicted_us = predict_us(*choice, device);
      visit(std::move(*choice));
    }
  }

 private:
  struct Rough {
    Spec spec;
    double us;
  };

  void add(const Spec& spec, double rough_us) {
    const KernelFamily family = spec.family;
    if (has_hopper_ && family == KernelFamily::portable) return;
    if (!has_hopper_ && family == KernelFamily::sm90 && !spec.by_group) {
      std::erase_if(list_, [](const Rough& each) { return each.spec.family == KernelFamily::portable; });
      has_hopper_ = true;
    }
    list_.push_back({spec, rough_us});
  }

  std::vector<Rough> list_;
  bool has_hopper_ = false;
};

void add(Considered& out, const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  auto choice = make_choice(problem, device, spec);
  if (!choice) return;
  if (is_sliced(spec.split) && choice->schedule.slices < 2 && problem.split_k_mode == SplitKMode::automatic) {
    return;  // the same as none
  }
  // Clusters beyond the portable size were never the best by more than noise, and how many fit
  // varies most by chip.
  if (problem.split_k_mode == SplitKMode::automatic && cluster_size(choice->config) > 8) return;
  out.add(*choice, predict_roughly_us(*choice, device));
}

/// Parallel split-K whose clusters, or CTAs in turn, join slices first.
void add_clustered(Considered& out, const GemmProblem& problem, const DeviceInfo& device, Spec spec) {
  for (const uint32_t cluster_k : kClusters) {
    if (spec.slices % cluster_k != 0 || spec.slices == cluster_k) continue;
    spec.cluster_k = cluster_k;
    add(out, problem, device, spec);
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
  if (wants(SplitKMode::none) && given <= 1) add(out, problem, device, spec);
  if (!whole || spec.pingpong) return;
  if (invariant && any && given > 1) {
    Spec in_turn = spec;
    in_turn.in_turn = true;
    in_turn.slices = given;
    add(out, problem, device, in_turn);
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
      add(out, problem, device, spec);
      const bool few = invariant && given < kLeastJoined;
      const bool worth = !pruned || worth_joining(spec);
      if (m == SplitKMode::parallel && !few && worth) add_clustered(out, problem, device, spec);
      continue;
    }
    const auto counts =
        slice_counts(tiles, k_blocks, device.num_sms, m == SplitKMode::cluster ? kMostClusterSlices : kMostSlices);
    for (const uint32_t slices : counts) {
      spec.slices = slices;
      if (!pruned || worth_splitting(spec)) add(out, problem, device, spec);
      if (m == SplitKMode::parallel && (!pruned || worth_joining(spec))) add_clustered(out, problem, device, spec);
    }
    if (counts.empty() && !any) {  // asked for by name, with nothing to split: one slice
      spec.slices = 1;
      add(out, problem, device, spec);
    }
  }
  if (wants(SplitKMode::stream_k)) {
    spec.split = SplitKMode::stream_k;
    spec.slices = std::max(given, 1u);
    if (!any || (tiles % uint32_t(device.num_sms) != 0 && worth_cutting_tail(problem))) add(out, problem, device, spec);
  }
}

/// The covering set's kernels, with all slice counts.
void consider_covering(Considered& out, const GemmProblem& problem, const DeviceInfo& device) {
  for (Spec spec : covering_set(problem)) {
    if (spec.split != SplitKMode::parallel) {
      add(out, problem, device, spec);
      continue;
    }
    Spec unsplit = spec;
    unsplit.split = SplitKMode::none;
    unsplit.cluster_k = 1;
    const auto whole = make_choice(problem, device, unsplit);
    if (!whole) continue;
    for (const uint32_t slices : slice_counts(uint32_t(sharers(whole->config) * whole->tiles), whole->schedule.k_blocks,
                                              device.num_sms, kMostSlices)) {
      spec.slices = slices;
      if (slices % spec.cluster_k == 0 && slices > spec.cluster_k) add(out, problem, device, spec);
    }
  }
}

/// In no order, all of the problem's own kind.
Considered consider_own(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  Considered out;
  if (kernels == Kernels::covering && is_automatic(problem)) consider_covering(out, problem, device);
  for (const bool all : {false, true}) {
    if (out.count() > 0) break;
    for (const Spec& tile : tiles(problem)) {
      for (const Spec& spec : variants(tile, problem)) {
        if (all || !oversized(spec, problem)) add_splits(out, problem, device, spec);
      }
    }
    for (const Spec& direct : direct_specs(problem, device)) add(out, problem, device, direct);
  }
  return out;
}

/// One kernel, and a kernel behind the product's where nothing is asked of either.
Considered consider_quantised(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  Considered out = consider_own(problem, device, kernels);
  if (!is_automatic(problem) || is_batch_invariant(problem)) return out;
  for (const bool halves : {false, true}) {
    if (!may_quantize_apart(problem, halves)) continue;
    const GemmProblem product = unquantized(problem, halves);
    out.add_apart(consider_own(product, device, kernels), halves, quantize_apart_us(product, halves, device));
  }
  return out;
}

/// In no order.
Considered consider(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  if (finds_scales(problem)) return consider_quantised(problem, device, kernels);
  if (kernels == Kernels::any_images || !runs_as_product(problem)) return consider_own(problem, device, kernels);
  Considered out = consider_own(*matrix_product(problem), device, kernels);
  out.serve_convolution();
  // Products' tiles and k blocks have nothing empty in them where both are multiples of 64.
  const bool whole = problem.n % 64 == 0 && problem.k % 64 == 0 && problem.kernel != KernelFamily::direct;
  const auto rows = whole ? std::nullopt : direct_rows_spec(problem, device);
  if (rows) add(out, problem, device, *rows);
  return out;
}

}  // namespace

Kernels user_kernels() {
  static constinit Lazy<Kernels> kernels;
  return kernels.get([] {
    const char* text = std::getenv("CLEAVE_KERNELS");
    if (text == nullptr || *text == 0 || std::string_view(text) == "all") return Kernels::all;
    if (std::string_view(text) == "covering") return Kernels::covering;
    refuse_value("CLEAVE_KERNELS is \"{}\"; it must be \"all\" or \"covering\"", text);
  });
}

std::vector<Choice> candidates(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  std::vector<Choice> out;
  constexpr double kAll = std::numeric_limits<double>::infinity();
  consider(problem, device, kernels).visit_near(kAll, problem, device, [&](Choice&& choice) {
    out.push_back(std::move(choice));
  });
  std::stable_sort(out.begin(), out.end(), is_cheaper);
  return out;
}

Cheapest cheapest(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  // The closely cheapest is farther off roughly in one case of two hundred; a convolution's rough model errs by more.
  const double far = problem.conv.kind == Conv::none ? 1.25 : 1.5;
  const Considered considered = consider(problem, device, kernels);
  Cheapest best{.considered = considered.count()};
  considered.visit_near(far, problem, device, [&](Choice&& choice) {
    if (!best.choice || is_cheaper(choice, *best.choice)) best.choice = std::move(choice);
  });
  return best;
}

bool is_listed(const Spec& spec) {
  // Its cut is the problem's to say: make_choice takes no other. Weight gradients have slices.
  if (spec.family == KernelFamily::direct) {
    const bool sliced = spec.split == SplitKMode::parallel && spec.slices > 1;
    return spec == Spec{.family = spec.family,
                        .tile_m = spec.tile_m,
                        .tile_n = spec.tile_n,
                        .split = sliced ? spec.split : SplitKMode::none,
                        .slices = sliced ? spec.slices : 1};
  }
  Spec tile = spec;
  tile.split = SplitKMode::none;
  tile.slices = tile.cluster_k = 1;
  tile.multicast_m = tile.multicast_n = 1;
  tile.gather = tile.half_lines = tile.fuses_classes = tile.narrow = tile.product = false;
  tile.by_group = tile.apart = tile.halves = false;
  std::vector<Spec> listed = tiles(spec.family, true);
  listed.insert(listed.end(), std::begin(kSm90WeightTiles), std::end(kSm90WeightTiles));
  if (std::ranges::find(listed, tile) == listed.end()) return false;
  const bool tma = has_tma(spec.family);
  const auto shares = [&](const auto& shape) { return shape[0] == spec.multicast_m && shape[1] == spec.multicast_n; };
  const bool alone = spec.multicast_m == 1 && spec.multicast_n == 1;
  const bool fours = spec.multicast_m == 4 && spec.multicast_n == 1 && !spec.pingpong && spec.split == SplitKMode::none;
  if (!alone && (!tma || (!fours && std::ranges::none_of(kMulticasts, shares)))) return false;
  if (spec.gather && (!is_plain(spec) || !tma)) return false;
  if (spec.fuses_classes && spec.transposed) return false;
  if (spec.half_lines && (spec.gather || spec.fuses_classes || spec.narrow || spec.product || spec.by_group))
    return false;
  if ((spec.product || spec.by_group) && (spec.gather || spec.fuses_classes)) return false;
  if (spec.halves && !spec.apart) return false;
  if (spec.narrow && (!alone || !tma || spec.pingpong || spec.gather || spec.fuses_classes)) return false;
  const uint32_t most = spec.split == SplitKMode::none      ? 1
                        : spec.split == SplitKMode::cluster ? kMostClusterSlices
                                                            : kMostSlices;
  if (spec.split == SplitKMode::automatic || ctas_wait(spec.split)) return false;
  if (spec.slices < 1 || spec.slices > most) return false;
  return spec.cluster_k == 1 ||
         (spec.split == SplitKMode::parallel && std::ranges::find(kClusters, spec.cluster_k) != std::end(kClusters) &&
          spec.slices % spec.cluster_k == 0);
}

}  // namespace cleave
