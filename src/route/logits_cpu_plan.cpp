// A router's logits on the host, in the kernel's order: the same bits.
#include <array>

#include "cleave/core/element.h"
#include "cleave/core/multiply_add.h"
#include "cpu/host_plan.h"
#include "route/logits_problem.h"
#include "route/warp_sum.h"

namespace cleave {
namespace {

/// One run.
class Job {
 public:
  Job(const RouterLogitsProblem& problem, const RouterLogitsArguments& arguments, uint32_t threads)
      : p_(problem), arguments_(arguments), threads_(threads_for(p_.tokens * p_.experts * p_.features, threads)) {}

  void run() {
    for_each(threads_, p_.tokens * p_.experts,
             [&](uint32_t i) { arguments_.logits[i] = logit(i / uint32_t(p_.experts), i % uint32_t(p_.experts)); });
  }

 private:
  float logit(int64_t token, int64_t expert) const {
    std::array<WarpSum, kLogitsWarps> parts;
    const uint32_t of_part = part_features(uint32_t(p_.features));
    for (int64_t k = 0; k < p_.features; ++k) {
      float& sum = parts[uint32_t(k) / of_part].lane(uint32_t(k) % kPieceElements / kLaneElements);
      sum = multiply_add(load_element(p_.x.dtype, arguments_.x, token * p_.x.stride_row + k),
                         load_element(p_.weight.dtype, arguments_.weight, expert * p_.weight.stride_row + k), sum);
    }
    float sum = parts[0].total();
    for (uint32_t part = 1; part < kLogitsWarps; ++part) sum += parts[part].total();
    return sum;
  }

  const RouterLogitsProblem& p_;
  const RouterLogitsArguments& arguments_;
  const uint32_t threads_;
};

}  // namespace

std::shared_ptr<const RouterLogitsPlan> make_cpu_plan(const RouterLogitsProblem& problem, uint32_t threads) {
  return std::make_shared<HostPlan<RouterLogitsPlan, RouterLogitsProblem, RouterLogitsArguments, Job>>(problem,
                                                                                                       threads);
}

}  // namespace cleave
