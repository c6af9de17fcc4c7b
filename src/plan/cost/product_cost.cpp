#include "plan/cost/product_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cleave/config/clusters.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/threads.h"
#include "cleave/config/tma_box.h"
#include "plan/choice/resident_clusters.h"
#include "plan/cost/cost.h"
#include "plan/cost/weight_cost.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr double kFlopsPerClock16 = 4096;  // of one SM's tensor cores; tf32 has half, 8-bit twice that
constexpr double kBusyClock = 0.96;        // of the maximum
constexpr double kRowBytes = 128;          // of a box, and of a line of L2
constexpr double kTurnClocks = 400;        // until tensor cores are done with a slice and the next one's loads are read
constexpr double kReadPerClock = 128;      // bytes of partial tiles, by the slices that add them up,
constexpr double kReadAlonePerClock = 64;  // and by the last CTA of a streamed tile
constexpr double kCopyThreads = 96;
constexpr double kGroupUs = 16;        // of 16 blocks, whose partials and columns' values are read in turn
constexpr double kPingpongTile = 0.1;  // of an epilogue that another tile's mainloop does not hide

/// Rows of 128 bytes in the boxes of one k block of one operand, on average over its tiles.
struct BoxRows {
  double inside = 0, outside = 0, partly = 0;

  double loaded() const { return inside + partly; }
  double all() const { return inside + outside + partly; }
};

/// How an operand is loaded.
struct Load {
  Major major;
  bool copied;     // by threads, which ask for whole lines, wherever they begin
  bool packed;     // a weight's blocks
  double strip;    // rows (columns) that lie side by side in a box, where it is contiguous along them
  double rounded;  // columns of a stage for each of the tile's: more than one where its last strip has more
};

/// `extent`: of the matrix along M or N; `tiles`, of `step` rows, cover it.
BoxRows box_rows_of(const GemmConfig& c, Load load, double extent, double tiles, double step) {
  const double atom = atom_elements(c.operands.a);
  if (load.packed) return {c.tile.m * c.tile.k / 2 / kRowBytes, 0, 0};
  tiles = std::max(tiles, 1.0);
  if (load.copied) return {c.tile.k * std::min(extent / tiles, step) / atom, 0, 0};
  if (load.major == Major::k) {
    const double atoms = c.tile.k / atom, valid = std::min(extent / tiles, step);
    return {valid * atoms, (step - valid) * atoms, 0};
  }
  const double strips = step * load.rounded / load.strip, last = extent - (tiles - 1) * step;
  const double partly = (std::fmod(last, load.strip) > 0) / tiles;
  const double full = std::min(((tiles - 1) * strips + std::floor(last / load.strip)) / tiles, strips - partly);
  const double rows = c.tile.k * load.strip / atom;
  return {full * rows, (strips - full - partly) * rows, partly * rows};
}

/// The share of an operand's tiles whose strips begin within a line of L2.
double share_within_lines(const GemmConfig& c, Load load, double tiles) {
  if (load.rounded == 1) return 0;
  const uint32_t atom = atom_elements(c.operands.a), period = atom / std::gcd(atom, c.tile.n);
  return 1 - std::ceil(tiles / period) / tiles;
}

class ProductPrediction {
 public:
  ProductPrediction(const Choice& choice, const DeviceInfo& device, const ProductConstants& constants)
      : choice_(choice),
        q_(constants),
        p_(choice.problem),
        c_(choice.config),
        s_(choice.schedule),
        device_(device),
        clock_(device.clock_ghz * 1e3 * kBusyClock),
        tiles_(choice.tiles),
        turns_(c_.schedule.turns),
        streams_(s_.mode == SplitKMode::stream_k) {
    const double resident = std::min<double>(s_.clusters, resident_clusters(cluster_size(c_), device));
    cluster_tiles_ =
        streams_ ? tiles_ / s_.clusters : std::ceil(tiles_ * s_.slices / s_.slices_per_cluster / resident - 1e-9);
    find_rows();
  }

  ProductTime time() const {
    ProductTime t{on_chip_us(), l2_us(), memory_us(), power_us(), epilogues_us(), reduction_us(), 0};
    const double n = q_.norm;
    const double bounds = std::pow(t.on_chip, n) + std::pow(t.l2, n) + std::pow(t.memory, n) + std::pow(t.power, n);
    t.us = q_.launch + beside_weights_us(c_) + std::pow(bounds, 1 / n) + t.epilogues + t.reduction;
    return t;
  }

