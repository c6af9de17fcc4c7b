// What depends on the kernel that runs an operation on an architecture.
#include <algorithm>

#include "emit/parts.h"
#include "jit/source.h"
#include "launch/gemm_grid.h"

namespace cleave {
namespace {

/// The lines between the braces of the constant in gemm_source().
std::string initialiser(const GemmConfig& config) {
  const std::string text = gemm_source(config);
  const size_t begin = text.find("{\n") + 2;
  return text.substr(begin, text.find("\n};") - begin);
}

}  // namespace

Layouts layouts_of(const Choice& choice) {
  const GemmConfig& c = choice.config;
  const bool swapped = choice.spec.transposed;
  const Major a = swapped ? c.operands.b_major : c.operands.a_major,
              b = swapped ? c.operands.a_major : c.operands.b_major;
  return {a == Major::k, b == Major::mn, (c.epilogue.order == Order::row) != swapped};
}

int64_t spacing_step(const GemmProblem& p, const std::vector<ArchChoice>& choices) {
  uint32_t step = p.groups.dimension == Grouping::k && p.scale_a.kind == Scaling::block ? kScaleBlock : 1;
  for (const auto& [arch, choice] : choices) {
    const GemmConfig& c = choice.config;
    const auto contiguous = [&](Major major, Grouping other) {
      return c.schedule.grouping == (major == Major::k ? Grouping::k : other);
    };
    if (contiguous(c.operands.a_major, Grouping::m))
      step = std::max(step, c.operands.load_bytes_a / size_of(c.operands.a));
    if (contiguous(c.operands.b_major, Grouping::n))
      step = std::max(step, c.operands.load_bytes_b / size_of(c.operands.b));
  }
  return step;
}

void describe_arch(const ArchChoice& arch_choice, Vocabulary& v) {
  const auto& [arch, choice] = arch_choice;
  const bool sm90 = choice.config.family == KernelFamily::sm90;
  v.flags[arch] = true;
  v.flags["has_workspace"] |= needs_workspace(choice.config);
  v.words[arch + "_config"] = initialiser(choice.config);
  v.words[arch + "_entry"] = sm90 ? "gemm_sm90" : "gemm_portable";
  v.words[arch + "_transposed"] = spell(choice.spec.transposed);
  v.words[arch + "_slices"] = std::to_string(choice.spec.slices);
  v.words[arch + "_units"] = std::to_string(uint64_t(choice.most_tiles) * std::max(choice.spec.slices, 1u));
}

}  // namespace cleave
