#include "plan/cost/cost.h"

#include <algorithm>
#include <cmath>

#include "cleave/config/clusters.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/reads_ahead.h"
#include "cleave/config/scale_lines.h"
#include "cleave/config/staged_c.h"
#include "cleave/config/threads.h"
#include "cleave/split_k/fixup_word.h"
#include "launch/conv_grid.h"
#include "plan/choice/resident_clusters.h"
#include "plan/choice/tile_shape.h"
#include "plan/cost/product_cost.h"
#include "plan/cost/product_residual.h"
#include "plan/cost/streamed_cost.h"
#include "plan/cost/weight_cost.h"
#include "plan/direct/choice.h"
#include "plan/plans/quantize_apart.h"
#include "problem/problem.h"

namespace cleave {
namespace {

// Hopper. What no data sheet gives was fitted to measurements on an H100
// (docs/notes/cost-model.md).
constexpr double kFlopsPerClock16 = 4096;      // of one SM's tensor cores, 16-bit; tf32 has half, 8-bit twice that
constexpr double kFlopsPerClockIeee = 256;     // of its 128 lanes, which multiply and add float32
constexpr double kIeeeOverhead = 1.3;          // of reading operands and addresses, not yet measured
constexpr double kPortableOverhead = 2;        // of mma.sync, beside WGMMA
constexpr double kPartsOverhead = 3.4;         // of float32 in parts: one H200, bf16x3 in tiles of 128 x 128
constexpr double kPartsClocks = 2300;          // of a k block, however small its tile is: the same, 64 x 64
constexpr double kSustainedClock = 0.80;       // of the maximum, under tensor-core load
constexpr double kMultiplyOverhead = 1.12;     // of the instructions' own clocks
constexpr double kPingpongOverhead = 1.06;     // of groups and convolutions, two waves, K-major
constexpr double kBlockClocks = 34;            // per k block: its barriers
constexpr double kPromoteClocks = 0.7;         // per accumulator of a thread, beside the multiplication
constexpr double kPromoteSinglyClocks = 1.9;   // where every column has a scale of its own
constexpr double kPromoteExposedClocks = 1.6;  // where no second part multiplies meanwhile
constexpr double kPromoteAloneClocks = 3;      // where no other warpgroup multiplies meanwhile
constexpr double kL2BytesPerClock = 64;        // one SM reading L2
constexpr double kL2TotalBytesPerUs = 8.75e6;
constexpr double kL2GroupedBytesPerUs = 12.5e6;  // whose tiles follow each other group by group
constexpr double kL2ConvBytesPerUs = 12.5e6;     // neighbours read the same pixels, tap after tap
constexpr double kPixelClocks = 2.5;             // of im2col, for 128 bytes
constexpr double kPixelDownClocks = 3.4;         // where pixels run along K
constexpr double kEmptyPixelClocks = 8;          // where some of them, or their use, is nothing
constexpr double kHalfLineClocks = 1.55;         // of a row of 64 bytes, of either operand,
constexpr double kHalfLineDownClocks = 1.75;     // where pixels run along K, and
constexpr double kThreeAxes = 1.15;              // times as long where there is depth
constexpr double kGatherClocks = 150;            // of gathering by threads, each k block
constexpr double kVectorClocks = 105;            // of 16 bytes, by each of the threads that copy
constexpr double kListedVectorClocks = 155;      // the same of a row that a list names, beside WGMMA's reads
constexpr double kUnalignedVectorClocks = 150;   // of 16 bytes put together from narrower reads,
constexpr double kReadClocks = 55;               // and of each of those
constexpr double kGatherByThreads = 2.7;         // the portable kernel's pixels, in tensor-core multiplications
constexpr double kGatherByElement = 4.6;         // times as long, where no copy has 4 bytes
constexpr double kConvShare = 1.25;              // CTAs in step gather slower than each for itself
constexpr double kL2FillBytesPerUs = 5.8e6;      // from memory
constexpr double kMemoryEfficiency = 0.85;
constexpr double kReadAgain = 0.25;   // share of an operand that a second tile reads from memory again
constexpr double kShareClocks = 350;  // CTAs that share loads wait for each other's tiles
constexpr double kExposed = 0.1;
constexpr double kLateC = 1.18;    // of groups' tiles of one k block: C is waited for, unless two tiles take turns,
constexpr double kAcrossC = 1.06;  // and comes column by column where the product is transposed
constexpr double kLateGradients = 1.1;  // of groups of K, whose C does not come while they are multiplied; if it does
constexpr double kSharedGradients = 0.92;     // and operands are shared: with D and C, they are what L2 is busy with
constexpr double kShallowAdded = 1.15;        // of groups of K that TMA adds though they are not deep (tile_shape.h)
constexpr double kLateRows = 256;             // of a group, from which on that was measured
constexpr double kLaunchUs = 1.5;             // start, tensor maps, barriers, the last CTA's drain
constexpr double kFirstBytesUs = 0.5;         // from the first load to the first multiplication
constexpr double kSignalUs = 0.9;             // a release in one CTA seen by an acquire in another
constexpr double kClusterUs = 0.75;           // a cluster's launch and its join's latency
constexpr double kPartialBytesPerClock = 23;  // one SM moving partials
constexpr double kStreamPenalty = 1.33;       // clusters at different places along K share nothing in L2
constexpr double kTileClocks = 460;           // of an epilogue, beside its elements
constexpr double kStoreTmaClocks = 3.5;       // per accumulator of a thread
constexpr double kStoreDirectClocks = 55;
constexpr double kReadCClocks = 1200;      // a trip to memory for C, of weight gradients
constexpr double kStoreRunClocks = 14;     // of fused classes from shared memory, not yet measured
constexpr double kStoreApartClocks = 170;  // of fused classes: each to a pixel of its own
constexpr double kStreamConv = 1.02;       // of the whole: a walk by position costs divisions

double clock_per_us(const DeviceInfo& device) {
  return device.clock_ghz * 1000 * kSustainedClock;
}

double flops_per_clock(DType type, Precision precision) {
  if (precision == Precision::ieee) return kFlopsPerClockIeee;
  if (precision == Precision::bf16x3) return kFlopsPerClock16 / 3;
  return kFlopsPerClock16 * 2 / size_of(type) / (precision == Precision::tf32x3 ? 3 : 1);
}

/// Clocks in which a CTA of the portable kernel multiplies one k block.
double portable_clocks(const GemmConfig& c, Precision precision) {
  const double clocks = 2.0 * c.tile.m * c.tile.n * c.tile.k / flops_per_clock(c.operands.a, precision);
  if (in_parts(precision)) return std::max(kPartsOverhead * clocks, kPartsClocks);
  return clocks * (precision == Precision::ieee ? kIeeeOverhead : kPortableOverhead);
}

/// Clocks in which one CTA multiplies one k block.
double multiply_clocks(const GemmConfig& c) {
  if (!has_wgmma(c.family)) return portable_clocks(c, c.operands.precision);
  // An instruction of 64 x N x 32 bytes takes N / 2 clocks, or as long as its operands take through
  // shared memory (128 bytes a clock): 16 clocks for A, N / 4 for B.
  const double instruction = std::max(c.tile.n / 2.0, 16 + c.tile.n / 4.0);
  const double waves = c.tile.m / 64.0;
  const double multiply = waves * (c.tile.k * size_of(c.operands.a) / 32.0) * instruction;
  const bool singly = c.epilogue.scaling == Scaling::block && c.scales.rows_b == 1;
  const bool exposed = c.warps.consumers < 3 && c.tile.m == 64 * c.warps.consumers && !promotes_two_parts(c);
  const double promote_clocks = c.warps.pingpong ? kPromoteAloneClocks
                                : singly         ? kPromoteSinglyClocks
                                : exposed        ? kPromoteExposedClocks
                                                 : kPromoteClocks;
  const double promote = c.scales.promote ? waves * c.tile.n / 2.0 * promote_clocks : 0;
  const bool smooth = (c.conv.kind != Conv::none || c.schedule.grouping != Grouping::none) &&
                      c.operands.a_major == Major::k &&
                      (c.operands.b_major == Major::k || c.schedule.grouping == Grouping::classes);
  const double overhead =
      c.warps.pingpong && !c.scales.promote && waves > 1 && smooth ? kPingpongOverhead : kMultiplyOverhead;
  return kBlockClocks + with_dequantising(c, multiply * overhead) + promote;
}

/// Clocks in which one CTA fetches its share of one k block in half lines, which TMA takes row by row.
double half_line_clocks(const GemmConfig& c) {
  const double lines = double(c.tile.k) / pixel_line(c), atom = atom_elements(c.operands.a);
  const double a = gathers_a(c) ? c.tile.m * lines : c.tile.k * c.tile.m / atom;
  const double b = gathers_b(c)                     ? double(c.tile.k) * c.tile.n / pixel_line(c)
                   : c.operands.b_major == Major::k ? c.tile.n * lines
                                                    : double(c.tile.k) * stage_columns(c) * 2 / line_bytes_of_b(c);
  const double rows = a / c.cluster.multicast_n + b / c.cluster.multicast_m;
  return rows * (gathers_a(c) ? kHalfLineClocks : kHalfLineDownClocks) * (c.conv.axes == 3 ? kThreeAxes : 1);
}

/// Clocks in which one CTA fetches one k block of a convolution.
double gather_clocks(const GemmConfig& c, const GemmProblem& p) {
  if (c.conv.half_lines) return half_line_clocks(c);
  const double rows = pixels_of_tile(c);
  const double pixels = has_taps_along_k(c) ? rows : c.tile.k * rows / atom_elements(c.operands.a);
  const double boxes = has_taps_along_k(c) ? double(c.tile.k) / atom_elements(c.operands.a) : 1;
  if (!has_tma(c.family) || !c.conv.gather) {
    const bool partly_empty = gathered_channels(p.conv) < atom_elements(c.operands.a);
    if (!has_tma(c.family)) {
      const bool by_element = std::min(c.operands.load_bytes_a, c.operands.load_bytes_b) < 4;
      return (by_element ? kGatherByElement : 1) * kGatherByThreads * portable_clocks(c, Precision::tf32);
    }
    const double full = has_taps_along_k(c) ? kPixelClocks : kPixelDownClocks;
    return pixels * boxes * (partly_empty ? kEmptyPixelClocks : full);
  }
  if (c.conv.fuses_classes) return pixels * boxes * kEmptyPixelClocks;
  const double reads = 16.0 / (gathers_a(c) ? c.operands.load_bytes_a : c.operands.load_bytes_b);
  const double vector = copies_unaligned(c) ? kUnalignedVectorClocks + kReadClocks * reads : kVectorClocks;
  return kGatherClocks + vector * pixels * 128 / 16 / copy_threads(c);
}

/// Clocks in which one CTA copies the rows of one k block that a list names.
double list_clocks(const GemmConfig& c) {
  if (!has_tma(c.family) || !c.operands.listed) return 0;
  const double rows = lists_a(c) ? c.tile.m : c.tile.n;
  return kGatherClocks + kListedVectorClocks * rows * c.tile.k * size_of(c.operands.a) / 16 / threads_beside(c);
}

double load_bytes(const GemmConfig& c) {
  return (c.tile.m * stored_share_of_a(c) / c.cluster.multicast_n + double(c.tile.n) / c.cluster.multicast_m) *
         c.tile.k * size_of(c.operands.a);
}

/// Clocks in which a tile waits for C. It was not measured for other products than those of groups of K.
double read_clocks(const GemmConfig& c) {
  if (!c.epilogue.has_c || c.schedule.grouping != Grouping::k || c.store.adds) return 0;
  return kReadCClocks * ceil_div(accumulators_per_thread(c) / 4, blocks_ahead(c));
}

double epilogue_clocks(const GemmConfig& c) {
  const double store = c.store.by_tma          ? kStoreTmaClocks
                       : c.store.adds          ? 2 * kStoreTmaClocks
                       : c.store.run_bytes > 0 ? kStoreRunClocks
                       : c.conv.fuses_classes  ? kStoreApartClocks
                                               : kStoreDirectClocks;
  return kTileClocks + accumulators_per_thread(c) * store + read_clocks(c);
}

/// CTAs at the same time.
double concurrent(const Choice& choice, const DeviceInfo& device) {
  return std::min<double>(choice.blocks, device.num_sms);
}

/// What a launch is predicted to take if D has so many tiles.
class Prediction {
 public:
  Prediction(const Choice& choice, const DeviceInfo& device, double tiles)
      : choice_(choice),
        device_(device),
        tiles_(tiles),
        clock_(clock_per_us(device)),
        sharers_(sharers(c_)),
        conv_(c_.conv.kind != Conv::none),
        grouped_(s_.grouping != Grouping::none && !conv_),
        streamed_(s_.grouping == Grouping::k ? tiles_ : s_.stream_tiles) {
    find_busiest();
  }

