// From the tensors of a call to a GemmProblem and its pointers: what every front end shares.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "cleave/gemm.h"
#include "operands/operand.h"
#include "operands/weight_operands.h"

namespace cleave {

/// The arguments of an epilogue function.
struct EpilogueTensors {
  /// A tensor, or a scalar's number.
  struct Input {
    std::optional<Operand> tensor;
    float number = 0.0f;
  };

  const EpilogueFunction* function = nullptr;
  std::vector<Input> inputs;
  std::vector<std::optional<Operand>> outputs;  ///< beside D; absent ones are to be made
};

/// Absent ones are empty.
struct GemmTensors {
  std::optional<Operand> a, b, c, bias, out;  ///< a and b are never absent
  std::optional<Operand> scale_a, scale_b, scale_d, scale_out, amax;
  std::optional<Operand> azp, azp_adj;
  std::optional<Operand> scales, zeros, global_scale;          ///< of b, where it is a packed weight
  std::optional<Operand> offs, indptr, starts, sizes, counts;  ///< of a grouped product
  std::optional<Operand> gather;                               ///< of one: names rows of a
  EpilogueTensors epilogue;
};

/// The options of planning, whatever the tensors mean.
struct PlanOptions {
  SplitKMode split_k_mode = SplitKMode::automatic;
  int32_t split_k_slices = 0;  ///< 0: the planner chooses
  Determinism deterministic = Determinism::repeatable;
  KernelFamily kernel = KernelFamily::automatic;
  Precision precision = Precision::tf32;
  bool fast_accumulation = false;
  bool static_b = false;
};

void set_plan_options(const PlanOptions& options, GemmProblem& problem);

/// What the tensors do not determine.
struct GemmOptions {
  std::optional<DType> d_type;  ///< of a new D; without one, default_output
  /// block_1x128: D is quantised, and its scales computed. Products serve no other granularity.
  std::optional<Granularity> out_scale;
  Major scale_major = Major::k;  ///< of new ones
  bool ue8m0 = false;
  Activation activation = Activation::none;
  std::optional<WeightForm> weights;  ///< b is a packed weight
  bool grouped = false;               ///< the ranks of a and b, and the bounds, tell what is grouped
  std::optional<int64_t> alignment;   ///< offs are aligned prefix sums; counts of matrices: spacing
  std::optional<bool> zero_rest;      ///< without a value: of a new D only
  std::optional<int64_t> expected_m;  ///< rows of a group, on average
  int64_t top_k = 1;                  ///< gather has slots: so many of each row of a
  bool a_is_transposed = false;       ///< a is [k, m], its scales [scales along K, m]
  PlanOptions plan;
};

/// The shape of an output of an epilogue function.
struct OutputShape {
  std::array<int64_t, Operand::kMaxRank> sizes{};
  int ndim = 0;

  std::span<const int64_t> span() const { return std::span(sizes).first(size_t(ndim)); }
};

/// A product without its alpha and beta.
struct ProductCall {
  GemmProblem problem;
  GemmArguments arguments;       ///< without d if there is no `out`
  uint32_t outputs_to_make = 0;  ///< of the epilogue function's beside D, as bits
  OutputShape output_shapes[kMostEpilogueOutputs];
};

/// A product of matrices.
struct GemmCall : ProductCall {
  bool batched = false;  ///< D has three dimensions

  /// The sizes of D. The first one does not count unless D is batched.
  std::array<int64_t, 3> d_shape() const;
  /// The sizes of D's scales.
  std::array<int64_t, 3> scale_out_shape() const;
  /// Whether D's groups are separate matrices, which the problem treats as one matrix of all their rows.
  bool stacks_rows() const;
};

/// Throws Error(invalid_argument) for options that say how groups lie, where nothing says that there are any.
void check_options_of_groups(const GemmOptions& options, const GemmProblem& problem);

/// Throws Error(invalid_argument) for an order of scales where D has none: they are not to be found.
void refuse_scale_major(const GemmOptions& options);

/// Throws Error(invalid_argument) for a granularity by which D cannot be quantised.
void check_out_scale(Granularity granularity);

/// Throws Error for anything that is wrong with one tensor or with how they fit together; overlapping memory is refused
/// by GemmPlan::run. Without `out`, D is packed row by row.
GemmCall make_call(const GemmTensors& tensors, const GemmOptions& options);

/// The default type of D: A's, except bfloat16 for 8-bit operands and int32 for int8 without scales.
DType default_output(const GemmProblem& problem);

/// beta defaults to 1 with a C. Throws Error(invalid_argument) for a beta without a C.
void set_scalars(float alpha, std::optional<float> beta, ProductCall& call);

/// The count, or 0 (the planner's choice) without one. Throws Error(invalid_argument) if it is out of range.
int32_t slice_count(std::optional<int64_t> slices);

}  // namespace cleave
