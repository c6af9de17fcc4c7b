#include "bindings.h"
#include "cleave/names.h"
#include "define.h"
#include "docs.h"
#include "errors.h"
#include "product.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

void refuse_batch(nb::handle array, const char* name) {
  if (TensorReader(nb::none()).read(array, name).ndim <= 2) return;
  refuse_value("{} has a batch, which out_scale does not serve; pass matrices", name);
}

/// The type to quantise to: that of `out`, or out_dtype.
DType quantized_type(nb::handle out, nb::handle out_dtype) {
  if (!given(out)) return parse_dtype(out_dtype, "out_dtype", kQuantizedTypes);
  const TensorView view = TensorReader(nb::none()).read(out, "out");
  check_type(view, "out", kQuantizedTypes);
  if (out_dtype.is_none() || parse_dtype(out_dtype, "out_dtype") == view.dtype) return view.dtype;
  refuse_type("out is {}, but out_dtype is not; leave one of them away", to_string(view.dtype));
}

/// A row's scale needs the whole row, so the product is made in a wider type and quantised by a
/// second kernel.
nb::object multiply_and_quantize(GemmInputs inputs, ProductArguments arguments, const CallArguments& call) {
  if (given(inputs.get<arg::ScaleD>())) {
    refuse_value(
        "scale_d is given beside out_scale; pass scale_d where the scale is known, out_scale where "
        "it is to be computed");
  }
  bool ue8m0 = false;
  arguments.read<arg::UseUe8m0>(ue8m0);
  if (ue8m0) refuse_value("use_ue8m0 is True beside out_scale=\"row\"; it is for out_scale=\"block_1x128\"");
  if (PyTuple_Check(inputs.get<arg::Out>().ptr())) {
    refuse_value("out is a tuple, but out_scale has one result to quantise; pass an array, or no out");
  }
  if (EpilogueArguments(inputs.get<arg::Epilogue>(), {}).outputs_beside_d() > 0) {
    refuse_value("the epilogue function has several outputs, but out_scale quantises one; leave one of them out");
  }
  if (given(call.get<arg::Stream>())) {
    // The product in between is its framework's memory, which may be used again, on the current
    // stream, as soon as this call returns.
    refuse_value(
        "stream is given beside out_scale, which works on the current stream only; make it the "
        "current one");
  }
  refuse_batch(inputs.get<arg::A>(), "a");
  refuse_batch(inputs.get<arg::B>(), "b");
  const nb::handle out = inputs.get<arg::Out>(), scale_out = inputs.get<arg::ScaleOut>();
  const DType type = quantized_type(out, arguments.get<arg::OutDtype>());
  inputs.set<arg::Out>({});
  inputs.set<arg::ScaleOut>({});
  arguments.set<arg::OutScale>({});
  // bfloat16 has four bits more than the 8-bit floats, but only one more than int8.
  arguments.set<arg::OutDtype>(dtype_name(type == DType::i8 ? DType::f32 : DType::bf16));
  const nb::object product = multiply(inputs, arguments, call);
  return nb::module_::import_("cleave._core")
      .attr("quantize")(product, dtype_name(type), "row", "out"_a = out, "scale_out"_a = scale_out);
}

}  // namespace

void bind_scaled_gemm(nb::module_& m) {
  using Operands = List<arg::A, arg::B, Required<arg::ScaleA>, Required<arg::ScaleB>>;
  using Options = Concat<List<arg::Bias, arg::C>, Scalars,
                         List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype, arg::ScaleD, arg::Amax, arg::Azp,
                              arg::AzpAdj, arg::UseFastAccum>,
                         FoundScales, SplitK, List<arg::StaticB>, Place>;

  define(m, "scaled_gemm", Operands(), Options(), "Array | tuple[Array, ...]", kScaledGemmDoc, [](const auto& call) {
    std::optional<Granularity> out_scale;
    call.template read<arg::OutScale>(out_scale);
    if (out_scale != Granularity::row) return multiply(call, call, call);
    return multiply_and_quantize(call, call, call);
  });
  define(m, "plan_scaled_gemm", Operands(), Without<Options, OfCalls>(), "GemmPlan", plan_doc("scaled_gemm").c_str(),
         [](const auto& call) { return plan_product(call, call); });
}

}  // namespace cleave::python
