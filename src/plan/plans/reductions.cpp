#include "plan/plans/reductions.h"

#include "problem/problem.h"

namespace cleave {

Joins joins_of(const Choice& choice) {
  if (!reduces(choice.problem)) return {};
  return {choice.config, choice.problem, {choice.row_units, choice.column_units}};
}

Reductions::Reductions(const Choice& choice)
    : joins_(joins_of(choice)), kernel_(reduce_config(choice.config), choice.problem.device) {}

void Reductions::launch(const void* partials, const GemmArguments& arguments, CUstream stream) const {
  if (joins_.blocks() > 0)
    kernel_.launch(joins_.blocks(), joins_.outputs(), joins_.params(partials, arguments), stream);
}

}  // namespace cleave
