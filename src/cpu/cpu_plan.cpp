#include "cpu/cpu_plan.h"

#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/refuse.h"
#include "cpu/executor.h"
#include "cpu/planner.h"
#include "cpu/reductions.h"
#include "problem/arguments.h"
#include "problem/placement.h"
#include "problem/problem.h"
#include "process/host_bytes.h"

namespace cleave {
namespace {

/// A run has a workspace to itself: its first word, 0 otherwise, is 1 meanwhile.
class Occupation {
 public:
  explicit Occupation(void* workspace) : word_(*static_cast<uint32_t*>(workspace)) {
    uint32_t seen = 0;
    if (word_.compare_exchange_strong(seen, 1)) return;
    refuse_value(
        "workspace begins with {}, not with 0: it was not zeroed before its first use, or another run is using it; "
        "zero its first {} bytes (counter_size), and give each of two runs at a time its own",
        seen, kSize);
  }
  ~Occupation() { word_.store(0); }
  Occupation(const Occupation&) = delete;
  Occupation& operator=(const Occupation&) = delete;

  static constexpr size_t kSize = sizeof(uint32_t);

 private:
  std::atomic_ref<uint32_t> word_;
};

class CpuPlan final : public GemmPlan {
 public:
  CpuPlan(const GemmProblem& problem, uint32_t threads) : CpuPlan(problem, threads, cpu::choose(problem, threads)) {}

  void run(const GemmArguments& arguments, void* workspace, size_t workspace_size, void* /*stream*/) const override {
    check_arguments(problem_, arguments);
    if (d_of(problem_).empty()) {
      if (reduces(problem_)) cpu::Reductions(problem_, arguments).finish();
      return;
    }
    const size_t needed = tiling_.workspace_size();
    std::unique_ptr<std::byte[]> own;
    std::optional<Occupation> occupation;
    if (workspace != nullptr) {
      check_workspace(workspace, workspace_size, needed);
      check_workspace_apart(problem_, arguments, workspace, needed);
      if (needed > 0) occupation.emplace(workspace);
    } else if (needed > 0) {
      own = std::make_unique_for_overwrite<std::byte[]>(needed);
      workspace = own.get();
    }
    std::byte* const partials = needed > 0 ? static_cast<std::byte*>(workspace) + cpu::kPartialsOffset : nullptr;
    if (!reduces(problem_)) return cpu::execute(problem_, tiling_, arguments, partials, threads_);
    const cpu::Reductions reductions(problem_, arguments);
    cpu::execute(reductions.staged_problem(), tiling_, reductions.staged_arguments(), partials, threads_);
    reductions.finish();
  }

  void prepare(void* /*stream*/) const override {}

  size_t workspace_size() const override { return tiling_.workspace_size(); }
  size_t counter_size() const override { return workspace_size() > 0 ? Occupation::kSize : 0; }
  const GemmProblem& problem() const override { return problem_; }
  SplitKMode split_k_mode() const override { return tiling_.mode; }
  int32_t split_k_slices() const override { return int32_t(tiling_.schedule.slices); }
  std::string kernel_name() const override { return "cpu"; }
  std::vector<std::string> kernel_sources() const override { return {}; }
  std::string why() const override { return why_; }
  std::vector<Candidate> candidates() const override { return cpu::choose(problem_, threads_).candidates; }
  double roofline_us() const override { return cpu::roofline_us(problem_, threads_); }
  size_t host_bytes() const override { return shared_bytes(*this) + heap_bytes(why_) + heap_bytes(tiling_.classes); }

 private:
  CpuPlan(const GemmProblem& problem, uint32_t threads, cpu::Choice choice)
      : problem_(problem), threads_(threads), tiling_(std::move(choice.tiling)), why_(std::move(choice.why)) {}

  const GemmProblem problem_;
  const uint32_t threads_;
  const cpu::Tiling tiling_;
  const std::string why_;
};

}  // namespace

std::shared_ptr<const GemmPlan> make_cpu_plan(const GemmProblem& problem, uint32_t threads) {
  return std::make_shared<CpuPlan>(problem, threads);
}

}  // namespace cleave
