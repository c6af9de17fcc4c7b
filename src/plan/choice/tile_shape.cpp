#include "plan/choice/tile_shape.h"

#include <algorithm>

#include "cleave/config/clusters.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/scale_lines.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/staged_c.h"
#include "cleave/config/store_chunk.h"
#include "cleave/config/threads.h"
#include "launch/conv_grid.h"
#include "launch/limits.h"
#include "plan/choice/conv_choice.h"
#include "plan/choice/function_config.h"
#include "plan/choice/registers.h"
#include "problem/placement.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr uint32_t kMostStages = 12;
constexpr uint32_t kLeastStages = 2, kLeastBesideC = 3;
constexpr uint32_t kLeastCopy = 4;  // bytes, of cp.async

class TileShaper {
 public:
  TileShaper(const Spec& spec, const GemmProblem& p, uint32_t part, const OperandLayouts& operands,
             const DeviceInfo& device, GemmConfig& c)
      : s_(spec),
        p_(p),
        part_(part),
        a_(operands.a),
        b_(operands.b),
        device_(device),
        c_(c),
        atom_(atom_elements(c.operands.a)),
        by_block_(c.epilogue.scaling == Scaling::block) {}

  bool shape() {
    c_.tile.m = s_.tile_m;
    c_.tile.n = s_.tile_n;
    c_.tile.k = atom_;
    c_.cluster.multicast_m = s_.multicast_m;
    c_.cluster.multicast_n = s_.multicast_n;
    if (s_.narrow && !copy_narrow()) return false;
    if (!cuts_are_whole()) return false;
    if (s_.family == KernelFamily::streamed) return shape_streamed();
    return has_wgmma(s_.family) ? shape_sm90() : shape_portable();
  }

 private:
  /// Has threads copy A or B: that of fewer rows (columns) of those that are contiguous along them.
  bool copy_narrow() {
    const bool product = c_.conv.kind == Conv::none && c_.schedule.grouping == Grouping::none;
    if (!product || !has_tma(s_.family) || size_of(c_.operands.a) != 2 || sharers(c_) > 1) return false;
    const bool a = a_.major == Major::mn, b = b_.major == Major::mn && !gated(c_);
    if (!a && !b) return false;
    c_.operands.copied_a = a && (!b || p_.m <= p_.n);
    c_.operands.copied_b = !c_.operands.copied_a;
    uint32_t& load_bytes = c_.operands.copied_a ? c_.operands.load_bytes_a : c_.operands.load_bytes_b;
    load_bytes = c_.operands.copied_a ? a_.load_bytes : b_.load_bytes;
    return load_bytes >= kLeastCopy;
  }

  bool cuts_are_whole() const {
    // Scales are looked up from a tile's first row on.
    if (by_block_ && s_.tile_m % c_.scales.rows_a != 0 && c_.scales.rows_a % s_.tile_m != 0) return false;
    // What a tile has of B lies in one place, or, under a gate, in two.
    const uint32_t piece = output_columns(c_);
    if (gated(c_) && (s_.transposed || c_.cluster.k > 1 || piece % 16)) return false;
    // Gates that alternate with ups are lines of memory: across lines, no load brings them apart.
    if (p_.epilogue.gates == Gates::interleaved && b_.major == Major::mn) return false;
    // Where columns of B share scales, the up's begin with a block, as the gate's do (promotion.h).
    if (gated(c_) && by_block_ && c_.scales.rows_b != 1 && p_.n % kScaleBlock != 0) return false;
    // Columns of D that share a scale are one tile's or, under a gate, two neighbours' in a cluster: others have wide
    // tiles enough.
    const bool paired = gated(c_) && piece * 2 == kScaleBlock && s_.multicast_n == 2 && has_wgmma(s_.family) &&
                        (c_.schedule.split == SplitKMode::none || c_.schedule.split == SplitKMode::serial) &&
                        !c_.schedule.in_turn &&
                        (c_.schedule.grouping == Grouping::none || c_.schedule.grouping == Grouping::m);
    if (c_.epilogue.has_scale_out && piece % kScaleBlock != 0 && !paired) return false;
    // What threads copy is nobody else's: a pair of CTAs copies it twice.
    const bool pairs = c_.epilogue.has_scale_out && paired;
    if ((lists_a(c_) && s_.multicast_n > 1 && !pairs) || (lists_b(c_) && s_.multicast_m > 1)) return false;
    // An operand that is contiguous along M or N comes in strips of one swizzle atom, dealt whole
    // to multicast partners. Threads fill strips of any width.
    if (b_.major == Major::mn && !c_.operands.copied_b && !strips_serve(piece)) return false;
    return a_.major != Major::mn || s_.tile_m % (atom_ * s_.multicast_n) == 0;
  }