  ProductTime time() const {
    const double on_chip = on_chip_us(), memory = memory_us(), reduction = reduction_us();
    // Tile by tile, groups and classes are bound by one or the other: not all of the lesser hides.
    const double exposed = grouped_ || conv_ ? kExposed * std::min(on_chip, memory) : 0;
    const double us = (kLaunchUs + kFirstBytesUs + std::max(on_chip, memory) + exposed + reduction) * late_c();
    return {.on_chip = on_chip,
            .l2 = 0,
            .memory = memory,
            .power = 0,
            .epilogues = cluster_tiles_ * epilogue_clocks(c_) / clock_,
            .reduction = reduction,
            .us = us};
  }

 private:
  bool is_ragged() const { return s_.grouping == Grouping::m || s_.grouping == Grouping::n; }

  /// How much longer a product takes that adds to C, such as a low-rank adapter's second one, or gradients.
  double late_c() const {
    const GemmProblem& p = choice_.problem;
    if (s_.grouping == Grouping::k) {
      if (!c_.epilogue.has_c || !has_wgmma(c_.family)) return 1;
      if (c_.store.adds) return s_.k_blocks < kDeepBlocks ? kShallowAdded : 1;
      return !stages_c(c_) ? kLateGradients : sharers_ > 1 && c_.scales.promote ? kSharedGradients : 1;
    }
    const double rows = double(s_.grouping == Grouping::m ? p.m : p.n) / double(p.batch);
    if (!is_ragged() || s_.k_blocks > 1 || !c_.epilogue.has_c || rows < kLateRows) return 1;
    return (c_.warps.pingpong ? 1 : kLateC) * (choice_.spec.transposed ? kAcrossC : 1);
  }