 private:
  void find_rows() {
    const double m_sharing = c_.cluster.multicast_m, n_sharing = c_.cluster.multicast_n;
    const double rows = double(p_.m) * c_.tile.m / output_rows(c_);
    const double columns = double(p_.n) * c_.tile.n / output_columns(c_);
    const double strip_b = box_width(c_.operands.b_major, stage_columns(c_), c_.operands.b);
    const Load load_a{c_.operands.a_major, c_.operands.copied_a, has_weights(c_), double(atom_elements(c_.operands.a)),
                      1};
    const Load load_b{c_.operands.b_major, c_.operands.copied_b, false, strip_b, double(stage_columns(c_)) / c_.tile.n};
    const BoxRows a = box_rows_of(c_, load_a, rows, s_.tiles_m, c_.tile.m * m_sharing);
    const BoxRows b = box_rows_of(c_, load_b, columns, s_.tiles_n, c_.tile.n * n_sharing);
    // A cluster's rows of A are its multicast_m tiles', each of which multicast_n CTAs share.
    const double share_a = 1 / (m_sharing * n_sharing), share_b = share_a;
    const auto more = [&](Load load, int64_t extent, double tiles) {
      const int64_t line = (load.major == Major::k ? p_.k : extent) * size_of(c_.operands.a);
      const bool within = !load.copied && !load.packed && line % int64_t(kRowBytes) != 0;
      return 1 + q_.misaligned * (within ? 1 : share_within_lines(c_, load, tiles));
    };
    tma_clocks_ =
        q_.row * (a.loaded() * share_a + b.loaded() * share_b) +
        q_.row_outside * (a.outside * share_a + b.outside * share_b) +
        q_.row_received * (a.all() / m_sharing * (1 - 1 / n_sharing) + b.all() / n_sharing * (1 - 1 / m_sharing));
    l2_bytes_ = kRowBytes * (a.loaded() * share_a * more(load_a, p_.m, 1) +
                             b.loaded() * share_b * more(load_b, p_.n, double(s_.tiles_n) * n_sharing));
    shared_lines_ = a.partly * share_a + b.partly * share_b;
  }

  /// K blocks of all CTAs.
  double all_blocks() const { return tiles_ * s_.k_blocks * sharers(c_); }

  double multiply_clocks() const {
    const double flops = 2.0 * c_.tile.m * c_.tile.n * c_.tile.k;
    const double start = 1 + q_.narrow * 16 / c_.tile.n;
    return flops / (kFlopsPerClock16 * 2 / size_of(c_.operands.a) * q_.multiply) * start *
           (c_.warps.pingpong ? q_.pingpong : 1);
  }

  /// Every 64 rows read their part of A and all of B; TMA writes both, and the rest of B's last strip.
  double shared_memory_clocks() const {
    const double rows = stored_share_of_a(c_);  // as wide as B's
    const double read = c_.tile.m / 64.0 * (64 * rows + c_.tile.n), written = c_.tile.m * rows + stage_columns(c_);
    return (read + written) * c_.tile.k * size_of(c_.operands.a) / 128 * q_.shared_memory;
  }

  /// The threads beside the one that starts TMA's loads copy a narrow operand.
  double copy_clocks() const {
    const double rows = (c_.operands.copied_a ? c_.tile.m : 0.0) + (c_.operands.copied_b ? c_.tile.n : 0.0);
    return q_.copy * rows * c_.tile.k * size_of(c_.operands.a) / 16 / kCopyThreads;
  }

  double block_clocks() const {
    const double multiply = multiply_clocks(), latency = q_.latency * clock_ / c_.tile.stages;
    double clocks =
        std::max({with_dequantising(c_, multiply), shared_memory_clocks(), tma_clocks_, copy_clocks(), latency}) +
        q_.block;
    if (sharers(c_) > 1) clocks += q_.in_step * multiply;
    if (!c_.scales.promote) return clocks;
    const bool singly = c_.epilogue.scaling == Scaling::block && c_.scales.rows_b == 1;
    return clocks + accumulators_per_thread(c_) * (q_.promote + (singly ? q_.promote_singly : 0));
  }

