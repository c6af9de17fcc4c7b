#include "quantize/arguments.h"

#include <fmt/format.h>

#include "problem/arguments.h"
#include "problem/overlap.h"
#include "quantize/problem.h"

namespace cleave {

void check_arguments(const QuantizeProblem& p, const QuantizeArguments& arguments) {
  const struct {
    const char* name;
    Placement place;
    const void* data;
    bool written;
  } operands[] = {
      {"q", q_of(p), arguments.q, true},
      {"scale", scale_of(p), arguments.scale, !p.given_scale},
      {"zero", zero_of(p), arguments.zero, !p.given_scale},
      {"q_t", q_t_of(p), arguments.q_t, true},
      {"scale_t", scale_t_of(p), arguments.scale_t, true},
      {"x", x_of(p), arguments.x, false},
      {"smooth", smooth_of(p), arguments.smooth, false},
  };
  for (const auto& operand : operands) {
    if (operand.place.empty()) continue;
    check_pointer(operand.name, operand.place.layout, operand.data);
    for (const auto* other = operands; other != &operand; ++other) {
      if (!operand.written && !other->written) continue;
      if (!may_overlap(other->place, other->data, operand.place, operand.data)) continue;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{0} overlaps {1} in memory; pass {0} of its own or a copy of {1}",
                              other->name, operand.name));
    }
  }
}

}  // namespace cleave
