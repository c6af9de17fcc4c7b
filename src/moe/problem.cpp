#include "moe/problem.h"

#include "problem/row_operands.h"
#include "problem/saturate.h"

namespace cleave {
bool reads_ids(MoeOperation operation) {
  return operation == MoeOperation::offsets || operation == MoeOperation::sort ||
         operation == MoeOperation::permute;
}
bool has_indices(MoeOperation operation) {
  return operation != MoeOperation::offsets;
}
bool has_rows(MoeOperation operation) {
  return operation != MoeOperation::offsets && operation != MoeOperation::sort;
}

int64_t slots_of(const MoeProblem& p) {
  return saturating_product(p.tokens, p.top_k);
}

Placement ids_of(const MoeProblem& p) {
  return integers_of(reads_ids(p.operation) ? slots_of(p) : 0, p.wide_ids);
}
Placement offsets_of(const MoeProblem& p) {
  return integers_of(reads_ids(p.operation) ? p.experts : 0, false);
}
Placement indices_of(const MoeProblem& p) {
  return integers_of(has_indices(p.operation) ? slots_of(p) : 0, false);
}
Placement tokens_of(const MoeProblem& p) {
  return {p.token, p.tokens, p.columns, has_rows(p.operation) ? 1 : 0};
}
Placement rows_of(const MoeProblem& p) {
  return {p.row, slots_of(p), p.columns, has_rows(p.operation) ? 1 : 0};
}
Placement rows_grad_of(const MoeProblem& p) {
  return {p.row_grad, slots_of(p), p.columns,
          p.operation == MoeOperation::combine_backward ? 1 : 0};
}
Placement weights_of(const MoeProblem& p) {
  return vector_of(p.weights_dtype, p.has_weights ? slots_of(p) : 0, size_of(p.weights_dtype));
}
Placement weights_grad_of(const MoeProblem& p) {
  const bool backward = p.operation == MoeOperation::combine_backward;
  return vector_of(p.weights_dtype, backward ? slots_of(p) : 0, size_of(p.weights_dtype));
}

}  // namespace cleave