  double on_chip_us() const {
    const double streamed = std::min(s_.stream_tiles / tiles_, 1.0);
    const double blocks = streams_ ? cluster_tiles_ * s_.k_blocks * (1 + (q_.stream_blocks - 1) * streamed)
                                   : cluster_tiles_ * turns_ * std::ceil(double(s_.k_blocks) / s_.slices);
    return blocks * block_clocks() / clock_;
  }

  /// Neighbours that read the same lines at the same time are served once.
  double l2_us() const {
    const double apart = c_.cluster.k > 1 || streams_ ? q_.l2_apart : 1;
    return all_blocks() * (l2_bytes_ / (q_.l2 * 1e6) * apart + shared_lines_ * q_.shared_line * 1e-3);
  }

  double memory_us() const {
    return memory_bytes(choice_, q_.read_again) / (device_.memory_gb_per_s * 1e3 * q_.memory);
  }

  /// What the power limit allows.
  double power_us() const {
    const double products = all_blocks() * c_.tile.m * c_.tile.n * c_.tile.k;
    return q_.power * products * std::min(size_of(c_.operands.a) / 2.0, 1.0) / 4e8 +
           q_.power_l2 * all_blocks() * l2_bytes_ / 3e7;
  }

  double epilogues_us() const {
    const double store = c_.store.by_tma                   ? q_.store_tma
                         : c_.epilogue.order == Order::row ? q_.store_row
                                                           : q_.store_column;
    const double clocks = q_.tile + accumulators_per_thread(c_) * store + (sharers(c_) > 1 ? q_.share : 0);
    const double earlier = std::ceil(cluster_tiles_) - 1;
    return clocks * (1 + earlier * (c_.warps.pingpong ? kPingpongTile : q_.later_tile)) / clock_;
  }

  /// Columns that share a scale of D's, in a thread's accumulators: parts that slices deal among each other.
  double scale_groups() const {
    return accumulators_per_thread(c_) / 4.0 / (gated(c_) ? 2 : 1) / blocks_finished_together(c_);
  }

  double reduction_us() const {
    const double tile_bytes = 4.0 * c_.tile.m * c_.tile.n;
    const double partial_us = tile_bytes / q_.partial_bytes / clock_;
    double us = cluster_size(c_) > 1 ? q_.cluster : 0;
    if (c_.cluster.k > 1) us += tile_bytes / q_.cluster_bytes / clock_;
    if (c_.schedule.in_turn) us += kTurnClocks * cluster_tiles_ * std::max<double>(s_.in_turn, turns_) / clock_;
    if (s_.mode == SplitKMode::serial) us += s_.slices * (q_.parallel + 2 * partial_us);
    if (s_.mode == SplitKMode::parallel) {
      const double read_us = tile_bytes / c_.cluster.k * (s_.slices / s_.slices_per_cluster) / kReadPerClock / clock_;
      us += q_.parallel + partial_us / c_.cluster.k * cluster_tiles_ + read_us;
      if (c_.epilogue.has_scale_out) us += kGroupUs * std::ceil(scale_groups() / s_.slices);
    }
    if (streams_ && s_.stream_tiles > 0) {
      const double parts = std::max(s_.clusters / std::min<double>(s_.stream_tiles, tiles_), 1.0);
      us += q_.stream + 2 * partial_us + (parts - 1) * tile_bytes / kReadAlonePerClock / clock_;
    }
    return us;
  }

  const Choice& choice_;
  const ProductConstants& q_;
  const GemmProblem& p_;
  const GemmConfig& c_;
  const ScheduleShape& s_;
  const DeviceInfo& device_;
  const double clock_, tiles_;
  const double turns_;  // slices that a CTA of a split takes one after the other
  const bool streams_;
  double cluster_tiles_ = 0;  // of the busiest cluster
  double tma_clocks_ = 0;     // of a CTA, each k block,
  double l2_bytes_ = 0;       // and what it takes from L2
  double shared_lines_ = 0;   // rows that are partly outside: lines that many CTAs ask for at once
};

}  // namespace

MainloopKind mainloop_kind(const GemmConfig& c) {
  if (c.scales.promote) return MainloopKind::promoted;
  if (size_of(c.operands.a) == 1) return MainloopKind::eight;
  const bool k_major = c.operands.a_major == Major::k && c.operands.b_major == Major::k;
  return k_major ? MainloopKind::k_major : MainloopKind::strips;
}

ProductTime predict_product(const Choice& choice, const DeviceInfo& device, const ProductConstants& constants) {
  return ProductPrediction(choice, device, constants).time();
}

}  // namespace cleave
