#include "bindings.h"
#include "define.h"
#include "docs.h"
#include "product.h"

namespace cleave::python {

void bind_scaled_gemm(nanobind::module_& m) {
  using Operands = List<arg::A, arg::B, Required<arg::ScaleA>, Required<arg::ScaleB>>;
  using Options = Concat<List<arg::Bias, arg::C>, Scalars,
                         List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype, arg::ScaleD, arg::Amax, arg::Azp,
                              arg::AzpAdj, arg::UseFastAccum>,
                         FoundScales, SplitK, List<arg::StaticB>, Place>;

  define(m, "scaled_gemm", Operands(), Options(), "Array | tuple[Array, ...]", kScaledGemmDoc,
         [](const auto& call) { return multiply(call, call, call); });
  define(m, "plan_scaled_gemm", Operands(), Without<Options, OfCalls>(), "GemmPlan", plan_doc("scaled_gemm").c_str(),
         [](const auto& call) { return plan_product(call, call); });
}

}  // namespace cleave::python
