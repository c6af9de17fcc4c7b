// Which way of making elements of a packed weight is a kernel's.
#pragma once

#include "cleave/weights/dequantise_bytes.h"
#include "cleave/weights/dequantise_e2m1.h"
#include "cleave/weights/dequantise_int4.h"

namespace cleave {

/// Row: what a row has for one group. rows(scales, zeros, to) makes those of a fragment's two rows of their bits.
/// pair(word, r, row) makes register `r` of a fragment of two elements a register, quad(word, upper, row) one of four.
template <GemmConfig C>
using Dequantiser = Either<size_of(C.operands.a) == 1, DequantiseBytes<C>,
                           Either<C.weights.format == WeightFormat::int4, DequantiseInt4<C>, DequantiseE2m1<C>>>;

}  // namespace cleave