  void find_busiest() {
    if (s_.mode == SplitKMode::stream_k && is_ragged()) {
      cut_tail();
      return;
    }
    if (s_.mode == SplitKMode::stream_k) {
      k_blocks_ = s_.k_blocks * ((tiles_ - streamed_) + kStreamPenalty * streamed_) / s_.clusters;
      cluster_tiles_ = std::ceil(tiles_ / s_.clusters);
      return;
    }
    const double resident = resident_clusters(cluster_size(c_), device_);
    const double clusters = std::min<double>(s_.clusters, resident) * s_.slices_per_cluster / s_.slices;
    cluster_tiles_ = std::ceil(tiles_ / clusters);
    k_blocks_ = cluster_tiles_ * c_.schedule.turns * ceil_div(s_.k_blocks, s_.slices);
  }

  /// stream_k of groups of M or N: their last wave is as long as a part.
  void cut_tail() {
    const double clusters = s_.clusters, k_blocks = s_.k_blocks;
    const double waves = std::floor(tiles_ / clusters), last = std::ceil(tiles_ - waves * clusters);
    const double parts = tail_parts(uint32_t(last), s_.clusters, s_.k_blocks);
    cluster_tiles_ = std::ceil(tiles_ / clusters);
    k_blocks_ = k_blocks * (waves + (last > 0 ? 1 / parts : 0));
    parts_ = parts > 1 ? parts : 0;
  }

