#include "plan/choice/registers.h"

#include <algorithm>
#include <initializer_list>

#include "cleave/config/clusters.h"
#include "cleave/config/output.h"
#include "cleave/config/scale_lines.h"
#include "cleave/config/store_chunk.h"
#include "cleave/config/threads.h"
#include "cleave/config/weight_lines.h"
#include "cleave/epilogue.h"

namespace cleave {
namespace {

/// Whether the function does one of these.
bool does(const FunctionConfig& function, std::initializer_list<Elementwise> operations) {
  return function.given && std::ranges::any_of(function.function->nodes(), [&](const EpilogueNode& node) {
           return node.kind == EpilogueNode::Kind::operation &&
                  std::ranges::find(operations, node.operation) != operations.end();
         });
}

/// Whether it takes many registers on its way.
bool is_long(const FunctionConfig& function) {
  return does(function, {Elementwise::erf, Elementwise::tanh, Elementwise::log});
}

/// What spills, subject by subject. Each is to be asked only of kernels with WGMMA.
class Spills {
 public:
  explicit Spills(const GemmConfig& config)
      : c_(config),
        split_(c_.schedule.split),
        kept_(accumulators_per_thread(c_)),
        two_waves_(has_two_waves(c_)),
        in_turn_(split_ == SplitKMode::serial),
        ragged_(c_.schedule.grouping == Grouping::m || c_.schedule.grouping == Grouping::n),
        in_groups_of_k_(c_.schedule.grouping == Grouping::k),
        by_block_(c_.epilogue.scaling == Scaling::block),
        integers_(c_.operands.a == DType::i8) {}

  bool any() const {
    return many_sums() || beside_c() || beside_function() || slices_in_turn() || promoted_sums() || packed_weights() ||
           blocks_of_groups() || groups_of_k() || quantised_columns();
  }

 private:
  /// 144 sums beside C or a function with as much to read; 160 beside a walk that sums slices in turn, or of float32.
  bool many_sums() const {
    const bool walks_far = in_turn_ || split_ == SplitKMode::stream_k;
    if (kept_ >= 144 && (c_.epilogue.has_c || crowds(c_))) return true;
    return kept_ >= 160 && (walks_far || c_.operands.a == DType::f32);
  }

  bool beside_c() const {
    if (!c_.epilogue.has_c) return false;
    // An error function, beside two waves of sums, or chunks of 192 columns beside another tile.
    const bool chunked = c_.warps.pingpong && c_.tile.n == 192;
    if ((two_waves_ || chunked) && does(c_.epilogue.function, {Elementwise::erf})) return true;
    // Two waves of 128 sums, with a bias, a walk through groups of rows or through tiles that are cut, or filters that
    // are shared; or, in pingpong, of a convolution or, where rows are stored, with scales of lines.
    const bool by_line = c_.epilogue.scaling == Scaling::vector, by_rows = c_.epilogue.order == Order::row;
    const bool is_conv = c_.conv.kind != Conv::none;
    const bool alone = c_.warps.pingpong && (is_conv || (by_line && by_rows));
    const bool more = ragged_ || c_.epilogue.bias != Bias::none || split_ == SplitKMode::stream_k || alone ||
                      (is_conv && c_.cluster.multicast_m > 1);
    if (two_waves_ && kept_ >= 128 && more) return true;
    // Promoted sums of these columns, where C lies across them and slices are shared.
    const bool across = c_.epilogue.order == Order::column, shared = split_ == SplitKMode::parallel;
    return c_.scales.promote && shared && across && c_.tile.m == 128 && (c_.tile.n == 128 || c_.tile.n == 192);
  }

  /// Two waves of sums beside what the function reads of matrices, does and makes; with slices in turn already two
  /// waves of any, or 112 sums, or 96 and a walk through groups of K or gates among rows.
  bool beside_function() const {
    if (crowds(c_) && in_turn_ && (two_waves_ || kept_ >= (in_groups_of_k_ || gates_rows(c_) ? 96 : 112))) return true;
    if (!two_waves_) return false;
    const FunctionConfig& function = c_.epilogue.function;
    const uint32_t matrices = inputs_by_element(c_, function.inputs);
    if (matrices > 1) return kept_ >= 96;
    if (matrices == 0 || kept_ < 112) return false;
    return c_.conv.kind == Conv::wgrad || function.outputs >= 2 || is_long(function);
  }

