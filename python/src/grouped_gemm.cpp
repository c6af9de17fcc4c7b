#include "bindings.h"
#include "docs.h"
#include "errors.h"
#include "product.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

nb::object grouped_gemm(nb::handle a, nb::handle b, nb::handle offs, nb::handle indptr,
                        nb::handle starts, nb::handle sizes, nb::handle counts,
                        nb::handle alignment, nb::handle scale_a, nb::handle scale_b,
                        nb::handle bias, nb::handle c, nb::handle alpha, nb::handle beta,
                        nb::handle activation, nb::handle out, nb::handle out_dtype,
                        nb::handle use_fast_accum, nb::handle zero_rest, nb::handle check_offsets,
                        nb::handle split_k_mode, nb::handle split_k_slices,
                        nb::handle deterministic, nb::handle kernel, nb::handle precision,
                        nb::handle stream, nb::handle workspace) {
  return multiply({.a = a,
                   .b = b,
                   .c = c,
                   .bias = bias,
                   .out = out,
                   .scale_a = scale_a,
                   .scale_b = scale_b,
                   .offs = offs,
                   .indptr = indptr,
                   .starts = starts,
                   .sizes = sizes,
                   .counts = counts},
                  {.activation = activation,
                   .out_dtype = out_dtype,
                   .split_k_mode = split_k_mode,
                   .split_k_slices = split_k_slices,
                   .deterministic = deterministic,
                   .kernel = kernel,
                   .precision = precision,
                   .use_fast_accum = use_fast_accum,
                   .alignment = alignment,
                   .zero_rest = zero_rest,
                   .grouped = true},
                  {alpha, beta, stream, workspace, parse_flag(check_offsets, "check_offsets")});
}

PlanObject plan_grouped_gemm(nb::handle a, nb::handle b, nb::handle offs, nb::handle indptr,
                             nb::handle starts, nb::handle sizes, nb::handle counts,
                             nb::handle alignment, nb::handle scale_a, nb::handle scale_b,
                             nb::handle bias, nb::handle c, nb::handle activation, nb::handle out,
                             nb::handle out_dtype, nb::handle use_fast_accum, nb::handle zero_rest,
                             nb::handle split_k_mode, nb::handle split_k_slices,
                             nb::handle deterministic, nb::handle kernel, nb::handle precision) {
  return plan_product({.a = a,
                       .b = b,
                       .c = c,
                       .bias = bias,
                       .out = out,
                       .scale_a = scale_a,
                       .scale_b = scale_b,
                       .offs = offs,
                       .indptr = indptr,
                       .starts = starts,
                       .sizes = sizes,
                       .counts = counts},
                      {.activation = activation,
                       .out_dtype = out_dtype,
                       .split_k_mode = split_k_mode,
                       .split_k_slices = split_k_slices,
                       .deterministic = deterministic,
                       .kernel = kernel,
                       .precision = precision,
                       .use_fast_accum = use_fast_accum,
                       .alignment = alignment,
                       .zero_rest = zero_rest,
                       .grouped = true});
}

void check_ranks(nb::handle dy, nb::handle x, bool has_counts) {
  TensorReader reader{nb::none()};
  const TensorView view_dy = reader.read(dy, "dy"), view_x = reader.read(x, "x");
  const int rank = view_dy.ndim;
  if (rank == view_x.ndim && (rank == 2 || (rank == 3 && has_counts))) return;
  refuse_value("dy is {} and x is {}; both must be matrices, or, with counts, batches of them",
               shape_text(view_dy), shape_text(view_x));
}

