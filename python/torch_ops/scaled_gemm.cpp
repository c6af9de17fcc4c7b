#include "product.h"

namespace cleave::torch_ops {

void add_scaled_gemm(Operators& operators) {
  using Scaled = List<arg::A, arg::B, NullableArgument<"scale_a">, NullableArgument<"scale_b">>;
  using Operands = Concat<Scaled, List<arg::Bias>>;
  using Short = Concat<Operands, List<arg::OutDtype, arg::UseFastAccum>>;
  using Rare = Concat<List<arg::C>, Scalars, List<arg::ScaleD, arg::Azp, arg::AzpAdj>, SplitK, List<arg::StaticB>>;
  operators.add("scaled_gemm", Short(), List<>(), [](const auto& call) { return multiply(call); });
  operators.add("scaled_gemm.full", Short(), Rare(), [](const auto& call) { return multiply(call); });
  operators.add("scaled_gemm.out", Concat<Operands, List<arg::UseFastAccum>>(),
                Concat<Rare, List<arg::Out, arg::Amax>>(), [](const auto& call) { return multiply(call); });
  using Quantized = Concat<List<arg::C>, Scalars, FoundScales, List<arg::Azp, arg::AzpAdj>, SplitK, List<arg::StaticB>>;
  operators.add("scaled_gemm.quantized", Short(), Quantized(), [](const auto& call) { return multiply(call); });
  using More = List<arg::Bias, arg::C, arg::ScaleD, arg::Azp, arg::AzpAdj>;
  operators.add("scaled_gemm.epilogue", Concat<Scaled, Function, More>(),
                Concat<List<arg::Alpha, arg::Beta, arg::OutDtype, arg::UseFastAccum>, SplitK>(),
                [](const auto& call) { return multiply(call); });
}

}  // namespace cleave::torch_ops
