#include "product.h"

#include "check_offsets.h"
#include "quantized_rows.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

GemmOptions parse_options(const ProductArguments& arguments, GemmOptions options) {
  arguments.read<arg::Activation>(options.activation);
  arguments.read<arg::OutDtype>(options.d_type);
  arguments.read<arg::OutScale>(options.out_scale);
  arguments.read<arg::ScaleMajor>(options.scale_major);
  arguments.read<arg::UseUe8m0>(options.ue8m0);
  arguments.read<arg::Alignment>(options.alignment);
  arguments.read<arg::SlotsOfRow>(options.top_k);
  arguments.read<arg::ZeroRest>(options.zero_rest);
  options.plan = parse_plan_options(arguments);
  return options;
}

}  // namespace

PlanOptions parse_plan_options(const ProductArguments& arguments) {
  PlanOptions options;
  arguments.read<arg::SplitKMode>(options.split_k_mode);
  std::optional<int64_t> slices;
  arguments.read<arg::SplitKSlices>(slices);
  options.split_k_slices = slice_count(slices);
  arguments.read<arg::Deterministic>(options.deterministic);
  arguments.read<arg::Kernel>(options.kernel);
  arguments.read<arg::Precision>(options.precision);
  arguments.read<arg::UseFastAccum>(options.fast_accumulation);
  arguments.read<arg::StaticB>(options.static_b);
  return options;
}

nb::object multiply(const GemmInputs& inputs, const ProductArguments& arguments, const CallArguments& call,
                    const GemmOptions& form) {
  const GemmOptions options = parse_options(arguments, form);
  if (options.out_scale == Granularity::row) return multiply_and_quantize_rows(inputs, arguments, call, form);
  TensorReader reader(call.get<arg::Stream>());
  GemmOperands operands(inputs, reader, options);
  set_scalars(call, operands);
  bool check = false;
  call.read<arg::CheckOffsets>(check);
  if (check) check_offsets(operands, reader.stream());
  return plan_and_run(operands, call, reader);
}

PlanObject plan_product(const GemmInputs& inputs, const ProductArguments& arguments, const GemmOptions& form) {
  TensorReader reader{nb::none()};
  GemmOptions options = parse_options(arguments, form);
  const GemmOperands operands(inputs, reader, options);
  if (options.grouped) options.zero_rest = operands.problem.groups.zero_rest;
  return PlanObject(operands.problem, options, make_plan(operands.problem));
}

}  // namespace cleave::python