  /// Products, filters of data gradients and outputs beside gathered pixels may have a part of the last strip, if they
  /// have all of another, and uneven shares of the strips. Filters may be half a strip alone.
  bool strips_serve(uint32_t columns) const {
    const uint32_t strip = s_.half_lines && c_.conv.kind == Conv::wgrad ? atom_ / 2 : atom_;
    if (columns % (strip * s_.multicast_m) == 0) return true;
    const bool filters = c_.conv.kind == Conv::dgrad && !c_.conv.gather && !c_.conv.fuses_classes && !c_.conv.patches;
    const bool half = filters && columns == atom_ / 2 && s_.multicast_m == 1;
    return (is_product(p_) || filters || c_.conv.turned) && has_tma(s_.family) && !gated(c_) && !has_weights(c_) &&
           (columns > atom_ || half);
  }

  bool shape_portable() {
    if (c_.schedule.in_turn) return false;
    // mma.sync has 8-bit floats since sm_89.
    if (is_fp8(c_.operands.a) && !arch_traits(device_.compute_capability).has_fp8_mma) return false;
    // A gate and its up meet in one warp, and so do columns that share a scale of D's.
    c_.warps.n = gated(c_) || c_.epilogue.has_scale_out ? 1 : s_.tile_m == 64 || s_.tile_n == 64 ? 2 : 4;
    c_.warps.m = (s_.tile_m == 64 ? 4 : 8) / c_.warps.n;
    c_.store.by_tma = false;
    c_.operands.load_bytes_a = a_.load_bytes;
    c_.operands.load_bytes_b = b_.load_bytes;
    // Parts of bfloat16 beside two sums leave no registers for a gradient's walk through taps, as the compiler said.
    const bool gradient = c_.conv.kind == Conv::dgrad || c_.conv.kind == Conv::wgrad;
    if (gradient && c_.operands.precision == Precision::bf16x3 && accumulators_per_thread(c_) > 32) return false;
    if (!portable_registers_suffice(c_)) return false;
    if (!shape_convolution()) return false;
    // Gathered pieces come late: more of them are kept on their way.
    const uint32_t most = c_.conv.kind == Conv::none ? 3 : 5;
    c_ = with_stages(c_, most, shared_memory());
    return c_.tile.stages >= kLeastStages && sharers(c_) == 1 && !s_.pingpong;
  }

  /// All stages are there for B, which stays: rounds of k blocks, one for each warp that cuts K.
  bool shape_streamed() {
    if (size_of(c_.operands.a) == 1) return false;
    constexpr uint32_t kWarps = 16;  // that multiply
    const SplitKMode split = c_.schedule.split;
    if (split != SplitKMode::none && (split != SplitKMode::parallel || c_.cluster.k > 1)) return false;
    if (c_.schedule.in_turn) return false;
    if (b_.major != Major::k || c_.schedule.grouping == Grouping::k) return false;
    // A k block's scales lie in registers beside it.
    c_.tile.k = c_.weights.group < kWidestWeightGroup ? atom_ : 2 * atom_;
    // What B's columns take is shared by two strips of rows, where those leave registers for the rest.
    const bool long_epilogue = c_.epilogue.has_c || crowds(c_);
    const bool joins_beside_zeros = split == SplitKMode::parallel && c_.weights.has_zero;
    const uint32_t rows = s_.tile_m > 16 && s_.tile_n == 8 && !long_epilogue && !joins_beside_zeros ? 32 : 16;
    c_.warps = {.m = s_.tile_m / rows, .n = 1, .k = kWarps * rows / s_.tile_m};
    c_.store.by_tma = false;
    c_.operands.load_bytes_b = b_.load_bytes;
    const uint32_t most = shared_memory() / (c_.tile.n * c_.tile.k * size_of(c_.operands.b));
    c_ = with_stages(c_, most, shared_memory());
    return c_.tile.stages >= c_.warps.k && sharers(c_) == 1;
  }

