#include "cpu/reductions.h"

#include <algorithm>
#include <vector>

#include "cleave/core/element.h"
#include "cleave/core/math.h"
#include "cleave/core/reduction.h"
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

/// Part of D: of an entry, or of a group.
struct Block {
  int64_t entry, row, row_end, column, column_end;
};

/// What is reduced together.
std::vector<Block> blocks_of(const GemmProblem& p, const GemmArguments& arguments, InputShape shape) {
  std::vector<Block> blocks;
  if (!is_over_groups(p.groups.dimension, shape)) {
    for (int64_t entry = 0; entry < entries_of_d(p); ++entry) blocks.push_back({entry, 0, p.m, 0, p.n});
    return blocks;
  }
  const Groups groups(p, arguments, uint32_t(max_of<int64_t>(grouped_extent(p), 1)));
  const GroupTable table = groups.table();
  for (uint32_t g = 0; g < table.count; ++g) {
    const auto [begin, end] = table.entries[g].range;
    blocks.push_back(p.groups.dimension == Grouping::m ? Block{0, begin, end, 0, p.n} : Block{0, 0, p.m, begin, end});
  }
  return blocks;
}

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
  const int64_t lines = column ? problem_.m : row ? problem_.n : 1;
  const std::vector<Block> blocks = blocks_of(problem_, arguments_, what.shape);
  std::vector<bool> owned(size_t(lines), true);
  if (!is_over_groups(problem_.groups.dimension, what.shape)) owned = lines_of_groups(problem_, arguments_, lines);
  auto* const results = static_cast<float*>(arguments_.epilogue_outputs[output]);
  std::vector<Total> totals(size_t(lines), Total(what.reduction));
  for (size_t b = 0; b < blocks.size(); ++b) {
    const Block& block = blocks[b];
    for (int64_t i = block.row; i < block.row_end; ++i) {
      const float* const values = values_[output].get() + (block.entry * problem_.m + i) * problem_.n;
      for (int64_t j = block.column; j < block.column_end; ++j) totals[size_t(column ? i : row ? j : 0)].add(values[j]);
    }
    if (layout.stride_batch == 0 && b + 1 < blocks.size()) continue;  // one for all of the batch
    for (int64_t line = 0; line < lines; ++line) {
      if (owned[size_t(line)])
        results[int64_t(b) * layout.stride_batch + line * layout.stride] = totals[size_t(line)].value();
    }
    std::ranges::fill(totals, Total(what.reduction));
  }
}

}  // namespace cleave::cpu