  /// Clocks of one k block in the mainloop.
  double block_clocks() const {
    const double l2_bytes_per_us = conv_ ? kL2ConvBytesPerUs : grouped_ ? kL2GroupedBytesPerUs : kL2TotalBytesPerUs;
    const double l2_clocks = std::max(load_bytes(c_) / kL2BytesPerClock,
                                      load_bytes(c_) * concurrent(choice_, device_) / l2_bytes_per_us * clock_);
    const double clocks = std::max({multiply_clocks(c_), l2_clocks, list_clocks(c_)});
    return conv_ ? std::max(clocks, gather_clocks(c_, choice_.problem)) : clocks;
  }

  /// Time of the busiest cluster.
  double on_chip_us() const {
    double mainloop = k_blocks_ * block_clocks();
    double epilogue = cluster_tiles_ * epilogue_clocks(c_);
    if (grouped_ && sharers_ > 1) epilogue += cluster_tiles_ * kShareClocks;
    const bool bound_by_rows = c_.conv.half_lines && c_.conv.axes == 3;  // which they share
    if (conv_ && sharers_ > 1 && !bound_by_rows) mainloop *= kConvShare;
    if (conv_ && s_.mode == SplitKMode::stream_k) mainloop *= kStreamConv;
    if (c_.warps.pingpong) epilogue = std::max(epilogue_clocks(c_), epilogue - mainloop * 0.9);
    return (mainloop + epilogue) / clock_;
  }

