// What a sum over ranks of their products is, and what it reads.
#pragma once

#include <optional>
#include <string>

#include "cleave/epilogue.h"
#include "operands/gemm_operands.h"
#include "over_ranks/rows.h"
#include "peers/places.h"

namespace cleave {

/// What calls with the same sizes, dtypes and options have in common.
struct SumForm {
  int64_t rows, columns;  // of each rank's product
  int64_t made;           // columns of D
  int64_t first, own;     // which rows of it this rank adds up, and how many
  int64_t most;           // of any rank
  bool pushed;            // all ranks add up the same
  bool unsplit;           // products are not split along K by themselves, unless they are batch invariant
  bool in_strips;         // pushed as a product that adds up itself sends it, which any rank may have
  bool exact;             // of integers, which scales, each a line, multiply when they are added up
  SplitKMode split;       // of this rank's product
  int32_t slices;         // 0: the planner chooses
  DType partial, d;
  Activation activation;
  std::string call;                      // how ranks name it to each other
  std::optional<Major> lines_of_scales;  // D's are found, for each 128 columns, and lie so
  bool use_ue8m0 = false;                // these are powers of two
  bool gathered = false;                 // all ranks get the rows that each adds up
  int64_t part = 0;                      // rows that leave while more are multiplied; 0: they do not
  /// Then what makes the product of this rank's rows add up itself, with the others' partial results as inputs, and c
  /// and a bias where there are; nullptr: a kernel behind it does.
  const EpilogueFunction* onto = nullptr;
};

/// What the product and the sum read. Without a b, a is the product.
struct SumTensors {
  Operand a;
  std::optional<Operand> b, scale_a, scale_b, bias, c, scale_d;
};

/// Where it goes.
struct SumResults {
  Operand d;                         // what this rank gets
  std::optional<Operand> scale_out;  // D's scales
};

/// Where, in a rank's place, the rows begin that it adds up for all: behind partial results, of all rows or, where each
/// rank adds up its own, of as many for each.
size_t gathered_at(const SumForm& form, int ranks);
/// What a call takes of each rank's memory.
size_t place_bytes(const SumForm& form, int ranks);
/// Throws Error(invalid_argument) where the places have less.
void check_place(const SumForm& form, const Places& places);

/// Those of this rank's products.
PlanOptions split_as(const SumForm& form, PlanOptions options);

}  // namespace cleave
