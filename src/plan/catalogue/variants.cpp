#include "plan/catalogue/variants.h"

#include "cleave/conv.h"
#include "launch/conv_grid.h"
#include "plan/catalogue/tiles.h"
#include "plan/choice/conv_choice.h"
#include "plan/choice/operand_layout.h"
#include "problem/problem.h"

namespace cleave {
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

bool is_plain(const Spec& tile) {
  return tile.multicast_m * tile.multicast_n == 1 && !tile.transposed && !tile.pingpong;
}

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

}  // namespace cleave
