#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "call/define.h"
#include "inputs/quantize_operands.h"
#include "module/bindings.h"
#include "operands/roles.h"
#include "plans/launch.h"
#include "plans/plan_cache.h"
#include "plans/plan_docs.h"
#include "quantize/problem.h"
#include "quantize/row_range.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

constexpr const char* kQuantizeDoc =
    R"(Quantises x to 8 bits: q and float32 scales with x ~ smooth * scale * (q - zero).

x is read once (for one scale of the whole tensor twice, by two kernels); the largest magnitude of a
group becomes the largest q. `scaled_gemm` takes A's rows quantised as they are, and B.T's rows
quantised, passed as q.T and scale.T.

Args:
    x: [M, K]; float16, bfloat16 or float32; rows contiguous, at any distance from each other.
    dtype: of q: {quantized}, or such a dtype of torch or ml_dtypes.
    granularity: what shares a scale: "tensor" (scale [1, 1]), "row" ([M, 1]), "block_1x128"
        ([M, ceil(K / 128)]) or "block_128x128" ([ceil(M / 128), ceil(K / 128)]).
    scale: static scales, float32, used instead of computed ones: of the shape above with any strides,
        or [M] for rows, or any array of one value for a tensor. Values beyond their range saturate.
    zero: with scale and symmetric=False, the zero points: int32, [M] or [M, 1], or one value.
    smooth: [K], float32: x is divided by it, column by column, in the same pass (see `smooth`).
    norm: `cleave.rms_norm(weight, eps)` or `cleave.layer_norm(weight, bias, eps)`: quantise the norm of
        x's rows, computed in float32 without a rounding to x's dtype, by the same kernel; by two where one
        scale of the whole tensor is to be found, in squares of 128x128, and with transpose.
    residual: [M, K] like x, of any of its dtypes, with norm: x + residual is rounded to the residual's
        dtype, written to residual_out, and then normalised.
    residual_out: where that sum is written, [M, K] of residual's dtype. Defaults to a new array; may be
        `residual` itself (in place, as vLLM's fused_add_rms_norm does) or x.
    normed_out: [M, K] of x's dtype, with norm: the norm, before smooth and quantisation, is written here.
        May be x or residual itself.
    symmetric: False, for int8 by row or tensor, maps the range of a group, widened to include 0, to
        -128 to 127, with a zero point (vLLM's azp).
    transpose: True, for block scales, also quantises x.T from the same read: with block_1x128 its
        scales cover 128 rows of x, with block_128x128 they are those of x transposed.
    offs: [G], int32 or int64: where groups of x's rows end, for 8-bit weight gradients grouped by
        tokens (block_1x128 with transpose). Each group's columns of q_t begin at a multiple of 128, so
        that no scale covers two groups, and the columns between are zero: q_t is [K, P], P being the
        largest multiple of 128 up to M + 127 * min(G, M). scale_t is [K, P / 128], its rows neighbours.
        ends says where the groups end in q_t: pass it as
        grouped_gemm(dy_t, x_t.T, ends, alignment=128, scale_a=..., scale_b=...).
    out, scale_out: where q and scale are written, of their shapes; rows of out contiguous, scale_out of
        any strides. Neither may overlap any other array.
    scale_major: memory order of scales that are allocated: "k", or "mn" to make the rows of a column
        neighbours, as torch and DeepGEMM want for 1x128.
    use_ue8m0: round the scales that are found up to powers of two, as the UE8M0 format stores them; not
        with scale, nor with zero points.
    stream: as in `gemm`; defaults to the current stream of x's framework.

Returns:
    (q, scale); (q, scale, zero) if not symmetric; (q, scale, q_t, scale_t) with transpose;
    (q, scale, q_t, scale_t, ends) with offs. With a residual, residual_out follows, and then normed_out
    if it was given. Each is what was given, or a new array of x's framework on x's device.

Raises:
    TypeError, ValueError, cleave.CudaError: as `gemm`.

Scales are amax / 127, or amax over the largest value of an 8-bit float (448 for e4m3), in float32. A
group of zeros has scale 0 and q 0; one with a NaN has scale NaN. Results are bitwise repeatable and
the same on every device. With a norm they are the same on one GPU, whatever the other rows are, and
in all but the last bits on others. Safe in CUDA graphs once the same call has run, or was
prepared by `plan_quantize(...).prepare(stream)`.)";

constexpr const char* kPlanQuantizeDoc =
    R"(Plans what `quantize` runs on arrays of this form; its arguments and errors. Compiles nothing.)";

constexpr const char* kQuantizePlanDoc =
    R"(How arrays of one form are quantised: shape, strides, dtypes, device and options.

Immutable and thread-safe. Made by `plan_quantize`; `quantize` finds its own.)";

