#include "bindings.h"
#include "define.h"
#include "docs.h"
#include "product.h"
#include "values.h"

namespace cleave::python {
namespace {

template <class Call>
GemmInputs inputs_of(const Call& call) {
  GemmInputs inputs(call);
  inputs.set<arg::B>(call.template get<arg::Packed>());
  inputs.set<arg::Scales>(call.template get<Required<arg::Scales>>());
  return inputs;
}

template <class Call>
GemmOptions form_of(const Call& call) {
  WeightForm weights;
  call.template read<arg::Format>(weights.format);
  call.template read<arg::OutFeatures>(weights.out_features);
  call.template read<arg::GroupSize>(weights.group_size);
  const bool grouped = given(call.template get<arg::Offs>()) || given(call.template get<arg::Indptr>()) ||
                       given(call.template get<arg::Starts>()) || given(call.template get<arg::Counts>());
  return {.weights = weights, .grouped = grouped};
}

}  // namespace

void bind_mixed_gemm(nanobind::module_& m) {
  using Operands = List<arg::A, arg::Packed, Required<arg::Scales>>;
  using Weights = List<arg::Zeros, arg::GlobalScale, Required<arg::OutFeatures>, Required<arg::GroupSize>, arg::Format,
                       arg::ScaleA>;
  using Options =
      Concat<Weights, List<arg::Offs>, Bounds, List<arg::Bias, arg::C>, Scalars,
             List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype, arg::ZeroRest, arg::CheckOffsets>, SplitK,
             List<arg::StaticB>, Place>;

  define(m, "mixed_gemm", Operands(), Options(), "Array | tuple[Array, ...]", kMixedGemmDoc,
         [](const auto& call) { return multiply(inputs_of(call), call, call, form_of(call)); });
  define(m, "plan_mixed_gemm", Operands(), Without<Options, OfCalls>(), "GemmPlan", plan_doc("mixed_gemm").c_str(),
         [](const auto& call) { return plan_product(inputs_of(call), call, form_of(call)); });
}

}  // namespace cleave::python
