#include "all_kernels/collector.h"

#include <algorithm>

#include "plan/catalogue/tiles.h"
#include "plan/catalogue/variants.h"
#include "plan/choice/choice.h"
#include "plan/direct/choice.h"

namespace cleave {

void Collector::visit(const GemmProblem& problem, SplitKMode split, bool all_sharings, bool in_turn) {
  for (Spec spec : tiles(problem)) {
    spec.split = split;
    spec.in_turn = in_turn;
    spec.slices = split == SplitKMode::none && !in_turn ? 1 : 8;
    spec.cluster_k = split == SplitKMode::parallel && in_turn ? 4 : 1;
    if (problem.a.alignment < 16 && problem.b.alignment < 16 && has_tma(spec.family)) continue;
    if (!all_sharings && (spec.transposed || spec.multicast_m * spec.multicast_n > 1)) continue;
    for (const Spec& variant : variants(spec, problem)) add(problem, variant);
  }
}

void Collector::visit_direct(const GemmProblem& problem) {
  for (const Spec& spec : direct_specs(problem, device_)) add(problem, spec);
}

void Collector::add(const GemmProblem& problem, const Spec& spec) {
  const auto choice = make_choice(problem, device_, spec);
  if (choice && std::ranges::find(configs_, choice->config) == configs_.end()) configs_.push_back(choice->config);
}

}  // namespace cleave