nb::object grouped_gemm_wgrad(nb::handle dy, nb::handle x, nb::handle offs, nb::handle indptr,
                              nb::handle starts, nb::handle sizes, nb::handle counts,
                              nb::handle alignment, nb::handle scale_dy, nb::handle scale_x,
                              nb::handle alpha, nb::handle out, nb::handle out_dtype,
                              nb::handle accumulate, nb::handle use_fast_accum,
                              nb::handle check_offsets, nb::handle split_k_mode,
                              nb::handle split_k_slices, nb::handle deterministic,
                              nb::handle kernel, nb::handle precision, nb::handle stream,
                              nb::handle workspace) {
  check_ranks(dy, x, given(counts));
  const bool adds = parse_flag(accumulate, "accumulate");
  if (adds && !given(out)) {
    refuse_value("accumulate is True, but there is no out to add to; pass out");
  }
  const nb::object none = nb::none();
  try {
    return multiply({.a = dy,
                     .b = x,
                     .c = adds ? out : nb::handle(none),
                     .out = out,
                     .scale_a = scale_dy,
                     .scale_b = scale_x,
                     .offs = offs,
                     .indptr = indptr,
                     .starts = starts,
                     .sizes = sizes,
                     .counts = counts},
                    {.out_dtype = out_dtype,
                     .split_k_mode = split_k_mode,
                     .split_k_slices = split_k_slices,
                     .deterministic = deterministic,
                     .kernel = kernel,
                     .precision = precision,
                     .use_fast_accum = use_fast_accum,
                     .alignment = alignment,
                     .grouped = true,
                     .a_is_transposed = true},
                    {alpha, none, stream, workspace, parse_flag(check_offsets, "check_offsets")});
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} (a is dy transposed, b is x)", error.what()));
  }
}

}  // namespace

void bind_grouped_gemm(nb::module_& m) {
  m.def("grouped_gemm", &grouped_gemm, "a"_a.none(), "b"_a.none(), "offs"_a = nb::none(),
        nb::kw_only(), "indptr"_a = nb::none(), "starts"_a = nb::none(), "sizes"_a = nb::none(),
        "counts"_a = nb::none(), "alignment"_a = nb::none(), "scale_a"_a = nb::none(),
        "scale_b"_a = nb::none(), "bias"_a = nb::none(), "c"_a = nb::none(), "alpha"_a.none() = 1.0,
        "beta"_a = nb::none(), "activation"_a.none() = "none", "out"_a = nb::none(),
        "out_dtype"_a = nb::none(), "use_fast_accum"_a.none() = false, "zero_rest"_a = nb::none(),
        "check_offsets"_a.none() = false, "split_k_mode"_a.none() = "auto",
        "split_k_slices"_a = nb::none(), "deterministic"_a.none() = true,
        "kernel"_a.none() = "auto", "precision"_a.none() = "tf32", "stream"_a = nb::none(),
        "workspace"_a = nb::none(), kGroupedGemmDoc, nb::sig(kGroupedGemmSignature));

  m.def("plan_grouped_gemm", &plan_grouped_gemm, "a"_a.none(), "b"_a.none(), "offs"_a = nb::none(),
        nb::kw_only(), "indptr"_a = nb::none(), "starts"_a = nb::none(), "sizes"_a = nb::none(),
        "counts"_a = nb::none(), "alignment"_a = nb::none(), "scale_a"_a = nb::none(),
        "scale_b"_a = nb::none(), "bias"_a = nb::none(), "c"_a = nb::none(),
        "activation"_a.none() = "none", "out"_a = nb::none(), "out_dtype"_a = nb::none(),
        "use_fast_accum"_a.none() = false, "zero_rest"_a = nb::none(),
        "split_k_mode"_a.none() = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a.none() = true, "kernel"_a.none() = "auto", "precision"_a.none() = "tf32",
        kPlanGroupedGemmDoc, nb::sig(kPlanGroupedGemmSignature));

  m.def("grouped_gemm_wgrad", &grouped_gemm_wgrad, "dy"_a.none(), "x"_a.none(),
        "offs"_a = nb::none(), nb::kw_only(), "indptr"_a = nb::none(), "starts"_a = nb::none(),
        "sizes"_a = nb::none(), "counts"_a = nb::none(), "alignment"_a = nb::none(),
        "scale_dy"_a = nb::none(), "scale_x"_a = nb::none(), "alpha"_a.none() = 1.0,
        "out"_a = nb::none(), "out_dtype"_a = nb::none(), "accumulate"_a.none() = false,
        "use_fast_accum"_a.none() = false, "check_offsets"_a.none() = false,
        "split_k_mode"_a.none() = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a.none() = true, "kernel"_a.none() = "auto", "precision"_a.none() = "tf32",
        "stream"_a = nb::none(), "workspace"_a = nb::none(), kGroupedGemmWgradDoc,
        nb::sig(kGroupedGemmWgradSignature));
}

}  // namespace cleave::python
