// A problem in a line of text: what the planner's choice depends on, all of it and nothing else. Lines of
// tables of measured choices (tuned.h) and of logs (shape_log.h) have it.
//
//   4096x7168x2048x1 tn bfloat16 bfloat16 bias row bfloat16 gelu
//
// Sizes m x n x k x batch, the layouts of A and B as BLAS has them (a third letter "n": D is column-major), the
// types of A and D, and then what is not plain, in this order:
//
//   by TYPE                  of B, where it is not A's
//   grouped m|n|k            and where groups begin at multiples of S: aligned S, or counts S for GroupBounds::counts
//   scaled | blocks RxC      vectors of scales; blocks of R rows of A and C columns of B, by 128 of K
//   fast, ieee               the sums of 8-bit floats; float32 as it is
//   zero, scale_d, amax
//   c TYPE, bias row|column TYPE, then the activation
//   broadcast a|b            that a batch shares
//   lines A B D              bytes that the lines of these start at multiples of, where packed matrices have others
//   fprop|dgrad|wgrad        and of depth, height, width: SIZE:FILTER/STRIDEpBEFORE,AFTERdDILATION; of batch groups
//   division NAME
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cleave/core/api.h"
#include "cleave/gemm.h"

namespace cleave {

/// The text of `problem`, which breaks no rule. Problems of one text differ in nothing but what is asked of the
/// planner (split, family, device), where strides lead, and how bounds of groups are written.
CLEAVE_TOOLS std::string problem_text(const GemmProblem& problem);

/// A problem of this text, of packed matrices as far as that is so; nothing where it is no problem's, or
/// spelled otherwise. `validate` has not judged it.
CLEAVE_TOOLS std::optional<GemmProblem> parse_problem(std::string_view text);

}  // namespace cleave
