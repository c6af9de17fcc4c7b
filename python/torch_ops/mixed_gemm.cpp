#include "product.h"

namespace cleave::torch_ops {

void add_mixed_gemm(Operators& operators) {
  using Weights = List<arg::A, arg::Packed, arg::Scales, NullableArgument<"zeros">, arg::OutFeatures, arg::GroupSize>;
  using Codes = List<arg::Format, MaybeTensorArgument<"global_scale">, MaybeTensorArgument<"scale_a">>;
  using ExpertEnds = NullableArgument<"offs">;
  using Short = Concat<Weights, List<arg::Bias, arg::OutDtype>, Codes>;
  using Rare = Concat<List<arg::C>, Scalars, SplitK, List<arg::StaticB>>;
  const auto run = [](const auto& call) {
    WeightForm weights{.out_features = call.template get<arg::OutFeatures>(),
                       .group_size = call.template get<arg::GroupSize>()};
    call.template read<arg::Format>(weights.format);
    return multiply(call, {.weights = weights, .grouped = std::decay_t<decltype(call)>::template has<ExpertEnds>()});
  };
  operators.add("mixed_gemm", Short(), List<>(), run);
  operators.add("mixed_gemm.full", Short(), Rare(), run);
  operators.add("mixed_grouped_gemm", Concat<Weights, List<ExpertEnds, arg::Bias, arg::OutDtype>, Codes>(), List<>(),
                run);
  operators.add("mixed_gemm.out", Concat<Weights, List<arg::Bias>, Codes>(), Concat<Rare, List<arg::Out>>(), run);
  // Last, as those of other products are: torch would look for the function's text where a bias stands.
  using Added = Concat<List<arg::Bias>, Codes, List<arg::C>>;
  using Options = Concat<List<arg::Alpha, arg::Beta, arg::OutDtype>, SplitK, List<arg::StaticB>>;
  operators.add("mixed_gemm.epilogue", Concat<Weights, Function, Added>(), Options(), run);
  operators.add("mixed_grouped_gemm.epilogue", Concat<Weights, List<ExpertEnds>, Function, Added>(), Options(), run);
}

}  // namespace cleave::torch_ops
