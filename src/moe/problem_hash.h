#pragma once

#include <cstddef>
#include <cstdint>

#include "cleave/moe.h"

namespace cleave {

/// Mixes every field that distinguishes problems in practice; equality decides the rest.
struct MoeHash {
  size_t operator()(const MoeProblem& p) const {
    uint64_t h = 0x9e3779b97f4a7c15ull;
    const auto mix = [&](uint64_t value) { h = (h ^ value) * 0xff51afd7ed558ccdull, h ^= h >> 32; };
    mix(uint64_t(p.tokens) << 32 ^ uint64_t(p.columns));
    mix(uint64_t(p.token.stride_row) << 32 ^ uint64_t(p.row.stride_row));
    mix(uint64_t(p.experts) << 32 ^ uint64_t(p.top_k));
    mix(uint64_t(p.operation) << 32 ^ uint64_t(p.token.dtype) << 28 ^
        uint64_t(p.weights_dtype) << 24 ^ uint64_t(p.has_weights) << 20 ^
        uint64_t(p.wide_ids) << 16 ^ uint64_t(p.token.alignment) << 8 ^ uint64_t(p.device + 2));
    return size_t(h);
  }
};

}  // namespace cleave
