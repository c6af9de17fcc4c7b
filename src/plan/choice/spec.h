// A way to run a problem, in the few words that a person or a tuning file would use; everything
// else follows from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cleave/core/api.h"
#include "cleave/core/enums.h"

namespace cleave {

struct Spec {
  KernelFamily family = KernelFamily::sm90;
  bool transposed = false;  ///< computes D^T = B^T A^T: a small M then rides on the narrow side of the tile
  uint32_t tile_m = 128, tile_n = 128;
  bool pingpong = false;
  bool fuses_classes = false;  ///< dgrad: all residue classes in the columns of one product
  bool gather = false;         ///< convolutions with few channels, sm90: threads load what is gathered
  bool half_lines = false;     ///< convolutions by TMA's im2col: in lines of 64 bytes (loads.h)
  bool narrow = false;         ///< products, sm90: threads load the operand of few rows, contiguous along them
  uint32_t columns = 0;        ///< direct, convolutions down the images (direct/columns.h): channels of a thread
  uint32_t ahead = 0;          ///< direct, the same, and weight gradients: lines on their way to shared memory
  bool at_once = false;        ///< direct: of small images, `columns` as above (direct/at_once.h)
  bool product = false;   ///< convolutions of one tap: by the kernels of products (matrix_product in problem/conv.h)
  bool by_group = false;  ///< convolutions in groups: a launch for each (parts_plan.h)
  bool apart = false;     ///< out_scale: D in float32, which a kernel behind the product quantises (quantize_apart.h),
  bool halves = false;    ///< and of gated columns both halves, which that kernel joins
  bool in_turn = false;   ///< each CTA adds up slices of its tiles one after the other: all, or where K is split
                          ///< `cluster_k`
  uint32_t multicast_m = 1, multicast_n = 1;
  SplitKMode split = SplitKMode::none;
  uint32_t slices = 1;
  uint32_t cluster_k = 1;  ///< parallel: slices that one cluster, or CTA, joins before they go to global memory

  friend bool operator==(const Spec&, const Spec&) = default;
};

/// "sm90 128x256 multicast 2x1 parallel 16 clusters 4", with "transposed", "pingpong", "side_by_side",
/// "gather", "half_lines", "narrow", "product", "by_group", "apart", "halves", "columns 4", "ahead 2" and "in_turn 4"
/// where they apply.
std::string to_string(const Spec& spec);

/// The inverse; nothing if `text` is not of that form.
CLEAVE_TOOLS std::optional<Spec> parse_spec(std::string_view text);

}  // namespace cleave
