#include "plan/plans/staged_reductions.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "base/refuse.h"
#include "cleave/epilogue.h"
#include "launch/conv_grid.h"
#include "launch/reductions.h"
#include "plan/plans/delegating_plan.h"
#include "plan/plans/reduce_kernel.h"
#include "problem/arguments.h"
#include "problem/problem.h"
#include "process/host_bytes.h"
#include "runtime/context.h"
#include "runtime/workspace_pool.h"

namespace cleave {
namespace {

constexpr size_t kAlignment = 16;

uint32_t outputs_beside_d(const GemmProblem& p) {
  return uint32_t(p.epilogue.function->outputs().size()) - 1;
}

bool is_reduced(const GemmProblem& p, uint32_t output) {
  return reduction_within(p, output) != Reduction::none;
}

/// The order in which the elements of a line, or of a group, are neighbours among those that a thread adds up.
Order order_of(const GemmProblem& p, InputShape shape) {
  const bool across = shape == InputShape::column || (shape == InputShape::scalar && p.groups.dimension == Grouping::n);
  return across ? Order::column : Order::row;
}

/// What all matrices take.
size_t staged_bytes(const GemmProblem& p) {
  size_t matrices = 0;
  for (uint32_t i = 0; i < outputs_beside_d(p); ++i) matrices += is_reduced(p, i);
  return matrices * round_up<size_t>(size_t(entries_of_d(p)) * size_t(p.m) * size_t(p.n) * sizeof(float), kAlignment);
}

/// The elements of D as partial results: units are those that are added up.
PartialResults elements_of(const GemmProblem& p, uint32_t output) {
  const EpilogueLayout& layout = p.epilogue.outputs[output];
  const bool over_groups = is_over_groups(p.groups.dimension, layout.shape);
  const auto rows = uint32_t(p.m), columns = uint32_t(p.n);
  PartialResults x{.reduction = reduction_within(p, output),
                   .joins_entries = layout.stride_batch == 0,
                   .entries = uint32_t(over_groups ? p.batch : entries_of_d(p)),
                   .of_elements = true,
                   .entry_stride = over_groups ? 0 : p.m * p.n,
                   .result_stride = layout.stride,
                   .result_entry_stride = layout.stride_batch};
  switch (layout.shape) {
    case InputShape::column:
      x.units = columns, x.lines = rows, x.units_of_step = over_groups;
      break;
    case InputShape::row:
      x.units = rows, x.lines = columns, x.units_of_step = over_groups;
      break;
    default:
      x.units = rows * columns, x.lines = 1, x.is_one = true;
      x.units_of_step = !over_groups ? 0 : p.groups.dimension == Grouping::m ? columns : rows;
      break;
  }
  return x;
}

class StagedPlan final : public DelegatingPlan {
 public:
  StagedPlan(const GemmProblem& problem, std::shared_ptr<const ChosenPlan> product)
      : DelegatingPlan(std::move(product)),
        problem_(problem),
        kernel_(reduce_config(shown().choice().config), problem.device) {
    params_.groups = group_params(problem);
    for (uint32_t i = 0; i < outputs_beside_d(problem); ++i) {
      if (!is_reduced(problem, i)) continue;
      const PartialResults& x = params_.outputs[count_] = elements_of(problem, i);
      numbers_[count_++] = i;
      blocks_ = std::max(blocks_, x.line_blocks() * (x.joins_entries ? 1 : x.entries));
    }
  }