  bool slices_in_turn() const {
    if (!in_turn_) return false;
    if (!alone_with_half() && kept_ >= (c_.scales.promote ? 64u : c_.epilogue.has_c ? 96u : 256u)) return true;
    // 96 of three warpgroups, beside shared loads.
    if (c_.warps.consumers == 3 && kept_ >= 96 && sharers(c_) > 1) return true;
    // Integers that meet as floats, in chunks that no store is as wide as.
    return kept_ >= 112 && (two_waves_ || (integers_ && c_.tile.n % 64 != 0));
  }

  bool promoted_sums() const {
    if (!c_.scales.promote) return false;
    if (promotion_registers(c_, 1) > spare_registers(c_)) return true;
    // Those of 128 columns with scales of their own, for shares of slices, where rows have some, or loads are shared.
    const bool by_columns = by_block_ && singly() && c_.tile.m == 128 && c_.tile.n == 128;
    if (by_columns && split_ == SplitKMode::parallel && (c_.scales.rows_a == 1 || sharers(c_) > 1)) return true;
    // Those of integers, in the unrolled loop of these tiles.
    const bool tall = c_.tile.m == 256 && (c_.tile.n == 80 || c_.tile.n == 96);
    const bool flat = c_.tile.m == 64 && (c_.tile.n == 144 || c_.tile.n == 160 || multiplies_halves(c_));
    return integers_ && (tall || flat);
  }

  /// Sums, with those of a part, beside what a packed weight is made into: 144; 128 (120 with parts) where there is
  /// more, as C, a function, a cluster's sums, groups of rows, many scales in two waves or of parts, or integers whose
  /// slices meet; 96 where three warpgroups share the registers.
  bool packed_weights() const {
    if (!has_weights(c_)) return false;
    const bool many_scales = (two_waves_ || c_.scales.promote) && c_.weights.group < kWidestWeightGroup;
    const bool integers_join = integers_ && split_ == SplitKMode::parallel;
    const bool more = c_.epilogue.has_c || crowds(c_) || c_.cluster.k > 1 || ragged_ || many_scales || integers_join;
    const uint32_t with_parts = c_.scales.promote ? promotion_registers(c_, weight_parts(c_)) : kept_;
    const uint32_t too_many = c_.warps.consumers == 3 ? 96 : !more ? 144 : c_.scales.promote ? 120 : 128;
    return with_parts >= (c_.warps.consumers == 4 ? too_many_of_four() : too_many);
  }

  /// The same where four warpgroups share them: what else there is takes as many as sixteen columns.
  uint32_t too_many_of_four() const {
    const bool grouped = c_.schedule.grouping != Grouping::none, many_scales = c_.weights.group < kWidestWeightGroup;
    const bool far = split_ == SplitKMode::stream_k && (grouped || many_scales);
    const bool joins = gates_rows(c_) && (grouped || split_ != SplitKMode::none);
    const bool more = c_.epilogue.has_c || crowds(c_) || c_.weights.has_zero || far || joins || in_turn_;
    if (c_.scales.promote) return more || grouped ? 48 : 64;
    return more ? 32 : 64;
  }