  bool shape_sm90() {
    c_.warps.pingpong = s_.pingpong;
    // What makes elements waits for itself: as many warpgroups do as registers allow.
    const bool four = s_.tile_m == 256 && s_.tile_n <= 64;
    if (four && !has_weights(c_)) return false;
    c_.warps.consumers = four ? 4 : s_.tile_m == 192 ? 3 : s_.pingpong || s_.tile_m >= 128 ? 2 : 1;
    if (c_.warps.consumers == 3 && (!c_.scales.promote || has_weights(c_)) && !takes_192_rows()) return false;
    if (!arch_traits(device_.compute_capability).has_wgmma) return false;
    const bool tma_loads =
        (a_.load_bytes == 16 || c_.operands.copied_a) && (b_.load_bytes == 16 || c_.operands.copied_b);
    if (!tma_loads && !threads_load()) return false;
    // WGMMA reads only 16-bit elements across their contiguous dimension.
    const bool across = a_.major == Major::mn || b_.major == Major::mn;
    if (size_of(c_.operands.a) != 2 && across) return false;
    if (!fits_maps(c_, p_)) return false;
    if (c_.warps.pingpong && c_.schedule.split != SplitKMode::none) return false;
    if (c_.schedule.in_turn && !registers_suffice_in_turn(c_)) return false;
    if (!registers_suffice(c_)) return false;
    // With one warpgroup multiplying, nothing covers the additions of columns scaled singly.
    if (c_.warps.pingpong && by_block_ && c_.scales.rows_b == 1) return false;
    // A K-major operand's share of a multicast must be whole groups of 8 rows, so that the swizzle
    // fits together.
    if (b_.major == Major::k && output_columns(c_) % (8 * s_.multicast_m) != 0) return false;
    if (merges_stages() || (has_weights(c_) && !c_.scales.promote)) c_.tile.k = 2 * atom_;
    if (!shape_convolution()) return false;
    c_.store.by_tma = stores_by_tma();
    c_.store.run_bytes = run_bytes();
    if (!registers_suffice_to_store(c_)) return false;
    c_.store.adds = false;
    c_.epilogue.c_words = c_has_words(p_);
    c_ = with_stages(c_, kMostStages, shared_memory());
    if (c_.epilogue.c_words && !keeps_c_staged()) {
      c_.epilogue.c_words = false;
      c_.store.adds = may_add();
      if (!swizzles_chunks(c_)) c_.store.chunks = 1;  // it drains while the next tile is multiplied
      c_ = with_stages(c_, kMostStages, shared_memory());
    }
    if (is_odd_eights() && !(c_.store.adds && is_fp8(c_.operands.a))) return false;
    add_store_chunks();
    return c_.tile.stages >= kLeastStages;
  }

  /// Sums that are not promoted could be more in each thread. But 192 rows may fill a wave that 128 and 256 do not,
  /// which was measured to help products: those of 8 bits with these columns alone, and not of packed weights. Three
  /// warpgroups leave no registers for what more an epilogue reads.
  bool takes_192_rows() const {
    const uint32_t n = s_.tile_n;
    const bool of_eight_bits = !has_weights(c_) && (n == 80 || n == 96 || n == 144 || n == 176);
    const bool wanted = size_of(c_.operands.a) == 2 ? n != 176 : of_eight_bits;
    return wanted && (is_product(p_) || c_.conv.turned) && !gated(c_) && !c_.epilogue.has_c && !crowds(c_);
  }

  /// Threads put together what they gather of 16-bit elements, and fprop's filters beside it.
  bool threads_load() {
    const bool threads_do =
        c_.conv.gather && !c_.conv.fuses_classes && size_of(c_.operands.a) == 2 && s_.tile_m <= 128 && s_.tile_n <= 128;
    if (!threads_do || (gathers_b(c_) && a_.load_bytes < 16) || (c_.conv.kind == Conv::dgrad && b_.load_bytes < 16))
      return false;
    const bool both = c_.conv.kind == Conv::fprop;
    c_.operands.load_bytes_a = both ? std::min(a_.load_bytes, b_.load_bytes) : a_.load_bytes;
    c_.operands.load_bytes_b = both ? c_.operands.load_bytes_a : b_.load_bytes;
    return true;
  }

