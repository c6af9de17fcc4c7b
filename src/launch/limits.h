// What keeps a kernel from a product, or a launch from its factors, whatever the layouts.
#pragma once

#include <charconv>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "cleave/config/output.h"
#include "cleave/config/tma_box.h"
#include "launch/gemm_grid.h"
#include "launch/product.h"

namespace cleave {

/// False for what the Hopper kernel's tensor maps cannot show: nothing, and groups along a dimension
/// that is too long.
inline bool fits_maps(const GemmConfig& c, const GemmProblem& p) {
  return !has_tma(c.family) || (p.k > 0 && grouped_extent(p) <= int64_t(kRaggedExtent));
}

/// Whether B's ups, which begin n columns after the gates, begin where the kernel may load.
inline bool gates_are_aligned(const GemmConfig& c, const GemmProblem& p) {
  const bool apart = gated(c) && c.operands.b_major == Major::mn;
  return !apart || p.n * size_of(c.operands.b) % c.operands.load_bytes_b == 0;
}

/// What is wrong with the factors of an int32 D, and the remedy; empty if nothing is.
inline std::string find_factor_fault(const GemmProblem& p, const GemmArguments& x) {
  if (p.d.dtype != DType::i32) return {};
  const auto text = [](const char* name, float value, const char* rest) {
    char digits[64];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
    return std::string(name) + " is " + std::string(digits, end) + rest;
  };
  if (!p.has_c) {
    if (x.alpha == 1.0f) return {};
    return text("alpha", x.alpha,
                ", but d is int32, which without a c takes the integer sums as they are; pass 1, or "
                "d of a float type");
  }
  for (const auto& [name, factor] : {std::pair("alpha", x.alpha), std::pair("beta", x.beta)}) {
    if (std::abs(factor) < 0x1p31f && factor == std::trunc(factor)) continue;
    return text(name, factor,
                ", but d is int32: sums and c are multiplied as integers. Pass a whole number below "
                "2^31, or d of a float type");
  }
  return {};
}

}  // namespace cleave