  /// Scales of blocks, beside a walk through groups of rows or columns, or a list of rows.
  bool blocks_of_groups() const {
    if (!by_block_) return false;
    // A producer's list of rows, beside the scales of 256, or steps of stream_k's parts; or a consumer's integers.
    const bool cuts_tail = ragged_ && split_ == SplitKMode::stream_k;
    if (c_.operands.listed && (c_.tile.m == 256 || cuts_tail || integers_)) return true;
    if (!ragged_) return false;
    // Parts of 96 sums, whose columns have scales of their own.
    if (singly() && c_.tile.n > 176 && !multiplies_halves(c_)) return true;
    if (c_.warps.consumers == 1) return false;
    switch (split_) {
      case SplitKMode::serial:
        return kept_ >= (singly() ? 48 : 64);
      case SplitKMode::parallel:
        if (c_.warps.consumers == 3) return true;
        return singly() ? c_.tile.n == 128 || c_.tile.n >= 176 : kept_ >= 96;
      case SplitKMode::stream_k:
        return singly() && c_.tile.n >= 176;
      default:
        return false;
    }
  }

  /// A walk through groups of K.
  bool groups_of_k() const {
    if (!in_groups_of_k_) return false;
    const bool shared = split_ == SplitKMode::parallel;
    // Two parts of 128 columns, for shares of slices.
    const bool wide_parts = c_.scales.promote && promotes_two_parts(c_) && c_.warps.consumers > 1 && c_.tile.n >= 128;
    if (wide_parts && shared) return true;
    // 128 sums, for slices that meet, or C whose tiles are shared.
    return kept_ >= 128 && (in_turn_ || shared || (c_.epilogue.has_c && sharers(c_) > 1));
  }

  /// Columns of D that become 8 bits.
  bool quantised_columns() const {
    const bool finds_scale = c_.epilogue.has_scale_out;
    // Sums that columns' scales promote, for slices that meet, of a gate and its up, or beside columns that are kept
    // until their scale is known.
    const bool meets = gated(c_) ? split_ != SplitKMode::none : finds_scale && split_ == SplitKMode::parallel;
    if (by_block_ && singly() && meets && c_.tile.m == 128 && c_.tile.n == 128) return true;
    // 128 sums of gates for shares of slices, where two warpgroups have them, or one looks for D's largest magnitude.
    const bool joined = finds_scale && gated(c_) && split_ == SplitKMode::parallel && kept_ >= 128;
    if (joined && (c_.warps.consumers > 1 || c_.epilogue.has_amax)) return true;
    // Promoted sums of three warpgroups, or in two waves beside C, where that is looked for.
    const bool largest = finds_scale && c_.epilogue.has_amax && c_.scales.promote;
    if (largest && (c_.warps.consumers == 3 || (two_waves_ && c_.epilogue.has_c))) return true;
    // 128 sums beside C in tiles that are cut, where it is.
    const bool cut = split_ == SplitKMode::stream_k && kept_ >= 128 && c_.epilogue.has_c;
    if (finds_scale && c_.epilogue.has_amax && cut) return true;
    // 112 sums, or promoted ones, for slices in turn beside columns that are gone through twice.
    if (!alone_with_half() && (kept_ >= 112 || c_.scales.promote) && in_turn_ && finds_scale) return true;
    // What two warpgroups know in a walk through groups of K, where slices meet in a cluster or loads are shared.
    const bool meets_far =
        split_ == SplitKMode::cluster || (sharers(c_) > 1 && (in_turn_ || split_ == SplitKMode::parallel));
    if (in_groups_of_k_ && finds_scale && c_.warps.consumers > 1 && meets_far) return true;
    // These, or 192 sums, for gates that become 8 bits by a scale that is given.
    const bool given_scale = gated(c_) && size_of(c_.epilogue.d) == 1 && !finds_scale;
    return given_scale && (kept_ >= 192 || (c_.scales.promote && in_turn_));
  }

  /// Whether one warpgroup, which has registers enough, has half of the gated columns that share a scale of D.
  bool alone_with_half() const { return pairs_scales(c_) && c_.warps.consumers == 1; }

  /// Whether each column of B has scales of its own.
  bool singly() const { return c_.scales.rows_b == 1; }

