// How kernels down the images (direct/columns.h, columns_wgrad.h) share the images.
#pragma once

#include "cleave/config/direct_columns.h"
#include "cleave/conv.h"
#include "plan/choice/choice.h"

namespace cleave {

inline constexpr uint32_t kMostColumnStrip = 8, kMostColumnVector = 8;
inline constexpr int64_t kMostColumnStride = INT32_MAX / 8;  // elements from pixel to pixel: bytes of 32 bits

/// Whether any tap lands, and registers and bits of a word suffice.
bool has_columns(const GemmConfig& c);

/// Channels of a CTA, of which its threads leave least idle; the most of those up to a warp's.
uint32_t column_channels(const GemmProblem& problem, uint32_t vector);

/// Cells of all columns that a CTA's strips make, of one block of channels.
int64_t column_cells(const GemmConfig& c, const ConvLayout& conv);

/// `channels`: of all groups. The choice has its number of CTAs.
DirectShape column_shape(const Choice& choice, uint32_t channels);

/// Multiply-adds of a thread for a cell, and lines that a CTA goes down, those of its begins included.
double column_multiply_adds(const GemmConfig& c);
double column_lines(const GemmConfig& c, const DirectShape& shape);

}  // namespace cleave
