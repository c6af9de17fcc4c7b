#include "torch_ops.h"

#include <algorithm>
#include <array>
#include <optional>

#include "driver.h"
#include "torch_autograd.h"
#include "torch_call.h"
#include "torch_place.h"

namespace emitted::operation {

void TorchCall::set_amax(const Tensor& amax) {
  given_.arguments.amax = static_cast<float*>(read_value(amax, "amax", device_));
}

void TorchCall::run() const {
  // An empty result leaves something to make if it is reduced.
  if (kReduces || std::ranges::find(shape_, 0) == shape_.end()) launch(given_, device_);
}

void run(StableIValue* stack, uint64_t, uint64_t) {
  StableIValue* next = stack;
  const Inputs inputs(next);
  TorchCall call(inputs);
  const Tensor result = call.new_result();
  call.set_result(result, "the result");
  std::array<std::optional<Tensor>, kFunctionOutputs> outputs;
  for (uint32_t i = 0; i < kFunctionOutputs; ++i) {
    outputs[i] = call.new_output(i);
    call.set_output(i, *outputs[i], "an output");
  }
  std::optional<Tensor> amax;
  if constexpr (kOperation.has_amax) {
    amax = cleave::torch_ops::empty(Shape{1}, DType::f32, call.device());
    TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(amax->get()));
    call.set_amax(*amax);
  }
  call.run();
  *stack++ = torch::stable::detail::from(result);
  for (const auto& output : outputs) *stack++ = torch::stable::detail::from(*output);
  if (amax) *stack = torch::stable::detail::from(*amax);
}

void run_out(StableIValue* stack, uint64_t, uint64_t) {
  StableIValue* next = stack;
  const Inputs inputs(next);
  const auto out = take<Tensor>(next);
  std::array<std::optional<Tensor>, kFunctionOutputs> outputs;
  for (auto& output : outputs) output = take<Tensor>(next);
  std::optional<Tensor> amax;
  if constexpr (kOperation.has_amax) amax = take<Tensor>(next);
  refuse_gradients(stack);
  TorchCall call(inputs);
  call.set_result(out, "out");
  for (uint32_t i = 0; i < kFunctionOutputs; ++i) call.set_output(i, *outputs[i], output_name(i));
  if (amax) call.set_amax(*amax);
  call.run();
  mark_written(out);
  for (const auto& output : outputs) mark_written(*output);
  if (amax) mark_written(*amax);
}

void refuse_cpu(StableIValue* stack, uint64_t count, uint64_t) {
  StableIValue* next = stack;
  const Inputs taken(next);
  while (next != stack + count) take<Tensor>(next);
  find_in_driver("cuInit");  // throws, saying why, where there is none
  refuse("the operands are on the CPU; move them to a GPU");
}

}  // namespace emitted::operation
