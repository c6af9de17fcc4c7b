#include "plan/cost/weight_cost.h"

#include <algorithm>

#include "cleave/memory/weight_layout.h"

namespace cleave {
namespace {

// For a block of 64 x 64, on an H200 (docs/notes/2026-11-four-bit-weights.md).
constexpr double kInstructionClocks = 1.36;  // for each instruction of a thread,
constexpr double kAlone = 1.6;               // times more where no other warpgroup's hide their latency,
constexpr double kOfFour = 0.86;             // and less where four do
constexpr double kMultiplied = 0.35;         // of the multiplication that nothing hides
constexpr double kStartOfFourUs = 0.7;       // until as many have begun, and are done
// Beside what slices cost other kernels: those that meet through memory, and for each pair of a cluster's.
constexpr double kMeetingUs = 0.9, kPairUs = 0.1;

/// Whether an instruction multiplies the columns of one group, half of its own (weights/mainloop.h).
bool multiplies_twice(const GemmConfig& c) {
  return c.scales.promote && c.weights.group < 32;
}

/// About as many as the compiler makes beside few columns (docs/notes/2026-11-four-bit-weights.md).
double instructions(const GemmConfig& c) {
  const bool int4 = c.weights.format == WeightFormat::int4, integers = c.operands.a == DType::i8;
  // Additions beside them, of 2 (4) instructions a column, wait for the tensor cores besides.
  if (multiplies_twice(c)) return integers ? 140 + 3.8 * c.tile.n : 100 + 2.5 * c.tile.n;
  if (integers) return !int4 ? 110 : c.weights.has_zero ? 64 : 56;
  if (c.operands.a == DType::e4m3) return int4 ? 84 : 76;
  if (c.weights.format == WeightFormat::nvfp4) return 156;
  if (!int4) return 126;
  return (c.operands.a == DType::bf16 ? 76 : 96) + (c.weights.has_zero ? 16 : 0);
}

}  // namespace

double stored_share_of_a(const GemmConfig& c) {
  return has_weights(c) ? 0.5 / size_of(c.operands.a) : 1;
}

double with_dequantising(const GemmConfig& c, double multiply) {
  if (!has_weights(c)) return multiply;
  const double blocks = double(c.tile.m) * c.tile.k / (kWeightBlock * kWeightBlock);
  const double hidden = c.warps.consumers == 1 ? kAlone : c.warps.consumers == 4 ? kOfFour : 1;
  const double make = blocks * kInstructionClocks * instructions(c) * hidden;
  const double multiplied = multiplies_twice(c) ? 2 * multiply : multiply;
  return std::max(multiplied, make + kMultiplied * multiplied);
}

double beside_weights_us(const GemmConfig& c) {
  const double start = c.warps.consumers == 4 ? kStartOfFourUs : 0;
  if (!has_weights(c) || c.schedule.split == SplitKMode::none) return start;
  const double pairs = c.cluster.k * (c.cluster.k - 1) / 2.0;
  return start + pairs * kPairUs + (c.schedule.split == SplitKMode::cluster ? 0 : kMeetingUs);
}

}  // namespace cleave
