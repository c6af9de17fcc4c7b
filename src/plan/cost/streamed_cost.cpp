#include "plan/cost/streamed_cost.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/weight_lines.h"
#include "plan/cost/cost.h"
#include "problem/problem.h"

namespace cleave {
namespace {

// On an H200 (docs/notes/2026-11-four-bit-weights.md).
constexpr double kBlockClocks = 53;       // of 16 x 128 codes and 8 columns, by a CTA's warps together,
constexpr double kColumnsClocks = 50;     // and of each further 8 columns
constexpr double kOfElements = 2.0;       // times more where elements are made: codes of e2m1
constexpr double kTileClocks = 900;       // of a tile: to hand it over, and to find the next one
constexpr double kStartUs = 4.8;          // of a launch, until the ring is full,
constexpr double kFillBytesPerUs = 94e3;  // bytes of B that a CTA copies meanwhile, or between tiles
constexpr double kMemoryEfficiency = 0.92;
constexpr double kSustainedClock = 0.80;  // of the maximum

// As the other families have them; nothing of these was measured on this one.
constexpr double kReadAgain = 0.25;  // share of an operand that a second tile reads from memory again
constexpr double kExposed = 0.1;     // of what does not bind groups, which go on tile by tile
constexpr double kJoinUs = 0.9;      // until the last slice is seen by those that add them up
constexpr double kPartialBytesPerClock = 23;

class StreamedPrediction {
 public:
  StreamedPrediction(const Choice& choice, const DeviceInfo& device)
      : choice_(choice),
        device_(device),
        clock_(device.clock_ghz * 1e3 * kSustainedClock),
        slice_blocks_(ceil_div(s_.k_blocks, s_.slices)),
        cta_tiles_(std::ceil(choice.tiles * s_.slices / s_.clusters)) {}

  double us() const {
    const double on_chip = on_chip_us(), memory = memory_us();
    const double exposed = grouped_ ? kExposed * std::min(on_chip, memory) : 0;
    return kStartUs + fill_us() + std::max(on_chip, memory) + exposed + join_us();
  }

 private:
  /// B's columns are copied once, or, where a work tile's k blocks of them are more than stay, for each.
  double fill_us() const {
    const double lines = slice_blocks_ * std::min<double>(choice_.problem.n, c_.tile.n);
    const double fills = lines > double(c_.tile.stages) * c_.tile.n ? cta_tiles_ : 1;
    return fills * lines * c_.tile.k * size_of(c_.operands.b) / kFillBytesPerUs;
  }

  /// Time of the busiest CTA, whose warps go on to the next tile together.
  double on_chip_us() const {
    const double made = scales_sums(c_) ? 1 : kOfElements;
    const double columns = kBlockClocks * made + (c_.tile.n / 8 - 1) * kColumnsClocks;
    const double block = c_.tile.m / 16.0 * c_.tile.k / kWidestWeightGroup * columns;
    return cta_tiles_ * (round_up(slice_blocks_, c_.warps.k) * block + kTileClocks) / clock_;
  }

  double memory_us() const {
    const double bytes = grouped_ ? minimum_bytes(choice_.problem) : memory_bytes(choice_, kReadAgain);
    const double us = bytes / (device_.memory_gb_per_s * 1e3 * kMemoryEfficiency);
    const double codes = choice_.tiles * s_.k_blocks * c_.tile.m * c_.tile.k / 2;
    return grouped_ ? std::max(us, grouped_l2_us(bytes, codes)) : us;
  }

  /// Slices' partial tiles are written, and read by those that are there.
  double join_us() const {
    if (s_.mode == SplitKMode::none) return 0;
    const double tile_us = c_.tile.m * c_.tile.n * sizeof(float) / kPartialBytesPerClock / clock_;
    return kJoinUs + tile_us * (cta_tiles_ + s_.slices / joining_ctas(choice_, device_));
  }

  const Choice& choice_;
  const DeviceInfo& device_;
  const GemmConfig& c_ = choice_.config;
  const ScheduleShape& s_ = choice_.schedule;
  const bool grouped_ = s_.grouping != Grouping::none;
  const double clock_;
  const uint32_t slice_blocks_;
  const double cta_tiles_;  // of the busiest one
};

}  // namespace

double predict_streamed_us(const Choice& choice, const DeviceInfo& device) {
  return StreamedPrediction(choice, device).us();
}

}  // namespace cleave