nb::tuple quantize(const QuantizeInputs& inputs, nb::handle stream) {
  TensorReader reader(stream);
  QuantizeOperands operands(inputs, reader);
  with_roles({{"q", "out"}}, [&] {
    const auto plan = RecentPlans<QuantizeProblem>::shared().get(operands.problem);
    operands.allocate(reader);
    const nb::gil_scoped_release unlocked;
    plan->run(operands.arguments, reader.stream());
  });
  reader.mark_written();
  return operands.results();
}

/// cleave.QuantizePlan.
struct PlanHandle {
  std::shared_ptr<const QuantizePlan> plan;
};

PlanHandle plan_quantize(const QuantizeInputs& inputs) {
  TensorReader reader{nb::none()};
  const QuantizeOperands operands(inputs, reader);
  return {make_plan(operands.problem)};
}

std::vector<PlanHandle> prepare_quantize_rows(const PlanHandle& planned, int64_t first, int64_t last) {
  std::vector<PlanHandle> plans;
  for (auto& plan : plans_of_rows(planned.plan->problem(), first, last)) plans.push_back({std::move(plan)});
  return plans;
}

}  // namespace

void bind_quantize(nb::module_& m) {
  nb::class_<PlanHandle>(m, "QuantizePlan", kQuantizePlanDoc)
      .def(
          "prepare", [](const PlanHandle& self, nb::handle stream) { prepare(*self.plan, stream); },
          "stream"_a = nb::none(), kPrepareDoc)
      .def_prop_ro(
          "kernel_name", [](const PlanHandle& self) { return self.plan->kernel_name(); },
          "The kernels, in the order of their launches, with blocks and threads.")
      .def_prop_ro(
          "kernel_source", [](const PlanHandle& self) { return self.plan->kernel_source(); },
          "The source text that is compiled; empty for the CPU backend.")
      .def_prop_ro(
          "kernel_sources", [](const PlanHandle& self) { return self.plan->kernel_sources(); }, kKernelSourcesDoc)
      .def_prop_ro(
          "kernel_arch", [](const PlanHandle& self) { return arch_of(self.plan->problem().device); }, kKernelArchDoc)
      .def("__repr__", [](const PlanHandle& self) { return "<cleave.QuantizePlan " + self.plan->kernel_name() + ">"; });

  m.def("prepare_quantize_rows", &prepare_quantize_rows, "planned"_a, "first"_a, "last"_a,
        "Plans, which are to be prepared, with all kernels that the plan's problem runs with every number of rows of a "
        "range.");

  using Positional = List<arg::X, arg::QuantizedDtype, arg::Granularity>;
  using Options = List<arg::Scale, arg::Zero, arg::Smooth, arg::QuantizedNorm, arg::Residual, arg::ResidualOut,
                       arg::NormedOut, arg::Symmetric, arg::Transpose, arg::Offs, arg::Out, arg::ScaleOut,
                       arg::ScaleMajor, arg::UseUe8m0, arg::Stream>;
  define(m, "quantize", Positional(), Options(), "tuple[Array, ...]", kQuantizeDoc,
         [](const auto& call) { return quantize(call, call.template get<arg::Stream>()); });
  define(m, "plan_quantize", Positional(), Without<Options, List<arg::Stream>>(), "QuantizePlan", kPlanQuantizeDoc,
         [](const auto& call) { return plan_quantize(call); });
}

}  // namespace cleave::python
