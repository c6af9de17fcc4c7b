#include "plan/plans/prepared.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "base/refuse.h"
#include "plan/batch_invariant.h"
#include "plan/make_plan.h"
#include "plan/measured/tuned.h"
#include "plan/plans/gpu_plan.h"
#include "plan/plans/quantize_apart.h"
#include "problem/cached_plan.h"
#include "problem/placement.h"
#include "problem/problem.h"
#include "process/fork.h"
#include "quantize/launches.h"

namespace cleave {
namespace {

/// The choices for M up to `last_m`, from the one before.
struct Step {
  int64_t last_m;
  Spec spec;
};

struct Range {
  int64_t first = 0;
  std::vector<Step> steps;
};

/// Sets a stride to what matters of it: how it aligns lines. `packed`: what a matrix of one line stands for.
void keep_alignment(int64_t& stride, int64_t packed, bool one_line, DType type) {
  stride = common_alignment(uint64_t(one_line ? packed : stride) * size_of(type));
}

/// What the plans of a product with any M have in common. Operands of M = 1 count as row-major ones.
GemmProblem family_of(const GemmProblem& p) {
  GemmProblem f = p;
  f.m = 0;
  const auto reduce = [&](MatrixLayout& matrix, int64_t line) {
    if (matrix.stride_col == 1 || p.m == 1) {
      keep_alignment(matrix.stride_row, line, p.m == 1, matrix.dtype);
      matrix.stride_col = 1;
    } else {
      matrix.stride_col = 0;  // lines along M
    }
    if (p.batch == 1 || p.groups.dimension == Grouping::m) matrix.stride_batch = 0;
  };
  reduce(f.a, p.k);
  reduce(f.d, p.n);
  if (p.has_c) {
    reduce(f.c, p.n);
  } else {
    f.c = {};
  }
  for (ScaleLayout* scales : {&f.scale_a, &f.scale_b}) scales->stride_row = scales->stride_k = scales->stride_batch = 0;
  f.groups.wide = f.groups.zero_rest = false;
  f.groups.expected_m = 0;
  f.gather.rows = f.gather.divisor = 0;
  return f;
}

/// The problem with another M, packed where lines or scales run along M.
GemmProblem with_rows(GemmProblem p, int64_t m) {
  for (MatrixLayout* matrix : {&p.a, &p.c, &p.d}) {
    if (matrix->stride_col != 1) matrix->stride_col = m;
  }
  if (p.scale_a.kind == Scaling::block && p.scale_a.stride_row == 1)
    p.scale_a.stride_k = ceil_div<int64_t>(m, p.scale_a.rows);
  if (p.gather.given) p.gather.rows = ceil_div(m, p.gather.divisor);
  p.groups.expected_m = 0;
  p.m = m;
  return p;
}

class Ranges {
 public:
  void store(const GemmProblem& family, Range range) {
    const std::unique_lock lock(mutex_);
    ranges_[family] = std::move(range);
    any_.store(true, std::memory_order_relaxed);
  }

  std::optional<Spec> find(const GemmProblem& problem) const {
    if (!any_.load(std::memory_order_relaxed)) return std::nullopt;
    const GemmProblem family = family_of(problem);
    const std::shared_lock lock(mutex_);
    const auto found = ranges_.find(family);
    if (found == ranges_.end() || problem.m < found->second.first) return std::nullopt;
    const int64_t m = std::max(as_expected(problem).m, found->second.first);
    const std::vector<Step>& steps = found->second.steps;
    const auto step = std::ranges::lower_bound(steps, m, {}, &Step::last_m);
    return step == steps.end() ? std::nullopt : std::optional(step->spec);
  }

