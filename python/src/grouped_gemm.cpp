#include "bindings.h"
#include "define.h"
#include "docs.h"
#include "errors.h"
#include "product.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

void check_ranks(nb::handle dy, nb::handle x, bool has_counts) {
  TensorReader reader{nb::none()};
  const TensorView view_dy = reader.read(dy, "dy"), view_x = reader.read(x, "x");
  const int rank = view_dy.ndim;
  if (rank == view_x.ndim && (rank == 2 || (rank == 3 && has_counts))) return;
  refuse_value("dy is {} and x is {}; both must be matrices, or, with counts, batches of them", shape_text(view_dy),
               shape_text(view_x));
}

using Dy = Array<"dy">;
using X = Array<"x">;
using ScaleDy = MaybeArray<"scale_dy">;
using ScaleX = MaybeArray<"scale_x">;

template <class Call>
nb::object weight_gradient(const Call& call) {
  check_ranks(call.template get<Dy>(), call.template get<X>(), given(call.template get<arg::Counts>()));
  GemmInputs inputs(call);
  inputs.set<arg::A>(call.template get<Dy>());
  inputs.set<arg::B>(call.template get<X>());
  inputs.set<arg::ScaleA>(call.template get<ScaleDy>());
  inputs.set<arg::ScaleB>(call.template get<ScaleX>());
  bool accumulate = false;
  call.template read<arg::Accumulate>(accumulate);
  const nb::handle out = first_output(inputs.get<arg::Out>());
  if (accumulate && !given(out)) {
    refuse_value("accumulate is True, but there is no out to add to; pass out");
  }
  if (accumulate) inputs.set<arg::C>(out);
  try {
    return multiply(inputs, call, call, {.grouped = true, .a_is_transposed = true});
  } catch (const Error& error) {
    refuse(error.code(), "{} (a is dy transposed, b is x)", error.what());
  }
}

}  // namespace

void bind_grouped_gemm(nb::module_& m) {
  using Operands = List<arg::A, arg::B, arg::Offs>;
  using Options =
      Concat<Bounds, List<arg::Gather, arg::SlotsOfRow, arg::ScaleA, arg::ScaleB, arg::Bias, arg::C>, Scalars,
             List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype, arg::UseFastAccum, arg::ZeroRest,
                  arg::CheckOffsets>,
             FoundScales, SplitK, List<arg::Precision>, Place>;

  define(m, "grouped_gemm", Operands(), Options(), "Array | tuple[Array, ...]", kGroupedGemmDoc,
         [](const auto& call) { return multiply(call, call, call, {.grouped = true}); });
  define(m, "plan_grouped_gemm", Operands(), Without<Options, OfCalls>(), "GemmPlan", plan_doc("grouped_gemm").c_str(),
         [](const auto& call) { return plan_product(call, call, {.grouped = true}); });

  using WgradOptions = Concat<Bounds,
                              List<ScaleDy, ScaleX, arg::Alpha, arg::Epilogue, arg::Out, arg::OutDtype, arg::Accumulate,
                                   arg::UseFastAccum, arg::CheckOffsets>,
                              SplitK, List<arg::Precision>, Place>;

  define(m, "grouped_gemm_wgrad", List<Dy, X, arg::Offs>(), WgradOptions(), "Array", kGroupedGemmWgradDoc,
         [](const auto& call) { return weight_gradient(call); });
}

}  // namespace cleave::python
