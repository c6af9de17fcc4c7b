#include "quantize/arguments.h"

#include "problem/row_operands.h"
#include "quantize/problem.h"

namespace cleave {

void check_arguments(const QuantizeProblem& p, const QuantizeArguments& arguments) {
  const NamedOperand operands[] = {
      {"q", q_of(p), arguments.q, true},
      {"scale", scale_of(p), arguments.scale, !p.given_scale},
      {"zero", zero_of(p), arguments.zero, !p.given_scale},
      {"q_t", q_t_of(p), arguments.q_t, true},
      {"scale_t", scale_t_of(p), arguments.scale_t, true},
      {"padded_ends", padded_ends_of(p), arguments.padded_ends, true},
      {"offsets", offsets_of(p), arguments.offsets, false},
      {"x", x_of(p), arguments.x, false},
      {"smooth", smooth_of(p), arguments.smooth, false},
  };
  check_operands(operands);
}

}  // namespace cleave
