#include "plan/measured/covering.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <sstream>

#include "base/embedded.h"
#include "cleave/device.h"
#include "plan/choice/choice.h"
#include "plan/choice/operand_layout.h"
#include "plan/make_plan.h"
#include "problem/problem.h"
#include "process/fork.h"

namespace cleave {
namespace {

using Sets = std::map<std::string, std::vector<Spec>, std::less<>>;
using Jobs = std::initializer_list<const char*>;

constexpr const char* kJobs[] = {"bf16 tn",
                                 "bf16 nn",
                                 "bf16 tt",
                                 "bf16 nt",
                                 "bf16 large K",
                                 "fp8 rows",
                                 "fp8 rows promoted",
                                 "fp8 blocks",
                                 "int8 rows",
                                 "grouped bf16 forward",
                                 "grouped bf16 dgrad",
                                 "grouped bf16 wgrad",
                                 "grouped bf16 main grad",
                                 "grouped fp8 forward",
                                 "grouped fp8 dgrad",
                                 "grouped fp8 wgrad",
                                 "grouped fp8 main grad",
                                 "grouped fp8 rows forward",
                                 "grouped fp8 rows dgrad",
                                 "grouped int8 forward",
                                 "conv fprop",
                                 "conv dgrad",
                                 "conv wgrad"};

Sets read_sets() {
  Sets sets;
  for (const EmbeddedFile& file : covering_tables()) {
    std::istringstream text{std::string(file.text)};
    for (std::string line; std::getline(text, line);) {
      const size_t bar = line.find(" | ");
      if (line.starts_with('#') || bar == std::string::npos) continue;
      if (const auto spec = parse_spec(line.substr(bar + 3))) sets[line.substr(0, bar)].push_back(*spec);
    }
  }
  return sets;
}

const Sets& sets() {
  static constinit Lazy<Sets> sets;
  return sets.get(read_sets);
}

/// The kernels of all of these jobs, each once.
std::vector<Spec> of_jobs(Jobs jobs) {
  std::vector<Spec> all;
  for (const char* job : jobs) {
    const auto found = sets().find(std::string_view(job));
    if (found == sets().end()) continue;
    for (const Spec& spec : found->second) {
      if (std::ranges::find(all, spec) == all.end()) all.push_back(spec);
    }
  }
  return all;
}

/// The first jobs' kernels, or, where none of them was measured, those of the jobs most like them.
std::vector<Spec> of_jobs(Jobs jobs, Jobs alike) {
  std::vector<Spec> own = of_jobs(jobs);
  return own.empty() ? of_jobs(alike) : own;
}

/// Groups of K are weight gradients; for the others, B's layout tells forward products from data gradients.
std::vector<Spec> grouped_set(const GemmProblem& p) {
  const bool eight = size_of(p.a.dtype) == 1;
  if (p.groups.dimension == Grouping::k) {
    if (!eight) return p.has_c ? of_jobs({"grouped bf16 main grad"}) : of_jobs({"grouped bf16 wgrad"});
    return p.has_c ? of_jobs({"grouped fp8 main grad"}) : of_jobs({"grouped fp8 wgrad"});
  }
  if (p.scale_a.kind == Scaling::block) return of_jobs({"grouped fp8 forward", "grouped fp8 dgrad"});
  if (p.a.dtype == DType::i8) return of_jobs({"grouped int8 forward"});
  if (eight) return of_jobs({"grouped fp8 rows forward", "grouped fp8 rows dgrad"});
  const bool forward = operand_layouts(p).b.major == Major::k;
  return forward ? of_jobs({"grouped bf16 forward"}) : of_jobs({"grouped bf16 dgrad"});
}

/// Those that are not products: of 16-bit types, whose kernels serve others, too.
std::vector<Spec> conv_set(Conv kind) {
  switch (kind) {
    case Conv::fprop:
      return of_jobs({"conv fprop"});
    case Conv::dgrad:
      return of_jobs({"conv dgrad"});
    case Conv::wgrad:
      return of_jobs({"conv wgrad"});
    default:
      return {};
  }
}

}  // namespace

Spec kernel_of(Spec spec) {
  const SplitKMode split = spec.split;
  if (split == SplitKMode::serial || split == SplitKMode::parallel || split == SplitKMode::stream_k) spec.slices = 1;
  return spec;
}

std::vector<Spec> covering_set(const GemmProblem& p) {
  if (p.weights_b.format != WeightFormat::none) return {};
  if (p.precision != Precision::tf32) return {};
  if (p.conv.kind != Conv::none) return conv_set(p.conv.kind);
  if (p.groups.dimension != Grouping::none) return grouped_set(p);
  if (p.scale_a.kind == Scaling::block) return of_jobs({"fp8 blocks"}, {"fp8 rows promoted", "fp8 rows"});
  if (p.a.dtype == DType::i8) return of_jobs({"int8 rows"}, {"fp8 rows"});
  if (is_fp8(p.a.dtype)) {
    return p.fast_accumulation ? of_jobs({"fp8 rows"}, {"fp8 rows promoted"})
                               : of_jobs({"fp8 rows promoted"}, {"fp8 blocks"});
  }
  const OperandLayouts operands = operand_layouts(p);
  const bool a_along_k = operands.a.major == Major::k, b_along_k = operands.b.major == Major::k;
  if (a_along_k && b_along_k) return of_jobs({"bf16 tn", "bf16 large K"});
  if (a_along_k) return of_jobs({"bf16 tt"}, {"bf16 nn"});
  if (b_along_k) return of_jobs({"bf16 nn"}, {"bf16 tt"});
  return of_jobs({"bf16 nt"}, {"bf16 nn", "bf16 tt"});
}

std::vector<std::shared_ptr<const GemmPlan>> covering_plans(const GemmProblem& p) {
  std::vector<std::shared_ptr<const GemmPlan>> plans;
  for (Spec spec : covering_set(p)) {
    if (spec.split == SplitKMode::serial || spec.split == SplitKMode::parallel)
      spec.slices = 2;  // any: one is no split
    if (make_choice(p, device_info(p.device), spec)) plans.push_back(plan_as(p, spec));
  }
  return plans;
}

std::span<const char* const> covering_jobs() {
  return kJobs;
}

}  // namespace cleave
