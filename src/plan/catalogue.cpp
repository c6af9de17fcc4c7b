#include "plan/catalogue.h"

#include <algorithm>
#include <array>

#include "cleave/conv.h"

#include "plan/cost.h"
#include "problem/conv_classes.h"

namespace cleave {
namespace {

// The tiles. sm90: 64 rows per consumer warpgroup and m64 instruction; narrow tiles for small M or
// N. 192 rows are for promoted sums: while two of three warpgroups multiply, the third adds.
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

constexpr Spec kPortableTiles[] = {
    {.family = KernelFamily::portable, .tile_m = 64, .tile_n = 64},
    {.family = KernelFamily::portable, .tile_m = 128, .tile_n = 128},
};

constexpr uint32_t kMulticasts[][2] = {{1, 1}, {2, 1}, {1, 2}};

constexpr uint32_t kMostSlices = 1024;
constexpr uint32_t kMostClusterSlices = 16;
constexpr uint32_t kClusters[] = {2, 4, 8};  // of slices that are joined first

/// Large enough that sharing a load pays for keeping two blocks in step.
bool worth_multicast(const Spec& s) {
  return s.tile_m * s.tile_n >= 64 * 64;
}

std::vector<Spec> tiles(KernelFamily family) {
  std::vector<Spec> specs;
  if (family != KernelFamily::portable) {
    for (Spec spec : kSm90Tiles) {
      for (const auto& [m, n] : kMulticasts) {
        if (m * n > 1 && !worth_multicast(spec)) continue;
        spec.multicast_m = m;
        spec.multicast_n = n;
        for (const bool transposed : {false, true}) {
          spec.transposed = transposed;
          specs.push_back(spec);
        }
      }
    }
  }
  if (family != KernelFamily::sm90)
    specs.insert(specs.end(), std::begin(kPortableTiles), std::end(kPortableTiles));
  return specs;
}

bool is_plain(const Spec& tile) {
  return tile.multicast_m * tile.multicast_n == 1 && !tile.transposed && !tile.pingpong;
}

/// `tile` as it is, and in the ways that convolutions with few channels, or filters, have beside.
std::vector<Spec> variants(const Spec& tile, const GemmProblem& p) {
  std::vector<Spec> specs{tile};
  const auto few = [&](int64_t channels) {
    constexpr int64_t kFew = 64;  // bytes of a pixel: half of what the copy engine fetches
    return channels * int64_t(size_of(p.a.dtype)) <= kFew;
  };
  if (p.conv.kind == Conv::none || !is_plain(tile)) return specs;
  Spec gathering = tile;
  gathering.gather = tile.family == KernelFamily::sm90;
  const int64_t gathered = gathered_channels(p.conv);
  const bool narrow = gathered * size_of(p.a.dtype) % 16 != 0;  // not the copy engine's
  if (gathering.gather && (few(gathered) || narrow)) specs.push_back(gathering);
  if (p.conv.kind == Conv::dgrad && few(p.conv.channels)) {
    gathering.side_by_side = true;
    specs.push_back(gathering);
  }
  return specs;
}

/// Tiles more than twice as large as the output (of a group, on average) are left to smaller ones,
/// if there are any.
bool oversized(const Spec& s, const GemmProblem& p) {
  const auto size = [&](int64_t total, Grouping grouping) {
    return p.groups.dimension == grouping ? ceil_div(total, p.batch) : total;
  };
  int64_t classes = 1;
  for (const ConvAxis& axis : p.conv.axes) classes *= s.side_by_side ? axis.stride : 1;
  const int64_t rows = size(p.m, Grouping::m), columns = size(p.n, Grouping::n) * classes;
  const int64_t m = s.transposed ? columns : rows, n = s.transposed ? rows : columns;
  const bool tall = s.tile_m > 64 && m * 2 <= s.tile_m;
  // Operands that are contiguous along N come in strips of 128 bytes.
  const bool strips = p.conv.kind == Conv::dgrad || p.conv.kind == Conv::wgrad;
  const uint32_t least = s.family == KernelFamily::portable || strips ? 64 : 16;
  const bool wide = s.tile_n > least && n * 2 <= s.tile_n;
  return tall || wide || (s.multicast_m > 1 && m <= s.tile_m) ||
         (s.multicast_n > 1 && n <= s.tile_n);
}

/// Slice counts that leave the GPU full: from two to about one unit per multiprocessor.
std::vector<uint32_t> slice_counts(uint32_t tiles, uint32_t k_blocks, uint32_t multiprocessors,
                                   uint32_t most) {
  std::vector<uint32_t> counts;
  const auto add = [&](uint32_t count) {
    if (count >= 2 && count <= std::min(k_blocks, most)) counts.push_back(count);
  };
  for (const uint32_t count :
       {2u, 3u, 4u, 5u, 6u, 8u, 10u, 12u, 14u, 16u, 24u, 32u, 48u, 64u, 96u, 128u}) {
    if (uint64_t(count) * tiles <= 2ull * multiprocessors) add(count);
  }
  add(multiprocessors / std::max(tiles, 1u));
  add(2 * multiprocessors / std::max(tiles, 1u));
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

void add(std::vector<Choice>& out, const GemmProblem& problem, const DeviceInfo& device,
         const Spec& spec) {
  auto choice = make_choice(problem, device, spec);
  if (!choice) return;
  if (is_sliced(spec.split) && choice->schedule.slices < 2 &&
      problem.split_k_mode == SplitKMode::automatic) {
    return;  // the same as none
  }
  // Clusters beyond the portable size were never the best by more than noise, and how many fit
  // varies most by chip.
  if (problem.split_k_mode == SplitKMode::automatic && cluster_size(choice->config) > 8) return;
  choice->predicted_us = predict_us(*choice, device);
  out.push_back(std::move(*choice));
}

/// Parallel split-K whose clusters join first.
void add_clustered(std::vector<Choice>& out, const GemmProblem& problem, const DeviceInfo& device,
                   Spec spec) {
  for (const uint32_t cluster_k : kClusters) {
    if (spec.slices % cluster_k != 0 || spec.slices == cluster_k) continue;
    spec.cluster_k = cluster_k;
    add(out, problem, device, spec);
  }
}

void add_splits(std::vector<Choice>& out, const GemmProblem& problem, const DeviceInfo& device,
                Spec spec) {
  const SplitKMode mode = problem.split_k_mode;
  const bool any = mode == SplitKMode::automatic;
  const uint32_t given = uint32_t(problem.split_k_slices);
  const auto wants = [&](SplitKMode m) { return mode == m || any; };

  Spec unsplit = spec;
  unsplit.pingpong = false;
  const auto whole = make_choice(problem, device, unsplit);
  if (wants(SplitKMode::none) && given <= 1) add(out, problem, device, spec);
  if (!whole || spec.pingpong) return;
  const auto tiles = uint32_t(sharers(whole->config) * whole->tiles);
  const uint32_t k_blocks = whole->schedule.k_blocks;

  for (const SplitKMode m : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster}) {
    if (!wants(m) || (any && blocks_wait(m))) continue;
    spec.split = m;
    if (given > 0) {
      spec.slices = given;
      add(out, problem, device, spec);
      if (m == SplitKMode::parallel) add_clustered(out, problem, device, spec);
      continue;
    }
    const auto counts = slice_counts(tiles, k_blocks, device.multiprocessors,
                                     m == SplitKMode::cluster ? kMostClusterSlices : kMostSlices);
    for (const uint32_t slices : counts) {
      spec.slices = slices;
      add(out, problem, device, spec);
      if (m == SplitKMode::parallel) add_clustered(out, problem, device, spec);
    }
    if (counts.empty() && !any) {  // asked for by name, with nothing to split: one slice
      spec.slices = 1;
      add(out, problem, device, spec);
    }
  }
  if (wants(SplitKMode::stream_k)) {
    spec.split = SplitKMode::stream_k;
    spec.slices = std::max(given, 1u);
    if (!any || tiles % uint32_t(device.multiprocessors) != 0) add(out, problem, device, spec);
  }
}

/// In no order.
std::vector<Choice> consider(const GemmProblem& problem, const DeviceInfo& device) {
  std::vector<Choice> out;
  for (const bool all : {false, true}) {
    for (const Spec& tile : tiles(problem.kernel)) {
      for (const Spec& spec : variants(tile, problem)) {
        if (all || !oversized(spec, problem)) add_splits(out, problem, device, spec);
      }
    }
    // The portable kernel is for what the sm90 kernel cannot serve.
    const bool sm90 = std::any_of(out.begin(), out.end(), [](const Choice& c) {
      return c.config.family == KernelFamily::sm90;
    });
    if (sm90)
      std::erase_if(out, [](const Choice& c) { return c.config.family == KernelFamily::portable; });
    if (!out.empty()) break;
  }
  return out;
}

bool is_cheaper(const Choice& a, const Choice& b) {
  return a.predicted_us < b.predicted_us;
}

}  // namespace

std::vector<Choice> candidates(const GemmProblem& problem, const DeviceInfo& device) {
  std::vector<Choice> out = consider(problem, device);
  std::stable_sort(out.begin(), out.end(), is_cheaper);
  return out;
}

Cheapest cheapest(const GemmProblem& problem, const DeviceInfo& device) {
  const std::vector<Choice> out = consider(problem, device);
  const auto least = std::min_element(out.begin(), out.end(), is_cheaper);
  return {least == out.end() ? std::nullopt : std::optional(*least), out.size()};
}

bool is_listed(const Spec& spec) {
  Spec tile = spec;
  tile.split = SplitKMode::none;
  tile.slices = tile.cluster_k = 1;
  tile.multicast_m = tile.multicast_n = 1;
  tile.gather = tile.side_by_side = false;
  const std::vector<Spec> listed = tiles(spec.family);
  if (std::ranges::find(listed, tile) == listed.end()) return false;
  const bool sm90 = spec.family == KernelFamily::sm90;
  const auto shares = [&](const auto& shape) {
    return shape[0] == spec.multicast_m && shape[1] == spec.multicast_n;
  };
  const bool alone = spec.multicast_m == 1 && spec.multicast_n == 1;
  if (!alone && (!sm90 || std::ranges::none_of(kMulticasts, shares))) return false;
  // As variants() makes them: what lies side by side is gathered where that exists.
  if ((spec.gather || spec.side_by_side) && (!is_plain(spec) || spec.gather != sm90)) return false;
  const uint32_t most = spec.split == SplitKMode::none      ? 1
                        : spec.split == SplitKMode::cluster ? kMostClusterSlices
                                                            : kMostSlices;
  if (spec.split == SplitKMode::automatic || blocks_wait(spec.split)) return false;
  if (spec.slices < 1 || spec.slices > most) return false;
  return spec.cluster_k == 1 ||
         (spec.split == SplitKMode::parallel &&
          std::ranges::find(kClusters, spec.cluster_k) != std::end(kClusters) &&
          spec.slices % spec.cluster_k == 0);
}

std::vector<GemmConfig> all_configs(const DeviceInfo& device) {
  std::vector<GemmConfig> configs;
  const auto matrix = [](DType type, bool rows, int64_t m, int64_t n, uint32_t alignment = 16) {
    return rows ? MatrixLayout{type, n, 1, 0, alignment} : MatrixLayout{type, 1, m, 0, alignment};
  };
  // A problem that no dimension of makes special; `a`, `b`: types of the operands.
  const auto problem = [&](DType a, DType b, DType d, Major a_major = Major::k,
                           Major b_major = Major::k, uint32_t alignment = 16) {
    GemmProblem p;
    p.m = p.n = 1024;
    p.k = 4096;
    p.a = matrix(a, a_major == Major::k, p.m, p.k, alignment);
    p.b = matrix(b, b_major == Major::mn, p.k, p.n, alignment);
    p.c = p.d = matrix(d, true, p.m, p.n);
    p.bias_dtype = DType::f32;
    return p;
  };
  const auto visit = [&](const GemmProblem& p, SplitKMode split = SplitKMode::none,
                         bool all_sharings = false) {
    for (Spec spec : tiles(KernelFamily::automatic)) {
      spec.split = split;
      spec.slices = split == SplitKMode::none ? 1 : 8;
      if (p.a.alignment < 16 && spec.family == KernelFamily::sm90) continue;
      // Multicast and the order of D's stores do not depend on the rest: once each is enough.
      if (!all_sharings && (spec.transposed || spec.multicast_m * spec.multicast_n > 1)) continue;
      for (const Spec& variant : variants(spec, p)) {
        const auto choice = make_choice(p, device, variant);
        if (!choice) continue;
        const auto& config = choice->config;
        if (std::find(configs.begin(), configs.end(), config) == configs.end())
          configs.push_back(config);
      }
    }
  };

  constexpr Major majors[] = {Major::k, Major::mn};
  for (const Major a : majors) {
    for (const Major b : majors) {
      const bool base = a == Major::k && b == Major::k;
      for (const DType in : {DType::bf16, DType::f32})
        visit(problem(in, in, in, a, b), SplitKMode::none, base);
      visit(problem(DType::f16, DType::f16, DType::f16, a, b, 2), SplitKMode::none, base);
    }
  }
  for (const SplitKMode split :
       {SplitKMode::serial, SplitKMode::parallel, SplitKMode::cluster, SplitKMode::stream_k}) {
    for (const DType in : {DType::f16, DType::f32, DType::i8})
      visit(problem(in, in, DType::f32), split);
  }
  for (const Activation activation :
       {Activation::relu, Activation::gelu_tanh, Activation::gelu_erf, Activation::silu}) {
    GemmProblem p = problem(DType::bf16, DType::bf16, DType::bf16);
    p.activation = activation;
    p.bias = Bias::row;
    p.has_c = true;
    visit(p);
  }

  // 8-bit operands: every way to scale them, and to store what comes out.
  const auto scaled = [&](DType a, DType b, DType d, ScaleLayout scale_a, ScaleLayout scale_b,
                          bool fast = false) {
    GemmProblem p = problem(a, b, d);
    p.scale_a = scale_a;
    p.scale_b = scale_b;
    p.fast_accumulation = fast;
    return p;
  };
  constexpr ScaleLayout vector{.kind = Scaling::vector, .stride_row = 1};
  constexpr ScaleLayout lines{.kind = Scaling::block, .rows = 1, .stride_row = 1};
  constexpr ScaleLayout squares{.kind = Scaling::block, .rows = 128, .stride_row = 1};
  GemmProblem asymmetric = scaled(DType::i8, DType::i8, DType::bf16, vector, vector);
  asymmetric.has_zero = true;
  asymmetric.bias = Bias::row;
  visit(asymmetric);
  GemmProblem exact = problem(DType::i8, DType::i8, DType::i32);
  exact.has_c = true;
  visit(exact);
  visit(scaled(DType::e4m3, DType::e4m3, DType::bf16, vector, vector, true), SplitKMode::none,
        true);
  visit(scaled(DType::e5m2, DType::e4m3, DType::f32, vector, vector));
  GemmProblem chained = scaled(DType::e4m3, DType::e5m2, DType::e4m3, vector, vector);
  chained.has_scale_d = chained.has_amax = chained.has_c = true;
  visit(chained);
  visit(scaled(DType::e4m3, DType::e4m3, DType::bf16, lines, squares));
  visit(scaled(DType::e4m3, DType::e4m3, DType::bf16, squares, lines));
  visit(scaled(DType::e4m3, DType::e4m3, DType::f32, lines, lines));
  visit(scaled(DType::i8, DType::i8, DType::bf16, lines, squares));

  // Groups, as a mixture of experts has them: forward, data gradient, weight gradient.
  const auto grouped = [&](GemmProblem p, Grouping dimension) {
    p.batch = 64;
    p.groups.dimension = dimension;
    if (dimension == Grouping::m) p.b.stride_batch = p.k * p.n;
    if (dimension == Grouping::n) p.a.stride_batch = p.m * p.k;
    if (dimension == Grouping::k) p.c.stride_batch = p.d.stride_batch = p.m * p.n;
    return p;
  };
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::parallel, SplitKMode::stream_k}) {
    const bool all_sharings = split == SplitKMode::none;
    const GemmProblem tn = problem(DType::bf16, DType::bf16, DType::bf16);
    visit(grouped(tn, Grouping::m), split, all_sharings);
    visit(grouped(tn, Grouping::n), split);
    visit(grouped(problem(DType::bf16, DType::bf16, DType::bf16, Major::k, Major::mn), Grouping::m),
          split);
    GemmProblem gradient = problem(DType::bf16, DType::bf16, DType::f32, Major::mn, Major::mn);
    gradient.has_c = true;
    visit(grouped(gradient, Grouping::k), split, all_sharings);
  }
  GemmProblem feed_forward = problem(DType::bf16, DType::bf16, DType::bf16);
  feed_forward.activation = Activation::swiglu;
  feed_forward.b.stride_batch = 0;
  visit(feed_forward, SplitKMode::none, true);
  visit(grouped(feed_forward, Grouping::m));
  visit(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, vector, vector, true), Grouping::m));
  visit(grouped(scaled(DType::e4m3, DType::e4m3, DType::bf16, lines, squares), Grouping::m));
  GemmProblem scaled_gradient = scaled(DType::e4m3, DType::e4m3, DType::f32, lines, lines);
  scaled_gradient.groups.bounds = GroupBounds::aligned_ends;
  scaled_gradient.groups.spacing = kScaleBlock;
  for (const SplitKMode split : {SplitKMode::none, SplitKMode::stream_k})
    visit(grouped(scaled_gradient, Grouping::k), split);

  // Convolutions: one class and several, with and without depth, in all three directions.
  const auto convolution = [&](Conv kind, DType in, DType out, int32_t stride, bool depth = false,
                               Division division = Division::automatic) {
    const ConvAxis axis{.size = 28, .filter = 3, .stride = stride, .pad_begin = 1, .pad_end = 1};
    const ConvLayout conv{.kind = kind,
                          .images = 8,
                          .channels = 256,
                          .filters = 256,
                          .axes = {depth ? axis : ConvAxis{}, axis, axis},
                          .division = division};
    return implicit_gemm(conv, 1, in, out);
  };
  for (const Conv kind : {Conv::fprop, Conv::dgrad, Conv::wgrad}) {
    visit(convolution(kind, DType::f16, DType::f16, 2), SplitKMode::none, true);
    visit(convolution(kind, DType::bf16, DType::f32, 1), SplitKMode::parallel);
    visit(convolution(kind, DType::f32, DType::f32, 2));
    visit(convolution(kind, DType::bf16, DType::bf16, 2, true));
  }
  for (const SplitKMode split : {SplitKMode::serial, SplitKMode::parallel, SplitKMode::stream_k})
    visit(convolution(Conv::dgrad, DType::bf16, DType::bf16, 2), split);
  visit(convolution(Conv::fprop, DType::i8, DType::i32, 2));
  for (const Division division : {Division::plain, Division::fast_load})
    visit(convolution(Conv::dgrad, DType::f16, DType::f16, 2, false, division));
  // Few channels.
  for (const Conv kind : {Conv::fprop, Conv::dgrad, Conv::wgrad}) {
    for (const int64_t few : {8, 6, 3}) {
      GemmProblem stem = convolution(kind, DType::f16, DType::f16, 2);
      stem.conv.channels = few;
      visit(implicit_gemm(stem.conv, 1, DType::f16, DType::f16), SplitKMode::none);
      visit(implicit_gemm(stem.conv, 1, DType::f16, DType::f16), SplitKMode::parallel);
      if (kind != Conv::dgrad) continue;
      stem.conv.channels = 64;
      stem.conv.filters = few;
      visit(implicit_gemm(stem.conv, 1, DType::f16, DType::f16), SplitKMode::none);
    }
  }
  // float32 as it is: the portable kernel with another multiplication.
  const auto ieee = [](GemmProblem p) {
    p.precision = Precision::ieee;
    return p;
  };
  for (const Major a : majors) {
    for (const Major b : majors) visit(ieee(problem(DType::f32, DType::f32, DType::f32, a, b)));
  }
  for (const SplitKMode split : {SplitKMode::parallel, SplitKMode::stream_k})
    visit(ieee(problem(DType::f32, DType::f32, DType::f32, Major::mn, Major::mn)), split);
  visit(ieee(
      grouped(problem(DType::f32, DType::f32, DType::f32, Major::mn, Major::mn), Grouping::k)));
  for (const Conv kind : {Conv::fprop, Conv::dgrad, Conv::wgrad})
    visit(ieee(convolution(kind, DType::f32, DType::f32, 2)));
  GemmProblem transposed_layer = convolution(Conv::dgrad, DType::bf16, DType::bf16, 2);
  transposed_layer.bias = Bias::row;
  transposed_layer.has_c = true;
  transposed_layer.activation = Activation::silu;
  visit(transposed_layer);
  return configs;
}

}  // namespace cleave
