#include "cleave/across.h"

#include <algorithm>
#include <optional>

#include "cleave/device.h"
#include "cleave/epilogue.h"
#include "cleave/peers/strip_sizes.h"
#include "plan/catalogue/candidates.h"
#include "plan/plans/across.h"
#include "plan/plans/gpu_plan.h"
#include "problem/cached_plan.h"

namespace cleave {

/// For ProblemHash.
static void mix_in(const AcrossProblem& p, Mix& mix) {
  mix_in(p.product, mix);
  mix(uint64_t(p.ranks) << 8 ^ uint64_t(p.partial));
}

namespace {

constexpr double kMostSlower = 1.1;  // than the product alone, before the launch that is left out no longer pays
constexpr int kSmsOfOthers = 2;      // that are free while its CTAs wait

/// What the fold behind it would add up.
GemmProblem partial_of(const AcrossProblem& p) {
  GemmProblem partial = p.product;
  partial.has_c = false;
  partial.c = {};
  partial.bias = Bias::none;
  partial.bias_dtype = GemmProblem().bias_dtype;
  partial.epilogue = EpilogueProblem();
  partial.d = {.dtype = p.partial, .stride_row = p.product.n};
  return partial;
}

/// One of a sum alone, as a fold's is.
bool is_plain(const EpilogueFunction* function) {
  return function == nullptr || (function->inputs().empty() && function->outputs().size() <= 1);
}

bool is_served(const AcrossProblem& problem) {
  const GemmProblem& p = problem.product;
  return p.device != kCpu && p.batch == 1 && p.k > 0 && is_wide_float(p.a.dtype) &&
         p.groups.dimension == Grouping::none && p.conv.kind == Conv::none && p.epilogue.gates == Gates::none &&
         is_plain(p.epilogue.function) && p.weights_b.format == WeightFormat::none && p.scale_a.kind == Scaling::none &&
         !p.has_scale_d && !p.has_amax && is_wide_float(p.d.dtype) &&
         fits_strips(problem.ranks, p.m, p.n, size_of(problem.partial)) && validate(p).empty();
}

/// K in one piece: then the bits follow from nothing else.
bool is_whole(const Choice& choice) {
  const Spec& s = choice.spec;
  return s.family == KernelFamily::sm90 && s.split == SplitKMode::none && s.slices == 1 && !s.in_turn && !s.apart;
}

/// Each warpgroup has a strip of 64 columns and all rows, and each CTA one whole tile. SMs are left to others.
bool has_strips(const Choice& choice, const AcrossProblem& problem, const DeviceInfo& device) {
  const GemmConfig& c = choice.config;
  const uint32_t bytes = size_of(problem.partial);
  const uint32_t rows = 8 * blocks_of_vector(bytes) * strip_vectors(uint32_t(problem.product.m), bytes);
  return is_whole(choice) && choice.spec.transposed && !c.warps.pingpong && c.cluster.k == 1 && !c.scales.promote &&
         c.tile.m == kStripColumns * c.warps.consumers && c.tile.n >= rows && problem.product.n % c.tile.m == 0 &&
         choice.tiles <= choice.blocks && int(choice.blocks) + kSmsOfOthers <= device.num_sms;
}

std::optional<Choice> choose(const AcrossProblem& problem) {
  const DeviceInfo& device = device_info(problem.product.device);
  const auto alone = plan(partial_of(problem));
  const Choice* const found = choice_of(*alone);
  if (found == nullptr || !is_whole(*found)) return std::nullopt;
  if (const auto same = make_choice(problem.product, device, found->spec); same && has_strips(*same, problem, device))
    return same;
  const auto all = candidates(problem.product, device);
  const auto other = std::ranges::find_if(all, [&](const Choice& c) { return has_strips(c, problem, device); });
  if (other == all.end() || other->predicted_us > all.front().predicted_us * kMostSlower) return std::nullopt;
  return *other;
}

std::shared_ptr<const GemmPlan> make_plan(const AcrossProblem& problem) {
  if (!is_served(problem)) return nullptr;
  std::optional<Choice> choice = choose(problem);
  if (!choice) return nullptr;
  const uint32_t vectors = strip_vectors(uint32_t(problem.product.m), size_of(problem.partial));
  choice->config.across = {uint32_t(problem.ranks), problem.partial, vectors};
  return make_gpu_plan(problem.product, *choice, "adds up what other ranks have before its epilogue");
}

/// What is known of a problem: its plan, or that it has none.
struct Answer {
  std::shared_ptr<const GemmPlan> plan;
  size_t host_bytes() const { return plan == nullptr ? 0 : plan->host_bytes(); }
};

auto& known_answers() {
  return known_plans<Answer, kMostAcrossPlanBytes, AcrossProblem>();
}

}  // namespace

std::shared_ptr<const GemmPlan> plan_across(const AcrossProblem& problem) {
  if (const auto known = known_answers().find(problem)) return known->plan;
  return known_answers().insert(problem, std::make_shared<Answer>(make_plan(problem)))->plan;
}

void forget_plans_across() {
  known_answers().clear();
}

}  // namespace cleave
