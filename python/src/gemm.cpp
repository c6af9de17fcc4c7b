#include <nanobind/typing.h>

#include "bindings.h"
#include "define.h"
#include "docs.h"
#include "product.h"

namespace cleave::python {

void bind_gemm(nanobind::module_& m) {
  m.attr("Array") = nanobind::type_var("Array");

  using Operands = List<arg::A, arg::B>;
  using Options =
      Concat<List<arg::Bias, arg::C>, Scalars, List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype>,
             FoundScales, SplitK, List<arg::Precision, arg::StaticB>, Place>;

  define(m, "gemm", Operands(), Options(), "Array | tuple[Array, ...]", kGemmDoc,
         [](const auto& call) { return multiply(call, call, call); });
  define(m, "plan_gemm", Operands(), Without<Options, OfCalls>(), "GemmPlan", plan_doc("gemm").c_str(),
         [](const auto& call) { return plan_product(call, call); });
}

}  // namespace cleave::python
