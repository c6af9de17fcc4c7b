#include "emit/choices.h"

#include <algorithm>

#include "base/refuse.h"
#include "cleave/config/staged_c.h"
#include "launch/conv_grid.h"
#include "launch/product.h"
#include "plan/batch_invariant.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/function_config.h"
#include "plan/model_device.h"
#include "plan/plans/gpu_plan.h"
#include "plan/plans/staged_reductions.h"
#include "plan/plans/two_heights.h"
#include "runtime/kernel_cache.h"

namespace cleave {
namespace {

const Choice& planned(const GemmPlan& plan) {
  const Choice* choice = choice_of(plan);
  if (choice == nullptr) {
    refuse_value("the operation is planned for the CPU, which has no kernel to emit; plan for \"cuda\" or \"h100\"");
  }
  if (choice->blocks == 0) {
    refuse_value(
        "the operation is planned for an empty D, which needs no kernel; plan for m, n and batch of 1 or more");
  }
  if (choice->parts > 1) {
    refuse(ErrorCode::unsupported,
           "the data gradient has more classes of pixels than one launch: {}; emit it with strides whose product is at "
           "most {}",
           count_classes(choice->problem.conv, false), kMostClasses);
  }
  if (finds_scales(plan.problem())) {
    throw Error(
        ErrorCode::unsupported,
        "the operation has out_scale, which emitted projects do not serve; plan it with scale_d, or call it from "
        "the library");
  }
  if (stages_reductions(plan.problem())) {
    throw Error(ErrorCode::unsupported,
                "the epilogue function reduces D in a step of its own here, which emitted projects do not; store the "
                "value as an output, and reduce that");
  }
  const GemmProblem& p = plan.problem();
  if (p.gather.given) {
    throw Error(ErrorCode::unsupported,
                "the operation has gather, which emitted projects do not serve; plan it of rows that are gathered "
                "(cleave.moe.gather), or call it from the library");
  }
  if (choice->problem.groups.apart) {
    refuse(
        ErrorCode::unsupported,
        "the operation's groups lie apart, which emitted projects do not serve; plan for a of (M, K) and b of (K, N)");
  }
  return *choice;
}

/// Whether the plan's kernel serves calls of other sizes than its own.
bool serves_any_size(const Choice& choice) {
  return choice.config.family != KernelFamily::direct && !choice.spec.product && !choice.spec.by_group;
}

/// Whether the kernel relies on rows of C and D that lie in whole words, as a call's may not.
bool wants_words(const Choice& choice) {
  return stages_c(choice.config) || choice.config.store.adds;
}

/// The same problem, in which they lie anywhere.
GemmProblem of_any_rows(GemmProblem p) {
  if (c_has_words(p)) p.c.alignment = size_of(p.c.dtype);
  return p;
}

/// The plan's own choice on its own architecture, or the same tile whose C is not staged; otherwise the planner's first
/// choice for `arch`. A tile whose sums TMA adds may be a bad one for threads.
Choice choose(const GemmPlan& plan, const std::string& arch, const std::string& own) {
  const Choice& here = planned(plan);
  const bool own_kernel = arch == own && serves_any_size(here);
  if (own_kernel && !wants_words(here)) return here;
  const DeviceInfo device = own_kernel ? device_info(plan.problem().device) : model_device(arch);
  if (own_kernel && stages_c(here.config)) return make_choice(of_any_rows(plan.problem()), device, here.spec).value();
  const bool is_conv = plan.problem().conv.kind != Conv::none;
  auto found = promised_candidates(of_any_rows(plan.problem()), device, is_conv ? Kernels::any_images : user_kernels());
  std::erase_if(found, [](const Choice& c) { return !serves_any_size(c); });
  if (found.empty()) {
    refuse(
        ErrorCode::unsupported,
        "arch {} has no kernel for this operation ({}); leave it out of archs, or plan without kernel and split_k_mode",
        arch, plan.kernel_name());
  }
  return found.front();
}

}  // namespace

std::vector<ArchChoice> choose_all(const GemmPlan& plan, std::vector<std::string> archs) {
  planned(plan);
  const std::string own = device_arch(plan.problem().device);
  if (archs.empty()) archs = {own};
  std::ranges::sort(archs);
  archs.erase(std::ranges::unique(archs).begin(), archs.end());
  std::vector<ArchChoice> choices;
  for (const std::string& arch : archs) {
    if (const Heights heights = heights_of(plan); heights.tall != nullptr && arch == own) {
      choices.push_back({arch, *heights.tall});
      choices.push_back({arch, *heights.rest, true});
    } else {
      choices.push_back({arch, choose(plan, arch, own)});
    }
  }
  for (ArchChoice& each : choices) {
    GemmConfig& config = each.choice.config;
    config.epilogue.c_pairs &= config.store.by_tma;               // else a call's sizes may be odd
    config.operands.static_a = config.operands.static_b = false;  // promised of this plan's calls alone
  }
  return choices;
}

}  // namespace cleave
