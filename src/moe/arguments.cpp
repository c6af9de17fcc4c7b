#include "moe/arguments.h"

#include "moe/problem.h"
#include "problem/row_operands.h"

namespace cleave {

void check_arguments(const MoeProblem& p, const MoeArguments& arguments) {
  const bool combines = p.operation == MoeOperation::combine;
  const bool backward = p.operation == MoeOperation::combine_backward;
  const NamedOperand operands[] = {
      {"offsets", offsets_of(p), arguments.offsets, true},
      {"indices", indices_of(p), arguments.indices, reads_ids(p.operation)},
      {"tokens", tokens_of(p), arguments.tokens, combines},
      {"rows", rows_of(p), arguments.rows, !combines && !backward},
      {"rows_grad", rows_grad_of(p), arguments.rows_grad, true},
      {"weights_grad", weights_grad_of(p), arguments.weights_grad, true},
      {"ids", ids_of(p), arguments.ids, false},
      {"weights", weights_of(p), arguments.weights, false},
  };
  check_operands(operands);
}

}  // namespace cleave
