// Everything about the kernel of low-rank adapters that is fixed when it is compiled, and what follows from it.
#pragma once

#include "cleave/core/enums.h"
#include "cleave/core/math.h"

namespace cleave {

struct LoraConfig {
  DType type = DType::bf16;  // of all matrices
  uint32_t rank = 16;        // 8, 16, 32 or 64: the adapters' or more, filled up with zeros
  uint32_t rows = 16;        // of a tile: 16 or 32
  uint32_t warps = 4;        // of a CTA
  uint32_t cluster = 8;      // CTAs of a tile, each with a part of the features and one of the outputs; 1 before Hopper
  bool vectors = true;       // rows begin and end at multiples of 16 bytes, and ranks are multiples of 8

  CLEAVE_HD friend constexpr bool operator==(const LoraConfig&, const LoraConfig&) = default;
};

/// Neighbours that a quad of lanes multiplies together, 8 a lane: features of x and a, columns of out.
inline constexpr uint32_t kLoraStrip = 32, kLoraPiece = kLoraStrip / 4;

/// Blocks of 16 rows and 8 ranks: a hidden tile's.
CLEAVE_HD constexpr uint32_t lora_blocks(const LoraConfig& c) {
  return c.rows / 16 * (c.rank / 8);
}

/// A lane's 16 bytes of sums of each block, from each warp and from the cluster; its 8 bytes of their rounded total;
/// two mbarriers (hidden_sum.h).
CLEAVE_HD constexpr uint32_t lora_shared_bytes(const LoraConfig& c) {
  const uint32_t sums = c.warps + (c.cluster > 1 ? 1 : 0);
  return lora_blocks(c) * 32 * (sums * 16 + 8) + 2 * 8;
}

/// CTAs that an SM has room for: 512 threads, or 256, where loads of single elements, or all of K, take more registers.
CLEAVE_HD constexpr uint32_t lora_ctas_of_sm(const LoraConfig& c) {
  return (c.vectors && c.cluster > 1 ? 16 : 8) / c.warps;
}

/// Strips whose loads a lane has under way together, of features as of columns, by the registers that one takes. More
/// than four have too many addresses.
CLEAVE_HD constexpr uint32_t lora_strips_ahead(const LoraConfig& c) {
  const uint32_t registers = (c.rows + c.rank) / 2;
  return registers <= 16 ? 4 : registers <= 32 ? 2 : 1;
}

}  // namespace cleave