  /// Small stages are merged: half the barriers for the same bytes. Promotion wants one k block each, and slices of
  /// whole blocks are to be those of large tiles where no row may depend on M.
  bool merges_stages() const {
    const bool sliced = c_.schedule.split != SplitKMode::none || c_.schedule.in_turn;
    if (sliced && has_one_order(p_)) return false;
    const bool one_tap = !c_.conv.gather && (!has_taps_along_k(c_) || gathered_channels(p_.conv) % (2 * atom_) == 0);
    return !c_.scales.promote && (s_.tile_m + s_.tile_n) * 128 < 16384 * 5 / 4 && p_.k > int64_t(atom_) && one_tap;
  }

  bool stores_by_tma() const {
    // Joins that end in a part of the tile per CTA store it directly.
    const bool whole_tiles = c_.cluster.k == 1 && c_.schedule.split != SplitKMode::parallel;
    const Grouping grouping = c_.schedule.grouping;
    const bool clipped_stores = grouping == Grouping::none || grouping == Grouping::k ||
                                (grouping == Grouping::classes && p_.batch == 1) ||
                                stores_ragged(grouping, c_.epilogue.order);
    // A chunk would have half of its rows where a gate's and an up's are joined: threads store what they make.
    return whole_tiles && clipped_stores && !gates_rows(c_) && !c_.conv.fuses_classes && store_by_tma_fits(c_) &&
           output_alignment(p_, c_.epilogue.order) == 16;
  }

  /// Then D's chunks need no swizzle. Those of 16-bit values have columns by sixteens, and so have WGMMA's integers;
  /// the rows of a C that is staged would share banks.
  bool is_odd_eights() const { return c_.tile.n % 16 == 8; }

  /// Whether C comes through shared memory: it takes stages, which deep groups want more than shallow ones.
  bool keeps_c_staged() const {
    const bool deep = p_.k >= kDeepBlocks * atom_ * p_.batch;
    return stages_c(c_) && !(deep && may_add()) && c_.tile.stages >= kLeastBesideC;
  }

  /// Whether TMA may add sums to a D of whole words, in chunks whose rows fall on different banks. Three warpgroups
  /// have no registers for two ways out.
  bool may_add() const {
    const bool whole = c_.schedule.split == SplitKMode::none && !c_.schedule.in_turn && !c_.warps.pingpong;
    return whole && c_.warps.consumers < 3 && (c_.tile.n % 32 == 0 || is_odd_eights()) &&
           output_alignment(p_, c_.epilogue.order) == 16;
  }

  /// One thread stores so many bytes of a column's run in D at a time; none where C, or what a function takes or makes,
  /// would have to be found element by element.
  uint32_t run_bytes() const {
    const bool finds_elements = inputs_by_element(c_) + c_.epilogue.function.outputs > 0;
    const bool staged = c_.conv.patches && c_.cluster.k == 1 && c_.schedule.split != SplitKMode::parallel &&
                        store_by_tma_fits(c_) && !finds_elements;
    if (!staged) return 0;
    const FusedClasses& columns = find_classes(p_.conv, true).columns;
    const bool packed = p_.d.stride_row == p_.conv.channels;
    if (!packed) return 0;
    const uint32_t bytes = common_alignment(p_.d.alignment | columns.lines.length.divisor * 2);
    return bytes < 4 ? 0 : bytes;
  }

  /// What is left goes to D: with room for all of a warpgroup's chunks, none waits for another.
  void add_store_chunks() {
    while (stages_output(c_) && c_.store.chunks < store_chunks_of_tile(c_)) {
      GemmConfig roomier = c_;
      ++roomier.store.chunks;
      if (smem_plan(roomier).bytes > shared_memory()) break;
      c_ = roomier;
    }
  }

  bool shape_convolution() { return c_.conv.kind == Conv::none || shape_conv(p_, part_, c_); }
  uint32_t shared_memory() const { return uint32_t(device_.shared_memory_per_block); }

  const Spec& s_;
  const GemmProblem& p_;
  const uint32_t part_;  // of a convolution's classes
  const OperandLayout &a_, &b_;
  const DeviceInfo& device_;
  GemmConfig& c_;
  const uint32_t atom_;
  const bool by_block_;
};

}  // namespace

bool shape_tile(const Spec& spec, const GemmProblem& problem, uint32_t part, const OperandLayouts& operands,
                const DeviceInfo& device, GemmConfig& config) {
  return TileShaper(spec, problem, part, operands, device, config).shape();
}

}  // namespace cleave
