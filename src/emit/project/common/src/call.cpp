#include "call.h"

#include <cstring>

#include "checks.h"
#include "device.h"
#include "driver.h"
#include "launch/encode_map.h"

namespace emitted::operation {
namespace {

static_assert(sizeof(cleave::TensorMap) == sizeof(CUtensorMap));

CUtensorMap& driver_map(cleave::TensorMap& map) {
  return reinterpret_cast<CUtensorMap&>(map);
}

/// What a map points to until there is a launch.
const void* const kNowhere = reinterpret_cast<const void*>(uintptr_t(1) << 20);

void encode(cleave::TensorMap& map, const cleave::TensorMapShape& shape) {
  check(cleave::encode_tiled(DRIVER(cuTensorMapEncodeTiled), driver_map(map), kNowhere, shape),
        "cuTensorMapEncodeTiled");
}

[[maybe_unused]] void encode(cleave::TensorMap& map, const cleave::Im2colMapShape& shape) {
  check(cleave::encode_im2col(DRIVER(cuTensorMapEncodeIm2col), driver_map(map), kNowhere, shape),
        "cuTensorMapEncodeIm2col");
}

}  // namespace

const Call& Call::of(const cleave::GemmProblem& problem, const Kernel& kernel, uint32_t num_sms) {
  thread_local Call of_launches[2];  // of an operation of two heights, whose second one has another kernel
  Call& last = of_launches[kernel.of_rest];
  const bool same = last.kernel_ == &kernel && last.num_sms_ == num_sms && last.problem_ == problem;
  if (same) return last;
  last.kernel_ = nullptr;
  last.problem_ = problem;
  last.work_out(kernel, num_sms);
  last.kernel_ = &kernel;
  last.num_sms_ = num_sms;
  return last;
}

const Call& Call::of(const Given& given, const Device& device) {
  const Call& call = of(given.problem, device.kernel(), device.num_sms());
  if (call.grid().blocks > 0) check_arguments(given, device.kernel());
  return call;
}

void Call::work_out(const Kernel& kernel, uint32_t num_sms) {
  const cleave::GemmConfig& config = kernel.config;
  grid_ = {};
  joins_ = {};
  view_ = {};
  check_layouts(problem_, kernel);
  if (is_empty(problem_) && !kReduces) return;
  view_ = make_view(problem_, kernel);
  joins_ = {config, view_.problem, cleave::reduced_units(config, view_.tiles)};
  if (is_empty(problem_)) return;
  const uint32_t slices = find_slices(kernel, view_.tiles, num_sms);
  grid_ = cleave::gemm_grid(config, view_.tiles, slices, num_sms);
  cleave::GemmParams& params = construct_params(view_, config, params_);
  cleave::set_problem(config, view_.problem, params);
  joins_.place(params);
  params.schedule = cleave::make_schedule(grid_.schedule);
  visit_maps(view_, config, params_,
             [](cleave::TensorMap& map, const void*, const auto& shape) { encode(map, shape()); });
}

cleave::GemmParams& Call::make_params(const cleave::GemmArguments& arguments, void* memory) const {
  std::memcpy(memory, params_, kParamsBytes);
  auto& params = *static_cast<cleave::GemmParams*>(memory);
  cleave::set_arguments(kernel_->config, kernel_->transposed ? transposed(arguments) : arguments, params);
  visit_maps(view_, kernel_->config, memory, [](cleave::TensorMap& map, const void* data, const auto&) {
    DRIVER_CALL(cuTensorMapReplaceAddress, &driver_map(map), const_cast<void*>(data));
  });
  return params;
}

void enqueue(const Given& given, const Device& device, const FindWorkspace& find_workspace, CUstream stream) {
  const Call& call = Call::of(given, device);
  const cleave::GemmGrid grid = call.grid();
  const cleave::Joins joins = call.joins();
  if (grid.blocks == 0) return device.join(joins, nullptr, given.arguments, stream);
  check_present(given);
  // Blocks that wait for each other would wait for ever if some could not start.
  if (cleave::ctas_wait(device.kernel().config) && grid.blocks > device.resident_blocks())
    throw std::runtime_error("too few of the kernel's blocks run at once; leave it the whole GPU");
  alignas(cleave::TensorMap) std::byte memory[kParamsBytes];
  cleave::GemmParams& params = call.make_params(given.arguments, memory);
  // Who brings the workspace may call other operations: `call` is no longer used.
  char* parts = nullptr;
  if (const size_t partial_bytes = call.partial_bytes(); grid.counter_bytes + partial_bytes > 0) {
    const Workspace workspace = find_workspace(grid.counter_bytes, partial_bytes);
    if ((grid.counter_bytes > 0 && workspace.counters == nullptr) || workspace.partials == nullptr)
      refuse("the workspace is a null pointer; pass workspace_size bytes");
    params.counters = static_cast<uint32_t*>(workspace.counters);
    params.partials = static_cast<float*>(workspace.partials);
    parts = static_cast<char*>(workspace.partials) + grid.partial_bytes;
  }
  joins.point(parts, params);
  device.launch(memory, grid.blocks, stream);
  device.join(joins, parts, given.arguments, stream);
}

}  // namespace emitted::operation
