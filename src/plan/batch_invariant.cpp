#include "plan/batch_invariant.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/refuse.h"
#include "cleave/device.h"
#include "problem/cached_plan.h"
#include "problem/placement.h"
#include "problem/problem.h"

namespace cleave {
namespace {

constexpr int64_t kRows[] = {1, 16, 64, 128, 512, 4096};  // of the product, or of each group
constexpr int64_t kGroups = 16;                           // whatever their number, as experts are dealt to ranks
constexpr double kWorst = 8;                              // the higher, the more the worst M counts
constexpr int32_t kSlices[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};

/// The problem as a row of it finds it in any batch: the stride of a single row says nothing unless it is a view of
/// more, and a row further on may be aligned to less than the first.
GemmProblem among_others(GemmProblem p) {
  p.a.stride_row = std::max(p.a.stride_row, p.k);
  p.a.alignment = common_alignment(p.a.alignment | uint64_t(p.a.stride_row) * size_of(p.a.dtype));
  return p;
}

/// That with another M, and what follows from M, from the batch or from the number of groups taken away.
GemmProblem with_rows(const GemmProblem& problem, int64_t rows) {
  GemmProblem p = among_others(problem);
  p.d.stride_row = std::max(p.d.stride_row, p.d.stride_col == 1 ? p.n : 1);
  for (ScaleLayout* scale : {&p.scale_a, &p.scale_out}) scale->stride_row = scale->stride_k = 0;
  for (EpilogueLayout& output : p.epilogue.outputs)
    if (output.order == Order::column) output.stride = rows * kGroups;
  if (p.groups.dimension == Grouping::none) {
    p.batch = 1;
    p.m = rows;
    for (MatrixLayout* matrix : {&p.a, &p.b, &p.c, &p.d}) matrix->stride_batch = 0;
    p.scale_a.stride_batch = p.scale_b.stride_batch = p.scale_out.stride_batch = p.bias_stride_batch = 0;
  } else {
    if (p.batch == 1) p.b.stride_batch = std::max(p.b.stride_row * p.k, p.b.stride_col * columns_of_b(p));
    p.batch = kGroups;
    p.m = rows * kGroups;
    p.groups.expected_m = 0;
    p.scale_a.stride_batch = 0;
    if (p.groups.bounds == GroupBounds::counts) p.groups.spacing = rows;
    if (p.gather.given) p.gather.rows = ceil_div(p.m, p.gather.divisor);
  }
  return p;
}

GemmProblem with_slices(GemmProblem p, int32_t slices) {
  if (p.deterministic == Determinism::k_order) slices = 1;
  if (p.split_k_slices == 0) p.split_k_slices = slices;
  return p;
}

/// What serves the problem in so many slices, cheapest first.
std::vector<Choice> of_slices(const GemmProblem& problem, const DeviceInfo& device, int32_t slices) {
  return candidates(with_slices(problem, slices), device);
}

struct Rated {
  SumOrder order;
  double loss = 0;  // a power of its time, of the best order's, summed over M: mostly that of the worst
  uint32_t served = 0;
};

/// What each order loses for one M.
void rate(const GemmProblem& problem, const DeviceInfo& device, std::vector<Rated>& rated) {
  std::vector<SumOrder> seen;
  std::vector<double> least;  // of each
  for (const int32_t slices : kSlices) {
    for (const Choice& choice : of_slices(problem, device, slices)) {
      const auto order = sum_order(choice);
      if (!order || std::ranges::find(seen, *order) != seen.end()) continue;
      seen.push_back(*order);
      least.push_back(choice.predicted_us);
    }
    if (problem.split_k_slices > 0 || problem.deterministic == Determinism::k_order) break;
  }
  if (seen.empty()) return;
  const double best = std::ranges::min(least);
  for (size_t i = 0; i < seen.size(); ++i) {
    auto known = std::ranges::find(rated, seen[i], &Rated::order);
    if (known == rated.end()) known = rated.insert(rated.end(), {seen[i]});
    known->loss += std::pow(least[i] / best, kWorst);
    ++known->served;
  }
}

/// Time depends on N, and so must not choose the order of K.
bool comes_before(const Rated& x, const Rated& y, Determinism promise) {
  if (promise != Determinism::k_order) return x.loss < y.loss;
  const auto rank = [](const SumOrder& order) { return std::pair(!has_wgmma(order.family), order.block); };
  return rank(x.order) < rank(y.order);
}

std::optional<SumOrder> find_order(const GemmProblem& problem, const DeviceInfo& device) {
  std::vector<Rated> rated;
  for (const int64_t rows : kRows) rate(with_rows(problem, rows), device, rated);
  const Rated* best = nullptr;
  for (const Rated& each : rated) {
    if (each.served < std::size(kRows)) continue;
    if (best == nullptr || comes_before(each, *best, problem.deterministic)) best = &each;
  }
  if (best == nullptr) return std::nullopt;
  return best->order;
}

/// As PlanMap keeps it.
struct KnownOrder {
  std::optional<SumOrder> order;
  size_t host_bytes() const { return sizeof *this; }
};

constexpr size_t kMostOrderBytes = 1 << 20;

std::atomic<Determinism>& promised() {
  static constinit Lazy<std::atomic<Determinism>> value;
  return value.get([] {
    const char* text = std::getenv("CLEAVE_BATCH_INVARIANT");
    const std::string_view said = text == nullptr ? "" : text;
    if (said == "1") return Determinism::batch_invariant;
    if (said == "k") return Determinism::k_order;
    if (!said.empty() && said != "0")
      refuse_value("CLEAVE_BATCH_INVARIANT is \"{}\"; it must be 0, 1 or k (sum_order=\"k\")", said);
    return Determinism::repeatable;
  });
}

}  // namespace

Determinism default_determinism() {
  return promised().load(std::memory_order_relaxed);
}

void set_default_determinism(Determinism value) {
  promised().store(value, std::memory_order_relaxed);
}

std::optional<SumOrder> sum_order(const Choice& choice) {
  const Spec& s = choice.spec;
  // Warps of the streamed kernel cut K, by tile.
  const bool by_warps = s.family == KernelFamily::direct || s.family == KernelFamily::streamed;
  if (s.narrow || s.split == SplitKMode::stream_k || by_warps) return std::nullopt;
  const bool joins = s.split == SplitKMode::parallel && s.cluster_k < s.slices;
  const bool breaks = s.slices > 1 || choice.config.scales.promote;
  return SumOrder{s.family, breaks ? choice.config.tile.k : 0, s.slices, joins ? s.cluster_k : 1};
}

std::optional<SumOrder> invariant_order(const GemmProblem& problem, const DeviceInfo& device) {
  if (device_info(problem.device).name != device.name) return find_order(problem, device);  // for another to emit
  static constinit Lazy<PlanMap<GemmProblem, KnownOrder, ProblemHash>> known;
  auto& orders = known.get([] { return PlanMap<GemmProblem, KnownOrder, ProblemHash>(kMostOrderBytes); });
  const GemmProblem weights = with_rows(problem, 1);
  if (const auto found = orders.find(weights)) return found->order;
  return orders.insert(weights, std::make_shared<const KnownOrder>(find_order(problem, device)))->order;
}

std::vector<Choice> promised_candidates(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  if (!has_one_order(problem)) return candidates(problem, device, kernels);
  const auto order = invariant_order(problem, device);
  if (!order) return {};
  std::vector<Choice> found = of_slices(among_others(problem), device, int32_t(order->slices));
  std::erase_if(found, [&](const Choice& choice) { return sum_order(choice) != order; });
  return found;
}

Cheapest promised_cheapest(const GemmProblem& problem, const DeviceInfo& device, Kernels kernels) {
  if (!has_one_order(problem)) return cheapest(problem, device, kernels);
  std::vector<Choice> found = promised_candidates(problem, device, kernels);
  if (found.empty()) return {};
  return {std::move(found.front()), found.size()};
}

}  // namespace cleave
