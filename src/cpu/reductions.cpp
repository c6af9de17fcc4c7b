#include "cpu/reductions.h"

#include <algorithm>
#include <vector>

#include "cleave/core/element.h"
#include "cleave/core/math.h"
#include "cleave/epilogue.h"
#include "cpu/groups.h"
#include "problem/problem.h"

namespace cleave::cpu {
namespace {

/// What a line has come to.
class Total {
 public:
  explicit Total(Reduction reduction) : reduction_(reduction) {}

  void add(float value) {
    if (reduction_ == Reduction::sum) {
      sum_ += value;
    } else {
      largest_ = max_of(largest_, float_bits(value) & 0x7fffffffu);  // magnitudes order like their bits, NaNs last
    }
  }
  float value() const { return reduction_ == Reduction::sum ? float(sum_) : bits_float(largest_); }

 private:
  Reduction reduction_;
  double sum_ = 0.0;
  uint32_t largest_ = 0;
};

/// Which lines along the grouped dimension belong to a group; all of what is not grouped.
std::vector<bool> lines_of_groups(const GemmProblem& p, const GemmArguments& arguments, int64_t lines) {
  std::vector<bool> owned(size_t(lines), true);
  const bool cut = p.groups.dimension == Grouping::m || p.groups.dimension == Grouping::n;
  if (!cut || p.groups.zero_rest) return owned;
  for (const GroupRange range : Groups(p, arguments, uint32_t(max_of<int64_t>(lines, 1))).rest())
    std::fill(owned.begin() + range.begin, owned.begin() + range.end, false);
  return owned;
}

}  // namespace

Reductions::Reductions(const GemmProblem& problem, const GemmArguments& arguments)
    : problem_(problem), arguments_(arguments), staged_problem_(problem), staged_arguments_(arguments) {
  const auto& outputs = problem.epilogue.function->outputs();
  for (uint32_t i = 0; i + 1 < outputs.size(); ++i) {
    if (outputs[i + 1].reduction == Reduction::none) continue;
    values_[i] = std::make_unique_for_overwrite<float[]>(size_t(entries_of_d(problem) * problem.m * problem.n));
    const int64_t apart = entries_of_d(problem) > 1 ? problem.m * problem.n : 0;
    staged_problem_.epilogue.outputs[i] = {.alignment = 4, .stride = problem.n, .stride_batch = apart};
    staged_arguments_.epilogue_outputs[i] = values_[i].get();
  }
}

void Reductions::finish() const {
  for (uint32_t i = 0; i < kMostEpilogueOutputs; ++i)
    if (values_[i] != nullptr) reduce(i);
}

void Reductions::reduce(uint32_t output) const {
  const EpilogueFunction::Output& what = problem_.epilogue.function->outputs()[output + 1];
  const EpilogueLayout& layout = problem_.epilogue.outputs[output];
  const bool column = what.shape == InputShape::column, row = what.shape == InputShape::row;
  const int64_t lines = column ? problem_.m : row ? problem_.n : 1, entries = entries_of_d(problem_);
  const std::vector<bool> owned = lines_of_groups(problem_, arguments_, lines);
  auto* const results = static_cast<float*>(arguments_.epilogue_outputs[output]);
  const float* value = values_[output].get();
  std::vector<Total> totals(size_t(lines), Total(what.reduction));
  for (int64_t entry = 0; entry < entries; ++entry) {
    for (int64_t i = 0; i < problem_.m; ++i) {
      for (int64_t j = 0; j < problem_.n; ++j) totals[size_t(column ? i : row ? j : 0)].add(*value++);
    }
    if (layout.stride_batch == 0 && entry + 1 < entries) continue;  // one for all of the batch
    for (int64_t line = 0; line < lines; ++line) {
      if (owned[size_t(line)])
        results[entry * layout.stride_batch + line * layout.stride] = totals[size_t(line)].value();
    }
    std::ranges::fill(totals, Total(what.reduction));
  }
}

}  // namespace cleave::cpu
