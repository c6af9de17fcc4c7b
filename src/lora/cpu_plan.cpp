// Low-rank adapters on the host: as the kernel but for the order of sums.
#include "cleave/core/element.h"
#include "cleave/schedule/groups.h"
#include "cpu/host_plan.h"
#include "lora/problem.h"

namespace cleave {
namespace {

/// One run.
class Job {
 public:
  Job(const LoraProblem& problem, const LoraArguments& arguments, uint32_t threads)
      : p_(problem),
        arguments_(arguments),
        threads_(threads_for(p_.rows * p_.rank * (p_.features + p_.outputs), threads)) {}

  void run() {
    const GroupParams groups{
        .offsets = arguments_.offs, .wide = p_.wide_offs, .count = uint32_t(p_.adapters), .extent = uint32_t(p_.rows)};
    for (uint32_t g = 0; g < groups.count; ++g) {
      const GroupRange range = group_range(groups, g);
      for_each(threads_, range.size(), [&](uint32_t i) { add(g, range.begin + i); });
    }
  }

 private:
  void add(int64_t adapter, int64_t row) const {
    const DType type = p_.x.dtype;
    float hidden[kMostLoraRank];
    for (int64_t r = 0; r < p_.rank; ++r) {
      const int64_t line = adapter * p_.a.stride_batch + r * p_.a.stride_row;
      float sum = 0.0f;
      for (int64_t k = 0; k < p_.features; ++k)
        sum += load_element(type, arguments_.x, row * p_.x.stride_row + k) * load_element(type, arguments_.a, line + k);
      hidden[r] = rounded_to(type, sum);
    }
    for (int64_t n = 0; n < p_.outputs; ++n) {
      const int64_t line = adapter * p_.b.stride_batch + n * p_.b.stride_row;
      float sum = 0.0f;
      for (int64_t r = 0; r < p_.rank; ++r) sum += hidden[r] * load_element(type, arguments_.b, line + r);
      const int64_t at = row * p_.out.stride_row + n;
      store_element(type, arguments_.out, at, load_element(type, arguments_.out, at) + arguments_.scale * sum);
    }
  }

  const LoraProblem& p_;
  const LoraArguments& arguments_;
  const uint32_t threads_;
};

}  // namespace

std::shared_ptr<const LoraPlan> make_cpu_plan(const LoraProblem& problem, uint32_t threads) {
  return std::make_shared<HostPlan<LoraPlan, LoraProblem, LoraArguments, Job>>(problem, threads);
}

}  // namespace cleave
