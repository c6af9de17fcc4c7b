#include "product.h"

namespace cleave::torch_ops {

void add_grouped_gemm(Operators& operators) {
  using Operands = List<arg::A, arg::B, arg::Offs, arg::Bias>;
  using Scales = List<MaybeTensorArgument<"scale_a">, MaybeTensorArgument<"scale_b">, arg::UseFastAccum>;
  using Rare = List<arg::C, arg::Indptr, arg::Starts, arg::Sizes, arg::Counts>;
  using Short = Concat<Operands, List<arg::OutDtype>, Scales>;
  using Options = Concat<List<arg::Alignment>, Scalars, List<arg::ZeroRest>, SplitK, List<arg::SlotsOfRow>>;
  operators.add("grouped_gemm", Short(), List<>(), [](const auto& call) { return multiply(call, {.grouped = true}); });
  using All = Concat<Rare, List<arg::Gather>>;  // torch wants tensors that may be passed by position
  operators.add("grouped_gemm.full", Concat<Short, All>(), Options(),
                [](const auto& call) { return multiply(call, {.grouped = true}); });
  // Before the function, whose text torch would look for where a bias stands.
  operators.add("grouped_gemm.out", Concat<Operands, Scales, All>(), Concat<Options, List<arg::Out>>(),
                [](const auto& call) { return multiply(call, {.grouped = true}); });
  operators.add("grouped_gemm.quantized", Concat<Short, All>(), Concat<Options, FoundScales>(),
                [](const auto& call) { return multiply(call, {.grouped = true}); });
  using Scaled = List<MaybeTensorArgument<"scale_a">, MaybeTensorArgument<"scale_b">>;
  operators.add(
      "grouped_gemm.epilogue",
      Concat<List<arg::A, arg::B, NullableArgument<"offs">>, Function, List<arg::Bias>, Scaled, Rare>(),
      Concat<List<arg::Alignment, arg::Alpha, arg::Beta, arg::OutDtype, arg::UseFastAccum, arg::ZeroRest>, SplitK>(),
      [](const auto& call) { return multiply(call, {.grouped = true}); });
}

}  // namespace cleave::torch_ops
