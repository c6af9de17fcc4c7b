#include "cpu/cpu_plan.h"

#include <cstring>
#include <utility>

#include "cpu/executor.h"
#include "cpu/planner.h"
#include "problem/arguments.h"
#include "problem/placement.h"

namespace cleave {
namespace {

class CpuPlan final : public GemmPlan {
 public:
  CpuPlan(const GemmProblem& problem, uint32_t threads)
      : problem_(problem), threads_(threads), choice_(cpu::choose(problem, threads)) {}

  void run(const GemmArguments& arguments, void* workspace, size_t workspace_size,
           void* /*stream*/) const override {
    check_arguments(problem_, arguments);
    if (d_of(problem_).empty()) return;
    std::unique_ptr<std::byte[]> own;
    if (workspace != nullptr) {
      check_workspace(workspace, workspace_size, choice_.tiling.workspace_size());
    } else if (choice_.tiling.workspace_size() > 0) {
      own = std::make_unique_for_overwrite<std::byte[]>(choice_.tiling.workspace_size());
      std::memset(own.get(), 0, choice_.tiling.counter_size());
      workspace = own.get();
    }
    cpu::execute(problem_, choice_.tiling, arguments, workspace, threads_);
  }

  void prepare(void* /*stream*/) const override {}

  size_t workspace_size() const override { return choice_.tiling.workspace_size(); }
  size_t counter_size() const override { return choice_.tiling.counter_size(); }
  const GemmProblem& problem() const override { return problem_; }
  SplitKMode split_k_mode() const override { return choice_.tiling.mode; }
  int32_t split_k_slices() const override { return int32_t(choice_.tiling.schedule.slices); }
  std::string kernel_name() const override { return "cpu"; }
  std::string kernel_source() const override { return {}; }
  std::string why() const override { return choice_.why; }
  std::vector<Candidate> candidates() const override { return choice_.candidates; }
  double roofline_us() const override { return cpu::roofline_us(problem_, threads_); }

 private:
  const GemmProblem problem_;
  const uint32_t threads_;
  const cpu::Choice choice_;
};

}  // namespace

std::shared_ptr<const GemmPlan> make_cpu_plan(const GemmProblem& problem, uint32_t threads) {
  return std::make_shared<CpuPlan>(problem, threads);
}

}  // namespace cleave