 private:
  mutable ForkSharedMutex mutex_;
  std::unordered_map<GemmProblem, Range, ProblemHash> ranges_;
  std::atomic<bool> any_ = false;
};

Ranges& ranges() {
  static constinit Lazy<Ranges> ranges;
  return ranges.get();
}

/// The kernels of a range, each with the problem for which its workspace is largest.
class KernelSet {
 public:
  struct Member {
    GemmProblem problem;
    Choice choice;
  };

  void add(const GemmProblem& problem, const Choice& choice) {
    const auto same = [&](const Member& known) {
      return known.choice.config == choice.config &&
             quantization_kernel(known) == quantization_kernel({problem, choice});
    };
    const auto known = std::ranges::find_if(members_, same);
    if (known == members_.end()) {
      members_.push_back({problem, choice});
    } else if (choice.workspace_bytes() > known->choice.workspace_bytes()) {
      *known = {problem, choice};
    }
  }

  const std::vector<Member>& members() const { return members_; }

 private:
  /// Behind the product's, where there is one.
  static std::optional<QuantizeConfig> quantization_kernel(const Member& member) {
    if (!member.choice.spec.apart) return std::nullopt;
    const QuantizeProblem problem = quantization_of(member.problem, member.choice.spec.halves);
    return quantize_launches(problem, device_info(problem.device)).front().config;
  }

  std::vector<Member> members_;
};

/// The last M of the step that begins at `m`.
int64_t step_end(const GemmProblem& p, int64_t m) {
  const bool along_m = p.a.stride_col != 1 || p.d.stride_col != 1;  // each M aligns them otherwise
  if (m <= kPreparedStep || along_m) return m;
  // A few more rows change nothing where there are many; and how groups fill tiles depends on their sizes, which nobody
  // knows.
  const int64_t steps_of_octave = p.groups.dimension == Grouping::none ? 512 : 16;
  const int64_t step = std::max(int64_t(std::bit_floor(uint64_t(m))) / steps_of_octave, kPreparedStep);
  return ceil_div(m, step) * step;
}

}  // namespace

std::vector<std::shared_ptr<const GemmPlan>> prepare_rows(const GemmProblem& problem, int64_t first, int64_t last,
                                                          Kernels kernels) {
  if (first < 1 || last < first) {
    refuse_value("tokens are {} to {}; the first must be at least 1, and the last no less", first, last);
  }
  if (problem.conv.kind != Conv::none || problem.device == kCpu || !is_automatic(problem)) {
    refuse_value(
        "only products on a GPU can be prepared for any number of rows, with split_k_mode=\"auto\", slices and kernel "
        "left to the planner");
  }
  refuse_invalid(with_rows(problem, last));
  const DeviceInfo& device = device_info(problem.device);
  Range range{.first = first};
  KernelSet found;
  for (int64_t m = first; m <= last;) {
    const int64_t end = std::min(step_end(problem, m), last);
    const GemmProblem p = with_rows(problem, end);
    const Cheapest best = promised_cheapest(p, device, kernels);
    if (best.choice) {
      found.add(p, *best.choice);
      if (!range.steps.empty() && range.steps.back().spec == best.choice->spec && range.steps.back().last_m == m - 1) {
        range.steps.back().last_m = end;
      } else {
        range.steps.push_back({end, best.choice->spec});
      }
    }
    m = end + 1;
  }
  for (int64_t m = first; m <= last; ++m) {  // which come first
    const GemmProblem p = with_rows(problem, m);
    const auto spec = tuned(p, device);
    if (const auto choice = spec ? make_choice(p, device, *spec) : std::nullopt) found.add(p, *choice);
  }
  ranges().store(family_of(problem), std::move(range));
  forget_plans();
  std::vector<std::shared_ptr<const GemmPlan>> plans;
  for (const auto& [p, choice] : found.members()) plans.push_back(make_gpu_plan(p, choice, "one of a range's kernels"));
  return plans;
}

std::optional<Spec> prepared(const GemmProblem& problem) {
  return is_automatic(problem) ? ranges().find(problem) : std::nullopt;
}

}  // namespace cleave