  const GemmConfig& c_;
  const SplitKMode split_;
  const uint32_t kept_;  // sums, by each thread
  const bool two_waves_, in_turn_;
  const bool ragged_, in_groups_of_k_;
  const bool by_block_, integers_;
};

/// Whether a function that crowds, or C, leaves registers for what finds D's rows.
bool rows_are_found(const GemmConfig& c) {
  const uint32_t kept = accumulators_per_thread(c);
  const SplitKMode split = c.schedule.split;
  // So long an epilogue is no longer unrolled, and its sums would lie in memory.
  const uint32_t unrolled = crowds(c) ? 112 : c.epilogue.has_c ? 120 : 256;
  if (c.conv.fuses_classes && split != SplitKMode::parallel && kept >= unrolled) return false;
  const bool by_class = c.schedule.grouping == Grouping::classes && split != SplitKMode::parallel;
  if (by_class && c.epilogue.has_c && has_two_waves(c) && kept >= 128) return false;
  if (!crowds(c)) return true;
  const bool ragged = c.schedule.grouping == Grouping::m || c.schedule.grouping == Grouping::n;
  const bool odd_chunks = c.tile.n == 144;
  if ((ragged || scatters(c)) && split == SplitKMode::serial && (kept >= 96 || odd_chunks)) return false;
  const bool stored_by_threads = !c.store.by_tma && split != SplitKMode::parallel;
  if (ragged && kept >= 128 && (stored_by_threads || split == SplitKMode::stream_k)) return false;
  return !ragged || c.warps.consumers < 3;
}

/// Whether threads can store whole tiles: two waves of sums of integers leave no registers for it, nor do any for
/// groups' largest magnitude.
bool threads_can_store(const GemmConfig& c) {
  const bool in_parts = c.schedule.split == SplitKMode::parallel || c.cluster.k > 1;
  const bool takes_more = c.operands.a == DType::i8 || (c.epilogue.has_amax && c.schedule.grouping == Grouping::m);
  const bool crowded = takes_more && has_two_waves(c) && accumulators_per_thread(c) >= 128;
  return c.store.by_tma || in_parts || !crowded;
}

}  // namespace

bool crowds(const GemmConfig& c) {
  return inputs_by_element(c, c.epilogue.function.inputs) + c.epilogue.function.outputs > 0 ||
         c.epilogue.function.inputs > 3;
}

bool registers_suffice(const GemmConfig& c) {
  return !Spills(c).any();
}

bool portable_registers_suffice(const GemmConfig& c) {
  if (c.tile.n < 256) {
    // Values that wait for a scale of theirs, for shares of slices, beside two of these.
    const int more = int(c.epilogue.scaling == Scaling::vector) + int(c.epilogue.has_c) + int(c.epilogue.has_amax);
    return !c.epilogue.has_scale_out || c.schedule.split != SplitKMode::parallel || more < 2;
  }
  const bool fast = is_fp8(c.operands.a) && !c.scales.promote;
  if (c.schedule.split == SplitKMode::none) return !fast;
  const bool blocks_of_groups = c.epilogue.scaling == Scaling::block && c.schedule.grouping != Grouping::none;
  return c.schedule.split == SplitKMode::serial && !blocks_of_groups;
}

bool registers_suffice_in_turn(const GemmConfig& c) {
  const bool walks_tiles = c.schedule.grouping != Grouping::k && c.conv.kind == Conv::none;
  const bool stores_two_waves = has_two_waves(c) && !store_by_tma_fits(c);  // by threads
  // Beside partial tiles, nor are there any for the bookkeeping of shared loads.
  const bool shares = c.schedule.split != SplitKMode::none && sharers(c) > 1;
  const bool fewer = c.epilogue.has_c || c.operands.a == DType::f32 || stores_two_waves;
  // A packed weight's elements take some, too.
  const bool packed = has_weights(c), few = has_two_waves(c) || c.schedule.split != SplitKMode::none;
  const uint32_t most = packed && few ? 72 : crowds(c) ? 80 : fewer || packed ? 88 : 96;
  return walks_tiles && !shares && !c.warps.pingpong && !c.scales.promote && c.warps.consumers < 3 &&
         accumulators_per_thread(c) <= most;
}

bool registers_suffice_to_store(const GemmConfig& c) {
  return threads_can_store(c) && rows_are_found(c);
}

}  // namespace cleave
