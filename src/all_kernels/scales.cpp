#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"
#include "all_kernels/typical_problems.h"

namespace cleave {

using namespace typical;

void visit_scales(Collector& all) {
  GemmProblem asymmetric = scaled(DType::i8, DType::i8, DType::bf16, kVector, kVector);
  asymmetric.has_zero = true;
  asymmetric.bias = Bias::row;
  all.visit(asymmetric);
  GemmProblem exact = product(DType::i8, DType::i8, DType::i32);
  exact.has_c = true;
  all.visit(exact);
  all.visit(scaled(DType::e4m3, DType::e4m3, DType::bf16, kVector, kVector, true), SplitKMode::none, true);
  all.visit(scaled(DType::e5m2, DType::e4m3, DType::f32, kVector, kVector));
  GemmProblem chained = scaled(DType::e4m3, DType::e5m2, DType::e4m3, kVector, kVector);
  chained.has_scale_d = chained.has_amax = chained.has_c = true;
  all.visit(chained);
  all.visit(scaled(DType::e4m3, DType::e4m3, DType::bf16, kLines, kSquares));
  all.visit(scaled(DType::e4m3, DType::e4m3, DType::bf16, kSquares, kLines));
  all.visit(scaled(DType::e4m3, DType::e4m3, DType::f32, kLines, kLines));
  all.visit(scaled(DType::i8, DType::i8, DType::bf16, kLines, kSquares));
}

}  // namespace cleave
