#include "call/define.h"
#include "call/values.h"
#include "module/bindings.h"
#include "plans/plan_docs.h"
#include "product/product.h"

namespace cleave::python {
namespace {

constexpr const char* kMixedGemmDoc =
    R"(What `cleave.mixed_gemm` calls with the tensors of a packed weight.

Args:
    a: [M, K], float16, bfloat16, float8_e4m3fn or int8.
    packed: uint8 [ceil(N / 64), ceil(K / 64), 2048], the codes.
    scales: [groups of K, N], of a's dtype, float16 for an a of 8 bits; bytes of "mxfp4", float8_e4m3fn of "nvfp4".
    zeros: uint8, as scales, or None for 8.
    global_scale: float32 [1], [E] of experts, or one for each row, [N] or [E, N]; of "nvfp4".
    out_features: N.
    group_size: columns that share a scale.
    format: of the codes.
    scale_a: float32 [M] or [M, 1], or one value, of an a of 8 bits.
    offs, indptr, starts, sizes, counts, alignment, zero_rest, check_offsets: as in `grouped_gemm`, for groups of rows.

The others are `gemm`'s.)";

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
  using Options = Concat<Weights, List<arg::Offs>, Bounds, List<arg::Bias, arg::C>, Scalars,
                         List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype>, FoundScales,
                         List<arg::ZeroRest, arg::CheckOffsets>, SplitK, List<arg::StaticB>, Place>;

  define(m, "mixed_gemm", Operands(), Options(), "Array | tuple[Array, ...]", kMixedGemmDoc,
         [](const auto& call) { return multiply(inputs_of(call), call, call, form_of(call)); });
  define(m, "plan_mixed_gemm", Operands(), Without<Options, OfCalls>(), "GemmPlan", plan_doc("mixed_gemm").c_str(),
         [](const auto& call) { return plan_product(inputs_of(call), call, form_of(call)); });
}

}  // namespace cleave::python
