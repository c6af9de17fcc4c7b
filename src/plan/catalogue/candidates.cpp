#include "plan/catalogue/candidates.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/refuse.h"
#include "plan/catalogue/considered.h"
#include "plan/catalogue/splits.h"
#include "plan/catalogue/tiles.h"
#include "plan/catalogue/variants.h"
#include "plan/choice/conv_choice.h"
#include "plan/direct/choice.h"
#include "plan/direct/rows.h"
#include "plan/measured/covering.h"
#include "plan/plans/quantize_apart.h"
#include "problem/conv.h"
#include "problem/problem.h"
#include "process/fork.h"

namespace cleave {
namespace {

/// Tiles more than twice as large as the output (of a group, on average) are left to smaller ones,
/// if there are any.
bool oversized(const Spec& s, const GemmProblem& p) {
  const auto size = [&](int64_t total, Grouping grouping) {
    return p.groups.dimension == grouping ? ceil_div(total, p.batch) : total;
  };
  int64_t classes = 1;
  for (const ConvAxis& axis : p.conv.axes) classes *= s.fuses_classes ? axis.stride : 1;
  const int64_t rows = size(p.m, Grouping::m), columns = size(p.n, Grouping::n) * classes;
  const int64_t m = s.transposed ? columns : rows, n = s.transposed ? rows : columns;
  const bool tall = s.tile_m > 64 && m * 2 <= s.tile_m;
  // Operands that are contiguous along N come in strips of 128 bytes.
  const bool strips = p.conv.kind == Conv::dgrad || p.conv.kind == Conv::wgrad;
  const uint32_t least = strips ? 64 : family_traits(s.family).least_tile_n;
  const bool wide = s.tile_n > least && n * 2 <= s.tile_n;
  return tall || wide || (s.multicast_m > 1 && m <= s.tile_m) || (s.multicast_n > 1 && n <= s.tile_n);
}

/// A split of K has to gain more than predictions of it are worth: an unsplit product needs no workspace, and ranks add
/// it up inside their kernel. On shapes left out of the fit this costs nothing (docs/notes/2026-11-choice.md).
bool is_cheaper(const Choice& a, const Choice& b) {
  constexpr double kLeastGain = 1.01;
  const auto weighed = [](const Choice& c) { return c.spec.slices > 1 ? c.predicted_us * kLeastGain : c.predicted_us; };
  return weighed(a) < weighed(b);
}

/// The covering set's kernels, with all slice counts, and beside them direct ones, which are few and much faster than
/// others where they serve.
void consider_covering(Considered& out, const GemmProblem& problem, const DeviceInfo& device) {
  const std::vector<Spec> set = covering_set(problem);
  if (set.empty()) return;
  for (const Spec& direct : direct_specs(problem, device)) out.add(problem, device, direct);
  for (const Spec& spec : set) {
    if (spec.split == SplitKMode::parallel) {
      add_slices(out, problem, device, spec);
    } else {
      out.add(problem, device, spec);
    }
  }
}

/// In no order, all of the problem's own kind.
Considered consider_own(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  Considered out;
  if (kernels == Kernels::covering && is_automatic(problem)) consider_covering(out, problem, device);
  for (const bool all : {false, true}) {
    if (out.count() > 0) break;
    for (const Spec& tile : tiles(problem)) {
      for (const Spec& spec : variants(tile, problem)) {
        if (all || !oversized(spec, problem)) add_splits(out, problem, device, spec);
      }
    }
    for (const Spec& direct : direct_specs(problem, device)) out.add(problem, device, direct);
  }
  return out;
}

/// One kernel, and a kernel behind the product's where nothing is asked of either, or where one does not serve it;
/// always behind one that has packed weights on its rows' place.
Considered consider_quantised(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  Considered out = consider_own(problem, device, kernels);
  const bool packed = problem.weights_b.format != WeightFormat::none;
  if (!packed && ((!is_automatic(problem) && out.count() > 0) || is_batch_invariant(problem))) return out;
  for (const bool halves : {false, true}) {
    if (!may_quantize_apart(problem, halves)) continue;
    const GemmProblem product = unquantized(problem, halves);
    out.add_apart(consider_own(product, device, kernels), halves, quantize_apart_us(product, halves, device));
  }
  return out;
}

/// In no order.
Considered consider(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  if (finds_scales(problem)) return consider_quantised(problem, device, kernels);
  if (kernels == Kernels::any_images || !runs_as_product(problem)) return consider_own(problem, device, kernels);
  Considered out = consider_own(*matrix_product(problem), device, kernels);
  out.serve_convolution();
  // Products' tiles and k blocks have nothing empty in them where both are multiples of 64.
  const bool whole = problem.n % 64 == 0 && problem.k % 64 == 0 && problem.kernel != KernelFamily::direct;
  const auto rows = whole ? std::nullopt : direct_rows_spec(problem, device);
  if (rows) out.add(problem, device, *rows);
  return out;
}

/// For the problem, what was found for the rows that its groups are expected to have. Slices of K would have partial
/// tiles for all rows that there is room for: nothing, unless they are asked for.
std::optional<Choice> as_asked(Choice&& choice, const GemmProblem& problem, const DeviceInfo& device) {
  if (problem.groups.expected_m == 0) return std::move(choice);
  if (choice.spec.slices > 1 && is_automatic(problem)) return std::nullopt;
  std::optional<Choice> own = make_choice(problem, device, choice.spec);
  if (own) own->predicted_us = choice.predicted_us;
  return own;
}

}  // namespace

Kernels user_kernels() {
  static constinit Lazy<Kernels> kernels;
  return kernels.get([] {
    const char* text = std::getenv("CLEAVE_KERNELS");
    if (text == nullptr || *text == 0 || std::string_view(text) == "all") return Kernels::all;
    if (std::string_view(text) == "covering") return Kernels::covering;
    refuse_value("CLEAVE_KERNELS is \"{}\"; it must be \"all\" or \"covering\"", text);
  });
}

std::vector<Choice> candidates(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  std::vector<Choice> out;
  constexpr double kAll = std::numeric_limits<double>::infinity();
  const GemmProblem likely = as_expected(problem);
  consider(likely, device, kernels).visit_near(kAll, likely, device, [&](Choice&& choice) {
    if (auto own = as_asked(std::move(choice), problem, device)) out.push_back(std::move(*own));
  });
  std::stable_sort(out.begin(), out.end(), is_cheaper);
  return out;
}

Cheapest cheapest(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  // The closely cheapest is farther off roughly in one case of two hundred; a convolution's rough model errs by more.
  const double far = problem.conv.kind == Conv::none ? 1.25 : 1.5;
  const GemmProblem likely = as_expected(problem);
  const Considered considered = consider(likely, device, kernels);
  Cheapest best{.considered = considered.count()};
  considered.visit_near(far, likely, device, [&](Choice&& choice) {
    auto own = as_asked(std::move(choice), problem, device);
    if (own && (!best.choice || is_cheaper(*own, *best.choice))) best.choice = std::move(own);
  });
  if (best.choice || problem.groups.expected_m == 0) return best;
  GemmProblem unexpected = problem;
  unexpected.groups.expected_m = 0;
  return cheapest(unexpected, device, kernels);
}

}  // namespace cleave
