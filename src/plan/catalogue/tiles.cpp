#include "plan/catalogue/tiles.h"

#include <algorithm>

#include "plan/choice/conv_choice.h"
#include "problem/problem.h"

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

// For weight gradients whose filters tiles of 128 rows do not divide, 160 and 320 of them, say: D^T has them as
// columns.
constexpr Spec kSm90TurnedTiles[] = {
    {.transposed = true, .tile_m = 128, .tile_n = 80},  {.transposed = true, .tile_m = 192, .tile_n = 80},
    {.transposed = true, .tile_m = 192, .tile_n = 96},  {.transposed = true, .tile_m = 192, .tile_n = 160},
    {.transposed = true, .tile_m = 256, .tile_n = 80},  {.transposed = true, .tile_m = 256, .tile_n = 96},
    {.transposed = true, .tile_m = 256, .tile_n = 160},
};

// Where pixels come in half lines, since they have 96 channels: so have what they make.
constexpr Spec kSm90HalfLineTiles[] = {{.tile_m = 256, .tile_n = 96}};

// For packed weights alone: four warpgroups make elements, and multiply them. Sharing loads never paid.
constexpr Spec kSm90WeightTiles[] = {
    {.transposed = true, .tile_m = 256, .tile_n = 16},
    {.transposed = true, .tile_m = 256, .tile_n = 32},
    {.transposed = true, .tile_m = 256, .tile_n = 48},
    {.transposed = true, .tile_m = 256, .tile_n = 64},
};

// For sums of 8-bit floats that TMA adds: wider than 128 columns, the scales of which a thread still holds.
constexpr Spec kSm90AddedTiles[] = {{.tile_m = 128, .tile_n = 152}};

constexpr Spec kPortableTiles[] = {
    {.family = KernelFamily::portable, .tile_m = 64, .tile_n = 64},
    {.family = KernelFamily::portable, .tile_m = 128, .tile_n = 128},
};

// Where the 128 columns of D that share a scale are of gates and of ups.
constexpr Spec kPortableQuantisedTiles[] = {{.family = KernelFamily::portable, .tile_m = 64, .tile_n = 256}};

constexpr Spec kStreamedTiles[] = {
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 16, .tile_n = 8},
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 16, .tile_n = 16},
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 32, .tile_n = 8},
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 32, .tile_n = 16},
    {.family = KernelFamily::streamed, .transposed = true, .tile_m = 64, .tile_n = 8},
};

constexpr uint32_t kMulticasts[][2] = {{1, 1}, {2, 1}, {1, 2}};

/// Gradients of 8-bit floats, each line of which has scales of its own.
bool adds_scaled_lines(const GemmProblem& p) {
  const bool singly = p.scale_a.kind == Scaling::block && p.scale_a.rows == 1 && p.scale_b.rows == 1;
  return p.groups.dimension == Grouping::k && p.has_c && is_fp8(p.a.dtype) && singly;
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

bool worth_multicast(const Spec& tile) {
  return tile.tile_m * tile.tile_n >= 64 * 64;
}

std::vector<Spec> tiles(const GemmProblem& problem) {
  std::vector<Spec> specs = tiles(problem.kernel, is_product(problem));
  const bool sm90 = problem.kernel == KernelFamily::automatic || problem.kernel == KernelFamily::sm90;
  if (problem.conv.kind == Conv::wgrad && sm90) {
    specs.insert(specs.end(), std::begin(kSm90GradientTiles), std::end(kSm90GradientTiles));
    for (Spec tile : kSm90TurnedTiles) {
      specs.push_back(tile);
      tile.multicast_m = 2;
      specs.push_back(tile);
    }
  }
  if (sm90 && adds_scaled_lines(problem))
    specs.insert(specs.end(), std::begin(kSm90AddedTiles), std::end(kSm90AddedTiles));
  if (sm90 && may_halve_lines(problem, {.half_lines = true}))
    for (const Spec& tile : kSm90HalfLineTiles) add_sharings(specs, tile);
  const bool portable = problem.kernel == KernelFamily::automatic || problem.kernel == KernelFamily::portable;
  if (portable && is_gated(problem) && finds_scales(problem))
    specs.insert(specs.end(), std::begin(kPortableQuantisedTiles), std::end(kPortableQuantisedTiles));
  // A low-rank adapter's first product has one column of tiles: four pairs of a tile took 5 to 8 % longer in step.
  const bool narrow = problem.groups.dimension == Grouping::m && problem.n <= 64;
  if (narrow) std::erase_if(specs, [](const Spec& tile) { return tile.multicast_m * tile.multicast_n > 1; });
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

bool is_tile(Spec tile) {
  tile.multicast_m = tile.multicast_n = 1;
  std::vector<Spec> all = tiles(tile.family, true);
  all.insert(all.end(), std::begin(kSm90WeightTiles), std::end(kSm90WeightTiles));
  all.insert(all.end(), std::begin(kPortableQuantisedTiles), std::end(kPortableQuantisedTiles));
  all.insert(all.end(), std::begin(kSm90TurnedTiles), std::end(kSm90TurnedTiles));
  all.insert(all.end(), std::begin(kSm90AddedTiles), std::end(kSm90AddedTiles));
  return std::ranges::find(all, tile) != all.end();
}

bool is_multicast(uint32_t m, uint32_t n) {
  return std::ranges::any_of(kMulticasts, [&](const auto& shape) { return shape[0] == m && shape[1] == n; });
}

}  // namespace cleave
