// The rules that fill files of their own: `validate` asks them all.
#pragma once

#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include "problem/placement.h"

namespace cleave {

/// One per broken rule: the argument, the value seen, the remedy.
struct Messages : std::vector<std::string> {
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    push_back(fmt::format(format, std::forward<Args>(args)...));
  }
};

inline constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

/// True if the size makes sense: only then can layouts be judged.
bool check_size(const char* argument, int64_t size, Messages& out);

void check_alignment(const char* argument, const MatrixLayout& layout, Messages& out);

/// The stride of a dimension that has more than one element. True if it may be used in address arithmetic.
bool check_stride(const char* argument, const char* which, int64_t stride, bool may_be_zero, bool written,
                  Messages& out);

/// `dimensions`: what the rows, columns and entries of the batch are.
bool check_addressable(const char* argument, const Placement& matrix, const char* dimensions, Messages& out);

/// True if the matrix has addresses worth judging further. `written`: its batch entries must not
/// broadcast.
bool check_layout(const char* argument, const Placement& matrix, bool written, Messages& out);

/// check_layout of a matrix whose rows are contiguous, as those of all operations but products are. `written`: it
/// must not overlap itself.
void check_rows(const char* argument, const Placement& matrix, bool written, Messages& out);

void check_device(int device, Messages& out);

/// Which dtypes go together.
void check_types(const GemmProblem& problem, Messages& out);

/// Scales, zero points, and what is done with the range of D. The sizes are sound.
void check_scaling(const GemmProblem& problem, Messages& out);

/// A packed weight, and what may go with it. The sizes are sound.
void check_weights(const GemmProblem& problem, Messages& out);

/// Groups, and what may go with them. The sizes are sound.
void check_groups(const GemmProblem& problem, Messages& out);

/// The numbers of a convolution, if it is one. True if they are sound: only then are its sizes.
bool check_geometry(const ConvLayout& conv, Messages& out);

/// The sizes and layouts of a convolution's matrices, and what may go with it. The geometry is
/// sound.
void check_conv(const GemmProblem& problem, Messages& out);

/// An epilogue function, and what may go with it. The sizes are sound.
void check_epilogue(const GemmProblem& problem, Messages& out);

/// What may go with swiglu. The sizes are sound.
void check_swiglu(const GemmProblem& problem, Messages& out);

/// True if kernels exist for the dtypes: of the broken rules of `validate`, none is about a dtype.
template <class Problem>
bool types_are_served(const Problem& problem) {
  Messages broken;
  check_types(problem, broken);
  return broken.empty();
}

}  // namespace cleave
