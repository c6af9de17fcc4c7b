#include "inputs/options.h"

namespace cleave::python {

PlanOptions parse_plan_options(const ProductArguments& arguments) {
  PlanOptions options;
  arguments.read<arg::SplitKMode>(options.split_k_mode);
  std::optional<int64_t> slices;
  arguments.read<arg::SplitKSlices>(slices);
  options.split_k_slices = slice_count(slices);
  arguments.read<arg::Deterministic>(options.deterministic);
  arguments.read<arg::SumOrder>(options.deterministic);  // which promises more
  arguments.read<arg::Kernel>(options.kernel);
  arguments.read<arg::Precision>(options.precision);
  arguments.read<arg::UseFastAccum>(options.fast_accumulation);
  arguments.read<arg::StaticB>(options.static_b);
  return options;
}

GemmOptions parse_gemm_options(const ProductArguments& arguments, GemmOptions form) {
  arguments.read<arg::Activation>(form.activation);
  arguments.read<arg::OutDtype>(form.d_type);
  arguments.read<arg::OutScale>(form.out_scale);
  arguments.read<arg::ScaleMajor>(form.scale_major);
  arguments.read<arg::UseUe8m0>(form.ue8m0);
  arguments.read<arg::Alignment>(form.alignment);
  arguments.read<arg::ExpectedM>(form.expected_m);
  arguments.read<arg::SlotsOfRow>(form.top_k);
  arguments.read<arg::ZeroRest>(form.zero_rest);
  form.plan = parse_plan_options(arguments);
  return form;
}

}  // namespace cleave::python
