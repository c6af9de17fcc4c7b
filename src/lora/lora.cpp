// From a problem to its plan.
#include "cleave/lora.h"

#include "cleave/device.h"
#include "lora/launches.h"
#include "lora/problem.h"
#include "problem/cached_plan.h"

namespace cleave {
namespace {

std::shared_ptr<const LoraPlan> make_gpu_plan(const LoraProblem& problem) {
  const DeviceInfo& device = device_info(problem.device);  // throws if there is no such device
  return make_sequence_plan<LoraPlan, LoraArguments>(
      problem, lora_entry, lora_launches(problem, device.compute_capability), WorkspaceSize{},
      [](LoraParams& params, const LoraArguments& arguments, const Workspace&) {
        params.adapters.offsets = arguments.offs;
        params.x = arguments.x;
        params.a = arguments.a;
        params.b = arguments.b;
        params.out = arguments.out;
        params.scale = arguments.scale;
      });
}

}  // namespace

std::shared_ptr<const LoraPlan> plan(const LoraProblem& problem) {
  return cached_plan<LoraPlan, kMostLoraPlanBytes>(problem, make_gpu_plan);
}

}  // namespace cleave
