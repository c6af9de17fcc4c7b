// The plan for the host of an operation beside products: a run is one Job(problem, arguments, threads).run().
#pragma once

#include "cleave/core/math.h"
#include "cpu/thread_team.h"
#include "process/host_bytes.h"

namespace cleave {

/// Threads for so many elements, at most `most`: for fewer, starting one takes longer than the work.
inline uint32_t threads_for(int64_t elements, uint32_t most) {
  constexpr int64_t kElementsPerThread = 1 << 15;
  return uint32_t(min_of<int64_t>(most, elements / kElementsPerThread + 1));
}

/// body(i) for each i below `count`.
template <class Body>
void for_each(uint32_t threads, int64_t count, const Body& body) {
  cpu::run_in_order(threads, uint32_t(count), [&](uint32_t, uint32_t i) { body(i); });
}

template <class Plan, class Problem, class Arguments, class Job>
class HostPlan final : public Plan {
 public:
  HostPlan(const Problem& problem, uint32_t threads) : problem_(problem), threads_(threads) {}

  void run(const Arguments& arguments, void* /*stream*/) const override {
    check_arguments(problem_, arguments);
    Job(problem_, arguments, threads_).run();
  }

  void prepare(void* /*stream*/) const override {}
  const Problem& problem() const override { return problem_; }
  std::string kernel_name() const override { return "cpu"; }
  std::vector<std::string> kernel_sources() const override { return {}; }
  size_t host_bytes() const override { return shared_bytes(*this); }

 private:
  const Problem problem_;
  const uint32_t threads_;
};

}  // namespace cleave
