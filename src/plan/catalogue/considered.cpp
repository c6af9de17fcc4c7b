#include "plan/catalogue/considered.h"

#include "launch/gemm_grid.h"

namespace cleave {

void Considered::add(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  auto choice = make_choice(problem, device, spec);
  if (!choice) return;
  if (is_sliced(spec.split) && choice->schedule.slices < 2 && problem.split_k_mode == SplitKMode::automatic) {
    return;  // the same as none
  }
  // Clusters beyond the portable size were never the best by more than noise, and how many fit
  // varies most by chip.
  if (problem.split_k_mode == SplitKMode::automatic && cluster_size(choice->config) > 8) return;
  add(choice->spec, predict_roughly_us(*choice, device));
}

void Considered::add_apart(const Considered& products, bool halves, double us) {
  for (Rough each : products.list_) {
    each.spec.apart = true;
    each.spec.halves = halves;
    add(each.spec, each.us + us);
  }
}

void Considered::add(const Spec& spec, double rough_us) {
  const KernelFamily family = spec.family;
  if (has_hopper_ && family == KernelFamily::portable) return;
  if (!has_hopper_ && family == KernelFamily::sm90 && !spec.by_group) {
    std::erase_if(list_, [](const Rough& each) { return each.spec.family == KernelFamily::portable; });
    has_hopper_ = true;
  }
  list_.push_back({spec, rough_us});
}

}  // namespace cleave
