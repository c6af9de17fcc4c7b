// From the tensors of a convolution to a GemmProblem and its pointers: what every front end shares.
#pragma once

#include <array>
#include <optional>

#include "operands/channels_last.h"
#include "operands/gemm_operands.h"

namespace cleave {

/// In torch's logical shapes: input [N, C, ...], weight [K, C / groups, ...], output and
/// grad_output [N, K, ...], in the order of memory of channels_last.h. Absent ones are empty.
struct ConvTensors {
  /// The two that the kind multiplies: fprop input and weight, dgrad grad_output and weight, wgrad
  /// grad_output and input.
  std::optional<Operand> input, weight, grad_output;
  std::optional<Operand> c, bias, out;
  /// fprop's: float32, one value for all of input; one for all of weight or each filter; what D is divided by; where
  /// the largest magnitude goes.
  std::optional<Operand> scale_a, scale_b, scale_d, amax;
  EpilogueTensors epilogue;
};

/// One number for each axis, the width last; the first ConvOptions::axes count.
using AxisNumbers = std::array<int64_t, 3>;

/// What tensors do not determine.
struct ConvOptions {
  Conv kind = Conv::fprop;
  int axes = 2;  ///< 1 to 3
  AxisNumbers stride{1, 1, 1}, dilation{1, 1, 1};
  AxisNumbers pad_begin{}, pad_end{};
  bool same = false;  ///< the padding, with stride 1, is such that outputs are as many as pixels
  int64_t groups = 1;
  Extents size{};  ///< the shape of what is made: dgrad's input, wgrad's weight

  /// The dgrad is a transposed convolution: messages call grad_output input, and output_padding
  /// stands for the size, being the pixels after the last that a filter on the last output reaches.
  bool transposed = false;
  AxisNumbers output_padding{};

  std::optional<DType> d_type;  ///< of a new D; without one, default_output
  Activation activation = Activation::none;
  bool may_convert = false;  ///< the call has an argument `convert`, which messages then name
  Division division = Division::automatic;
  PlanOptions plan;
};

struct ConvCall : ProductCall {
  Extents shape{};  ///< of D, (N, C, ...)
  int ndim = 0;
};

/// Throws Error for everything that is wrong with one tensor or with how they fit together; shared
/// memory is for GemmPlan::run to refuse. Without `out`, D is packed, channels last.
ConvCall make_call(const ConvTensors& tensors, const ConvOptions& options);

}  // namespace cleave
