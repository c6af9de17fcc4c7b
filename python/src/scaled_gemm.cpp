#include "bindings.h"
#include "cleave/names.h"
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
nb::object multiply_and_quantize(GemmInputs inputs, PlanOptions options,
                                 const LaunchOptions& launch_options, nb::handle out_scale) {
  if (!PyUnicode_Check(out_scale.ptr()) ||
      PyUnicode_CompareWithASCIIString(out_scale.ptr(), "row") != 0) {
    refuse_value("out_scale is {}; it must be \"row\" or None", nb::repr(out_scale).c_str());
  }
  if (given(inputs.scale_d)) {
    refuse_value(
        "scale_d is given beside out_scale; pass scale_d where the scale is known, out_scale where "
        "it is to be computed");
  }
  if (!launch_options.stream.is_none()) {
    // The product in between is its framework's memory, which may be used again, on the current
    // stream, as soon as this call returns.
    refuse_value(
        "stream is given beside out_scale, which works on the current stream only; make it the "
        "current one");
  }
  refuse_batch(inputs.a, "a");
  refuse_batch(inputs.b, "b");
  const nb::handle out = inputs.out;
  const DType type = quantized_type(out, options.out_dtype);
  inputs.out = {};
  // bfloat16 has four bits more than the 8-bit floats, but only one more than int8.
  options.out_dtype = dtype_name(type == DType::i8 ? DType::f32 : DType::bf16);
  const nb::object product = multiply(inputs, options, launch_options);
  return nb::module_::import_("cleave._core")
      .attr("quantize")(product, dtype_name(type), "row", "out"_a = out);
}

nb::object scaled_gemm(nb::handle a, nb::handle b, nb::handle scale_a, nb::handle scale_b,
                       nb::handle bias, nb::handle out_dtype, nb::handle c, nb::handle alpha,
                       nb::handle beta, nb::handle activation, nb::handle out, nb::handle scale_d,
                       nb::handle out_scale, nb::handle amax, nb::handle azp, nb::handle azp_adj,
                       nb::handle use_fast_accum, nb::handle split_k_mode,
                       nb::handle split_k_slices, nb::handle deterministic, nb::handle kernel,
                       nb::handle stream, nb::handle workspace) {
  const GemmInputs inputs{a, b, c, bias, out, scale_a, scale_b, scale_d, amax, azp, azp_adj};
  const PlanOptions options{activation,    out_dtype, split_k_mode, split_k_slices,
                            deterministic, kernel,    {},           use_fast_accum};
  const LaunchOptions launch_options{alpha, beta, stream, workspace};
  if (out_scale.is_none()) return multiply(inputs, options, launch_options);
  return multiply_and_quantize(inputs, options, launch_options, out_scale);
}

PlanObject plan_scaled_gemm(nb::handle a, nb::handle b, nb::handle scale_a, nb::handle scale_b,
                            nb::handle bias, nb::handle out_dtype, nb::handle c,
                            nb::handle activation, nb::handle out, nb::handle scale_d,
                            nb::handle amax, nb::handle azp, nb::handle azp_adj,
                            nb::handle use_fast_accum, nb::handle split_k_mode,
                            nb::handle split_k_slices, nb::handle deterministic,
                            nb::handle kernel) {
  return plan_product({a, b, c, bias, out, scale_a, scale_b, scale_d, amax, azp, azp_adj},
                      {activation,
                       out_dtype,
                       split_k_mode,
                       split_k_slices,
                       deterministic,
                       kernel,
                       {},
                       use_fast_accum});
}

}  // namespace

void bind_scaled_gemm(nb::module_& m) {
  m.def("scaled_gemm", &scaled_gemm, "a"_a.none(), "b"_a.none(), "scale_a"_a.none(),
        "scale_b"_a.none(), nb::kw_only(), "bias"_a = nb::none(), "out_dtype"_a = nb::none(),
        "c"_a = nb::none(), "alpha"_a.none() = 1.0, "beta"_a = nb::none(),
        "activation"_a.none() = "none", "out"_a = nb::none(), "scale_d"_a = nb::none(),
        "out_scale"_a = nb::none(), "amax"_a = nb::none(), "azp"_a = nb::none(),
        "azp_adj"_a = nb::none(), "use_fast_accum"_a.none() = false,
        "split_k_mode"_a.none() = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a.none() = true, "kernel"_a.none() = "auto", "stream"_a = nb::none(),
        "workspace"_a = nb::none(), kScaledGemmDoc, nb::sig(kScaledGemmSignature));

  m.def("plan_scaled_gemm", &plan_scaled_gemm, "a"_a.none(), "b"_a.none(), "scale_a"_a.none(),
        "scale_b"_a.none(), nb::kw_only(), "bias"_a = nb::none(), "out_dtype"_a = nb::none(),
        "c"_a = nb::none(), "activation"_a.none() = "none", "out"_a = nb::none(),
        "scale_d"_a = nb::none(), "amax"_a = nb::none(), "azp"_a = nb::none(),
        "azp_adj"_a = nb::none(), "use_fast_accum"_a.none() = false,
        "split_k_mode"_a.none() = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a.none() = true, "kernel"_a.none() = "auto", kPlanScaledGemmDoc,
        nb::sig(kPlanScaledGemmSignature));
}

}  // namespace cleave::python