  double memory_us() const {
    const double bytes = conv_ || grouped_ ? minimum_bytes(choice_.problem) : memory_bytes(choice_, kReadAgain);
    const double us = bytes / (device_.memory_gb_per_s * 1e3 * kMemoryEfficiency);
    const double loaded = tiles_ * sharers_ * s_.k_blocks * load_bytes(c_);
    return grouped_ ? std::max(us, grouped_l2_us(bytes, loaded)) : us;
  }

  /// Adding up partial tiles.
  double reduction_us() const {
    const double tile_us = double(c_.tile.m) * c_.tile.n * 4 / kPartialBytesPerClock / clock_;
    double us = cluster_size(c_) > 1 ? kClusterUs : 0;
    if (c_.cluster.k > 1) us += tile_us;  // sent to the other ranks
    switch (s_.mode) {
      case SplitKMode::serial:
        return us + s_.slices * (2 * tile_us + kSignalUs);
      case SplitKMode::parallel:
        return us + (cluster_tiles_ * tile_us / c_.cluster.k + kSignalUs +
                     double(s_.slices) / s_.slices_per_cluster * tile_us / joining_ctas(choice_, device_));
      case SplitKMode::stream_k:
        if (is_ragged()) return us + (parts_ > 0 ? kSignalUs + tile_us * (1 + parts_) : 0);
        if (streamed_ == 0) return us;
        return us + (kSignalUs + tile_us * (1 + std::ceil(s_.clusters / streamed_)));
      default:
        return us;
    }
  }

