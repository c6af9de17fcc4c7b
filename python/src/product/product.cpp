#include "product/product.h"

#include "inputs/options.h"
#include "operands/roles.h"
#include "product/check_offsets.h"
#include "product/quantized_apart.h"

namespace nb = nanobind;

namespace cleave::python {

nb::object multiply(const GemmInputs& inputs, const ProductArguments& arguments, const CallArguments& call,
                    const GemmOptions& form) {
  const GemmOptions options = parse_gemm_options(arguments, form);
  if (options.out_scale && *options.out_scale != Granularity::block_1x128)
    return multiply_and_quantize(inputs, arguments, call, form, *options.out_scale);
  TensorReader reader(call.get<arg::Stream>());
  GemmOperands operands(inputs, reader, options);
  check_options_of_groups(options, operands.problem);
  set_scalars(call, operands);
  bool check = false;
  call.read<arg::CheckOffsets>(check);
  if (check) check_offsets(operands, reader.stream());
  return with_roles(Conv::none, [&] { return plan_and_run(operands, call, reader); });
}

PlanObject plan_product(const GemmInputs& inputs, const ProductArguments& arguments, const GemmOptions& form) {
  TensorReader reader{nb::none()};
  GemmOptions options = parse_gemm_options(arguments, form);
  const GemmOperands operands(inputs, reader, options);
  check_options_of_groups(options, operands.problem);
  if (options.grouped) options.zero_rest = operands.problem.groups.zero_rest;
  return with_roles(Conv::none, [&] {
    return PlanObject(operands.problem, options, make_plan(operands.problem), backward_of(inputs.get<arg::Epilogue>()));
  });
}

}  // namespace cleave::python
