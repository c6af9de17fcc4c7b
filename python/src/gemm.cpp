#include <nanobind/typing.h>

#include "bindings.h"
#include "docs.h"
#include "product.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

nb::object gemm(nb::handle a, nb::handle b, nb::handle c, nb::handle alpha, nb::handle beta,
                nb::handle bias, nb::handle activation, nb::handle out, nb::handle out_dtype,
                nb::handle split_k_mode, nb::handle split_k_slices, nb::handle deterministic,
                nb::handle kernel, nb::handle precision, nb::handle stream, nb::handle workspace) {
  return multiply(
      {.a = a, .b = b, .c = c, .bias = bias, .out = out},
      {activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel, precision},
      {alpha, beta, stream, workspace});
}

PlanObject plan_gemm(nb::handle a, nb::handle b, nb::handle c, nb::handle bias,
                     nb::handle activation, nb::handle out, nb::handle out_dtype,
                     nb::handle split_k_mode, nb::handle split_k_slices, nb::handle deterministic,
                     nb::handle kernel, nb::handle precision) {
  return plan_product(
      {.a = a, .b = b, .c = c, .bias = bias, .out = out},
      {activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel, precision});
}

}  // namespace

void bind_gemm(nb::module_& m) {
  m.attr("Array") = nb::type_var("Array");

  m.def("gemm", &gemm, "a"_a.none(), "b"_a.none(), nb::kw_only(), "c"_a = nb::none(),
        "alpha"_a.none() = 1.0, "beta"_a = nb::none(), "bias"_a = nb::none(),
        "activation"_a.none() = "none", "out"_a = nb::none(), "out_dtype"_a = nb::none(),
        "split_k_mode"_a.none() = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a.none() = true, "kernel"_a.none() = "auto", "precision"_a.none() = "tf32",
        "stream"_a = nb::none(), "workspace"_a = nb::none(), kGemmDoc, nb::sig(kGemmSignature));

  m.def("plan_gemm", &plan_gemm, "a"_a.none(), "b"_a.none(), nb::kw_only(), "c"_a = nb::none(),
        "bias"_a = nb::none(), "activation"_a.none() = "none", "out"_a = nb::none(),
        "out_dtype"_a = nb::none(), "split_k_mode"_a.none() = "auto",
        "split_k_slices"_a = nb::none(), "deterministic"_a.none() = true,
        "kernel"_a.none() = "auto", "precision"_a.none() = "tf32", kPlanGemmDoc,
        nb::sig(kPlanGemmSignature));
}

}  // namespace cleave::python
