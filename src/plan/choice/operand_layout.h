// What kernels see of the matrices of a problem.
#pragma once

#include "cleave/problem.h"

namespace cleave {

/// A or B as it is stored.
struct OperandLayout {
  Major major;
  int64_t stride;       // of the dimension that is not contiguous, where it matters
  uint32_t alignment;   // bytes that every row's address is a multiple of, at most 16
  uint32_t load_bytes;  // the same of where tiles begin: groups begin anywhere
};

struct OperandLayouts {
  OperandLayout a, b;
};

/// `problem`, if it is a convolution, is its view as a product (conv_view).
OperandLayouts operand_layouts(const GemmProblem& problem, bool turned = false);

/// Bytes that D's lines, and their ends, are at multiples of: TMA clips its stores to whole 16
/// bytes.
uint32_t output_alignment(const GemmProblem& problem, Order order);

}  // namespace cleave
