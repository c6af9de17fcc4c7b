// Facts that follow from a MoeProblem alone, whatever device runs it.
#pragma once

#include "cleave/moe.h"
#include "problem/placement.h"

namespace cleave {

// What an operation reads or writes.
bool reads_ids(MoeOperation operation);
bool has_indices(MoeOperation operation);
bool has_rows(MoeOperation operation);  ///< and tokens

/// True if kernels exist for the dtypes: of the broken rules of `validate`, none is about a dtype.
bool types_are_served(const MoeProblem& problem);

int64_t slots_of(const MoeProblem& problem);

// What a problem reads and writes. What takes no part in it is empty.
Placement ids_of(const MoeProblem& problem);
Placement offsets_of(const MoeProblem& problem);
Placement indices_of(const MoeProblem& problem);
Placement tokens_of(const MoeProblem& problem);
Placement rows_of(const MoeProblem& problem);
Placement weights_of(const MoeProblem& problem);
Placement rows_grad_of(const MoeProblem& problem);
Placement weights_grad_of(const MoeProblem& problem);

}  // namespace cleave
