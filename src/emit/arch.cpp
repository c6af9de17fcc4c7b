// What depends on the kernel that runs an operation on an architecture.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "emit/parts.h"
#include "jit/source.h"
#include "launch/gemm_grid.h"

namespace cleave {
namespace {

/// The members of the constant in gemm_source(), with their lines.
std::vector<std::string> members(const GemmConfig& config) {
  constexpr std::string_view kBegin = "    .";
  const std::string text = gemm_source(config);
  const size_t begin = text.find("{\n") + 2;
  std::istringstream lines(text.substr(begin, text.find("\n};") - begin));
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kBegin))
      found.push_back(line);
    else
      found.back() += "\n" + line;
  }
  return found;
}

/// All of them, in short those that are as by default; but for what every kernel is made of.
std::string initialiser(const GemmConfig& config) {
  std::vector<std::string> own = members(config);
  const std::vector<std::string> by_default = members({});
  for (size_t i = 0; i < own.size(); ++i) {
    const std::string name = own[i].substr(0, own[i].find('='));
    const bool spelled = name == "    .family " || name == "    .operands " || name == "    .tile ";
    if (!spelled && own[i] == by_default[i]) own[i] = name + "= {},";
  }
  return fmt::format("{}", fmt::join(own, "\n"));
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

void describe_archs(const std::vector<ArchChoice>& choices, Vocabulary& v) {
  std::string others = "defined(__CUDA_ARCH__)";  // where nvcc compiles for an architecture without features of its own
  v.flags["has_workspace"] = false;
  for (const auto& [arch, choice] : choices) {
    const std::string number = arch.substr(3), digits = number.substr(0, number.find('a'));
    const std::string feature = fmt::format("defined(__CUDA_ARCH_FEAT_SM{}_ALL)", digits);
    const bool specific = digits != number;
    if (specific) others += " && !" + feature;
    v.flags["has_workspace"] |= needs_workspace(choice.config) || choice.config.epilogue.function.reduces();
    v.archs.push_back({{"arch", arch},
                       {"number", number},
                       {"guard", specific ? feature : ""},
                       {"major", std::to_string(std::stoi(digits) / 10)},
                       {"any_minor", spell(!specific)},
                       {"constant", "kSm" + number},
                       {"config", initialiser(choice.config)},
                       {"kernel", family_traits(choice.config.family).kernel},
                       {"transposed", spell(choice.spec.transposed)},
                       {"slices", std::to_string(choice.spec.slices)},
                       {"units", std::to_string(uint64_t(choice.most_tiles) * std::max(choice.spec.slices, 1u))}});
  }
  for (Vocabulary::Words& arch : v.archs) {
    if (arch["guard"].empty()) arch["guard"] = others;
  }
}

}  // namespace cleave
