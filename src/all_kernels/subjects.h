// Which problems need kernels of their own, by subject.
#pragma once

#include "all_kernels/collector.h"

namespace cleave {

void visit_products(Collector& all);
void visit_functions(Collector& all);  ///< of the epilogue, and reductions of D
void visit_scales(Collector& all);     ///< 8-bit operands: every way to scale them, and to store D
void visit_groups(Collector& all);
void visit_quantised(Collector& all);  ///< D in 8 bits, of layers as they follow each other
void visit_packed_weights(Collector& all);
void visit_convolutions(Collector& all);
void visit_direct_convolutions(Collector& all);
void visit_transposed_convolutions(Collector& all);
void visit_other_float32(Collector& all);  ///< as it is or in parts: the portable kernels

}  // namespace cleave