  const Choice& choice_;
  const DeviceInfo& device_;
  const GemmConfig& c_ = choice_.config;
  const ScheduleShape& s_ = choice_.schedule;
  const double tiles_;
  const double clock_, sharers_;
  const bool conv_, grouped_;
  const double streamed_;
  double k_blocks_ = 0, cluster_tiles_ = 0;  // the busiest cluster's
  double parts_ = 0;                         // of a tile of the last wave that are added up
};

/// A kernel behind the product's.
double apart_us(const Choice& choice, const DeviceInfo& device) {
  return choice.spec.apart ? quantize_apart_us(choice.problem, choice.spec.halves, device) : 0.0;
}

/// What the model and its trees err by where scales of D are found, of which no pairs were measured for them. From an
/// H200 (docs/notes/2026-11-quantised-outputs.md).
double found_scales_factor(const Choice& choice) {
  const GemmConfig& c = choice.config;
  if (!c.epilogue.has_scale_out || !has_tma(c.family)) return 1.0;
  const bool two_bytes = size_of(c.operands.a) == 2;
  if (pairs_scales(c) && c.tile.m == 64) return 1.1;
  if (c.scales.promote) {
    if (c.warps.pingpong) return 1.12;
    if (c.tile.m == 64) return 1.0;
    if (c.tile.m == 192) return 0.92;
    return c.tile.m == 128 && c.tile.n == 128 ? 0.95 : 0.88;
  }
  if (!c.warps.pingpong) return 1.0;
  if (pairs_scales(c)) return two_bytes ? 1.0 : 1.05;
  if (c.cluster.multicast_m == 1) return 1.1;  // B comes twice
  return two_bytes ? 0.95 : 1.0;
}

double product_roughly_us(const Choice& choice, const DeviceInfo& device) {
  if (choice.config.family == KernelFamily::direct) return predict_direct_us(choice, device);
  if (choice.config.family == KernelFamily::streamed) return predict_streamed_us(choice, device);
  if (!is_predicted_product(choice))
    return choice.likely_tiles.mean_of([&](double tiles) { return predict_other(choice, device, tiles).us; });
  return predict_product(choice, device, product_constants(mainloop_kind(choice.config))).us;
}

}  // namespace

double roofline_us(const GemmProblem& problem, const DeviceInfo& device) {
  const double peak = device.num_sms * flops_per_clock(problem.a.dtype, problem.precision) * device.clock_ghz * 1e3;
  return std::max(flops(problem) / peak, minimum_bytes(problem) / (device.memory_gb_per_s * 1e3));
}

double memory_bytes(const Choice& choice, double read_again) {
  const GemmProblem& p = choice.problem;
  const ScheduleShape& s = choice.schedule;
  const double again = (s.tiles_n > 1 ? bytes_of_a(p) : 0) + (s.tiles_m > 1 ? bytes_of_b(p) : 0);
  return minimum_bytes(p) + read_again * again;
}

double grouped_l2_us(double bytes, double loaded) {
  return bytes / kL2FillBytesPerUs + loaded / kL2GroupedBytesPerUs;
}

double joining_ctas(const Choice& choice, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  if (c.cluster.k > 1) return c.cluster.k;
  const double chunks =
      FixupWord::chunks(choice.schedule.slices / choice.schedule.slices_per_cluster, accumulators_per_thread(c) / 4);
  return std::max(1.0, std::min(chunks, concurrent(choice, device) / choice.tiles / sharers(c)));
}

bool is_predicted_product(const Choice& choice) {
  const GemmConfig& c = choice.config;
  return has_tma(c.family) && c.conv.kind == Conv::none && c.schedule.grouping == Grouping::none;
}

double predict_roughly_us(const Choice& choice, const DeviceInfo& device) {
  return product_roughly_us(choice, device) * found_scales_factor(choice) + apart_us(choice, device);
}

ProductTime predict_other(const Choice& choice, const DeviceInfo& device, double tiles) {
  ProductTime time = Prediction(choice, device, tiles).time();
  time.us *= choice.parts;
  return time;
}

double predict_us(const Choice& choice, const DeviceInfo& device) {
  const auto kind = forest_kind(choice);
  if (!kind || !forests_know(device)) return predict_roughly_us(choice, device);
  const double us = choice.likely_tiles.mean_of([&](double tiles) {
    const ProductTime time = is_predicted_product(choice)
                                 ? predict_product(choice, device, product_constants(mainloop_kind(choice.config)))
                                 : predict_other(choice, device, tiles);
    return time.us * product_residual(*kind, product_features(choice, device, tiles, time));
  });
  return us * found_scales_factor(choice) + apart_us(choice, device);
}

}  // namespace cleave
