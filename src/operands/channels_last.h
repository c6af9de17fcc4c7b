// Tensors of torch's logical shape (N, C, ...) that lie in memory as (N, ..., C).
#pragma once

#include <array>
#include <optional>
#include <string>

#include "operands/operand.h"

namespace cleave {

/// Elements from a pixel to the next, if a pixel's channels are neighbours and its image's pixels,
/// and the images, follow each other at one distance: of a tensor in channels_last, and of a slice
/// of its channels.
std::optional<int64_t> pixel_stride(const Operand& x);

/// Elements from a filter to the next, if a filter's taps and channels are packed: of weights in
/// channels_last.
std::optional<int64_t> filter_stride(const Operand& w);

/// What to pass to have a tensor of `axes` + 2 dimensions in that order. `written`: whether the operation writes it.
std::string channels_last_remedy(const char* name, int axes, bool written);

/// False if no two elements share an address, told by the strides: each is larger than the extent of
/// all smaller ones together. For tensors that are more interlaced than that, true may be wrong.
bool may_overlap_itself(const Operand& x);

/// A shape, and the strides of a new tensor: the first `ndim` count.
using Extents = std::array<int64_t, Operand::kMaxRank>;
Extents channels_last_strides(const Extents& shape, int ndim);

}  // namespace cleave
