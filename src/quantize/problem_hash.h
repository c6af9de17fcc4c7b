#pragma once

#include <cstddef>
#include <cstdint>

#include "cleave/quantize.h"

namespace cleave {

/// Mixes every field that distinguishes problems in practice; equality decides the rest.
struct QuantizeHash {
  size_t operator()(const QuantizeProblem& p) const {
    uint64_t h = 0x9e3779b97f4a7c15ull;
    const auto mix = [&](uint64_t value) { h = (h ^ value) * 0xff51afd7ed558ccdull, h ^= h >> 32; };
    mix(uint64_t(p.rows) << 32 ^ uint64_t(p.cols));
    mix(uint64_t(p.x.stride_row) << 32 ^ uint64_t(p.q.stride_row) << 8 ^ uint64_t(p.q.alignment));
    mix(uint64_t(p.groups));
    mix(uint64_t(p.scale.stride_row) << 32 ^ uint64_t(p.scale.stride_col));
    mix(uint64_t(p.x.alignment) << 32 ^ uint64_t(p.x.dtype) << 28 ^ uint64_t(p.q.dtype) << 24 ^
        uint64_t(p.granularity) << 20 ^ uint64_t(p.given_scale) << 16 ^
        uint64_t(p.symmetric) << 12 ^ uint64_t(p.has_smooth) << 8 ^ uint64_t(p.has_transpose) << 4 ^
        uint64_t(p.device + 2));
    return size_t(h);
  }
};

}  // namespace cleave
