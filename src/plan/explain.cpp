#include "plan/explain.h"

#include <fmt/format.h>

#include "cleave/names.h"
#include "plan/batch_invariant.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/spec.h"
#include "problem/problem.h"

namespace cleave {

std::string explain(const GemmProblem& problem, const Choice& choice, size_t considered) {
  std::string text = considered == 0 ? fmt::format("{}: measured to be the fastest for this size on a GPU of this kind",
                                                   to_string(choice.spec))
                                     : fmt::format("{}: the lowest predicted time of {} candidates ({:.1f} us)",
                                                   to_string(choice.spec), considered, choice.predicted_us);
  if (problem.groups.expected_m > 0)
    text += fmt::format("; for groups of {} rows on average (expected_m)", problem.groups.expected_m);
  if (problem.split_k_slices > int32_t(choice.spec.slices)) {
    text += fmt::format("; split_k_slices={} reduced to {}, one K block of {} each", problem.split_k_slices,
                        choice.spec.slices, choice.config.tile.k);
  }
  if (choice.spec.apart) {
    text += fmt::format("; a kernel behind it {} D, {} MB of float32",
                        choice.spec.halves ? "joins gates and ups, and quantises" : "quantises",
                        fmt::format("{:.1f}", double(choice.apart_bytes) * 1e-6));
  }
  if (problem.precision == Precision::ieee) {
    text += "; the portable kernel, which multiplies float32 operands as they are (precision ieee)";
  } else if (in_parts(problem.precision)) {
    text += fmt::format("; the portable kernel, which multiplies float32 operands in two parts each (precision {})",
                        to_string(problem.precision));
  } else if (considered > 0 && choice.config.family == KernelFamily::portable &&
             problem.kernel == KernelFamily::automatic) {
    text += "; the portable kernel, because TMA cannot address these operands (or the GPU is not sm_90)";
  }
  if (problem.a.dtype == DType::f32 && problem.precision == Precision::tf32)
    text += "; float32 operands are rounded to tf32 (precision tf32)";
  return text;
}

std::string explain_invariance(const GemmProblem& problem, const DeviceInfo& device) {
  const bool k_order = problem.deterministic == Determinism::k_order;
  const char* const promise = k_order ? "sum_order k" : "batch_invariant";
  if (!has_one_order(problem)) return fmt::format("; sums of integers are the same in any order ({})", promise);
  const auto order = invariant_order(problem, device);
  const Cheapest free = cheapest(problem, device, Kernels::all);
  return fmt::format("; of those that sum K in {} slice(s), as for every M{} ({}); without that promise {}",
                     order->slices, k_order ? " and N" : "", promise,
                     fmt::format("{}, {:.1f} us", to_string(free.choice->spec), free.choice->predicted_us));
}

}  // namespace cleave
