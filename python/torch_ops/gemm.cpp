#include "product.h"

namespace cleave::torch_ops {

void add_gemm(Operators& operators) {
  using Operands = List<arg::A, arg::B, arg::Bias, arg::C>;
  operators.add("gemm", Operands(), Concat<Scalars, List<arg::OutDtype>, SplitK>(),
                [](const auto& call) { return multiply(call); });
  operators.add("gemm.out", Operands(), Concat<Scalars, SplitK, List<arg::Out>>(),
                [](const auto& call) { return multiply(call); });
  operators.add("gemm.quantized", Operands(), Concat<Scalars, List<arg::OutDtype>, FoundScales, SplitK>(),
                [](const auto& call) { return multiply(call); });
  operators.add("gemm.epilogue", Concat<List<arg::A, arg::B>, Function, List<arg::Bias, arg::C>>(),
                Concat<List<arg::Alpha, arg::Beta, arg::OutDtype>, SplitK>(),
                [](const auto& call) { return multiply(call); });
}

}  // namespace cleave::torch_ops