  void run(const GemmArguments& given, void* workspace, size_t workspace_bytes, void* stream) const override {
    check_arguments(problem_, given);
    const ContextGuard context(problem_.device);
    const auto cuda_stream = static_cast<CUstream>(stream);
    kernel_.prepare(cuda_stream);  // before the product is enqueued
    const bool own = workspace != nullptr || workspace_bytes > 0;
    if (own) {
      check_workspace(workspace, workspace_bytes, workspace_size());
      check_workspace_apart(problem_, given, workspace, workspace_size());
    }
    char* const first =
        own ? static_cast<char*>(workspace) + round_up<size_t>(product().workspace_size(), kAlignment)
            : static_cast<char*>(pooled_workspace(problem_.device, cuda_stream, space_needed()).partials) + partials();
    GemmArguments arguments = given;
    ReduceParams params = params_;
    for (uint32_t i = 0; i < count_; ++i) {
      char* const matrix = first + i * (staged_bytes(problem_) / count_);
      arguments.epilogue_outputs[numbers_[i]] = matrix;
      params.outputs[i].partials = reinterpret_cast<const float*>(matrix);
      params.outputs[i].results = static_cast<float*>(given.epilogue_outputs[numbers_[i]]);
    }
    params.groups.offsets = given.group_offsets;
    params.groups.sizes = given.group_sizes;
    product().run(arguments, own ? workspace : nullptr, own ? product().workspace_size() : 0, stream);
    kernel_.launch(blocks_, count_, params, cuda_stream);
  }

  void prepare(void* stream) const override {
    const ContextGuard context(problem_.device);
    product().prepare(stream);
    kernel_.prepare(static_cast<CUstream>(stream));
    pooled_workspace(problem_.device, static_cast<CUstream>(stream), space_needed());
  }

  size_t workspace_size() const override {
    return round_up<size_t>(product().workspace_size(), kAlignment) + staged_bytes(problem_);
  }
  size_t host_bytes() const override { return shared_bytes(*this) + product().host_bytes(); }
  const GemmProblem& problem() const override { return problem_; }
  std::vector<std::string> kernel_sources() const override {
    std::vector<std::string> sources = product().kernel_sources();
    sources.push_back(kernel_.source());
    return sources;
  }
  std::string why() const override {
    return product().why() + "; a kernel behind it reduces what it leaves in the workspace";
  }
  std::vector<Candidate> candidates() const override {
    std::vector<Candidate> list = product().candidates();
    for (Candidate& each : list)
      each.workspace_size = round_up<size_t>(each.workspace_size, kAlignment) + staged_bytes(problem_);
    return list;
  }

 private:
  const ChosenPlan& product() const { return shown(); }

  /// The product's, whose part of the pool's memory comes first.
  size_t partials() const {
    return round_up<size_t>(product().workspace_size() - product().counter_size(), kAlignment);
  }
  WorkspaceSize space_needed() const { return {product().counter_size(), partials() + staged_bytes(problem_)}; }

  const GemmProblem problem_;
  const ReduceKernel kernel_;
  ReduceParams params_;
  uint32_t blocks_ = 0, count_ = 0, numbers_[kMostEpilogueOutputs] = {};
};

}  // namespace

bool stages_reductions(const GemmProblem& p) {
  return reduces(p) && (is_batch_invariant(p) || count_parts(p.conv, false) > 1);
}

GemmProblem staged(const GemmProblem& problem) {
  GemmProblem p = problem;
  for (uint32_t i = 0; i < outputs_beside_d(p); ++i) {
    if (!is_reduced(p, i)) continue;
    const Order order = order_of(p, p.epilogue.outputs[i].shape);
    p.epilogue.outputs[i] = {.order = order,
                             .alignment = sizeof(float),
                             .stride = order == Order::row ? p.n : p.m,
                             .stride_batch = entries_of_d(p) > 1 ? p.m * p.n : 0};
  }
  return p;
}

std::shared_ptr<const ChosenPlan> make_staged_plan(const GemmProblem& problem,
                                                   std::shared_ptr<const ChosenPlan> product) {
  // A thread counts the elements that it would come to next, too.
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max() - kReduceThreads * kUnitsAtOnce;
  if (double(problem.m) * double(problem.n) > double(kMost)) {
    refuse(ErrorCode::unsupported,
           "the epilogue function reduces D in a step of its own, but D has {} x {} elements, more than {}; reduce it "
           "in parts",
           problem.m, problem.n, kMost);
  }
  return std::make_shared<StagedPlan>(problem, std::move(product));
}

}  // namespace cleave
