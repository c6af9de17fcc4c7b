// What a product of rows that are gathered from all ranks is, and what it reads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operands/gemm_operands.h"
#include "peers/places.h"

namespace cleave {

/// What calls with the same sizes, dtypes and options have in common.
struct GatherForm {
  int64_t rows, share;  // of all ranks, and of each but the last
  DType d;
  Activation activation;
  std::string call;  // how ranks name it to each other
  int64_t part = 0;  // rows of each rank that move while others are multiplied; 0: all move first
  // Then, and on this rank alone: whether the others' rows are awaited together, as if they were one part; and whether
  // they are multiplied rank by rank, of which no product is split along K by itself, unless it is batch invariant.
  bool awaits_all = false, by_rank = false;
};

/// What the product reads; a and scale_a, whose rows are gathered, are packed.
struct GatherTensors {
  Operand a, b;
  std::optional<Operand> scale_a, scale_b, bias;
};

/// One of those that are gathered, and where all ranks' rows of it lie in a place.
struct GatheredTensor {
  Operand own;
  size_t at;

  size_t row_bytes() const { return size_t(own.columns()) * size_of(own.dtype); }
};

/// What rows of so many bytes take of each rank's memory.
size_t place_bytes(const GatherForm& form, int ranks, size_t row_bytes);

/// a, and scale_a if it is given. Throws Error(invalid_argument) where the places have less room.
std::vector<GatheredTensor> gathered_tensors(const GatherForm& form, const GatherTensors& tensors,
                                             const Places& places);

/// All rows of it, in the first of the places.
Operand gathered_rows(const GatherForm& form, const GatheredTensor& tensor, const Places& places);

/// Columns of D.
int64_t columns_of_d(const GatherForm& form, const Operand& b);

}  // namespace cleave
