#include "moe/source.h"

#include <fmt/format.h>

#include "jit/spell.h"

namespace cleave {
namespace {

std::string initialiser(const MoeConfig& config) {
  // Naming every member makes a member added to MoeConfig, and forgotten here, an error of the
  // compiler.
  const auto& [wide_ids, type, has_weights, weights, width] = config;
  std::string text;
#define CLEAVE_PRINT(member) text += fmt::format("    .{} = {},\n", #member, spell(member))
  CLEAVE_PRINT(wide_ids);
  CLEAVE_PRINT(type);
  CLEAVE_PRINT(has_weights);
  CLEAVE_PRINT(weights);
  CLEAVE_PRINT(width);
#undef CLEAVE_PRINT
  return text;
}

/// The most threads of a block, and how many blocks a multiprocessor must have room for: what
/// leaves each thread at most 64 registers.
const char* launch_bounds(MoeKernel kernel) {
  switch (kernel) {
    case MoeKernel::count:
      return "cleave::kCountThreads, 1";
    case MoeKernel::rank:
      return "cleave::kMostRankThreads, 1";
    default:
      return "cleave::kRowThreads, 8";
  }
}

}  // namespace

const char* to_string(MoeKernel kernel) {
  switch (kernel) {
    case MoeKernel::count:
      return "count";
    case MoeKernel::rank:
      return "rank";
    case MoeKernel::invert:
      return "invert";
    case MoeKernel::scatter:
      return "scatter";
    case MoeKernel::combine:
      return "combine";
    case MoeKernel::combine_backward:
      break;
  }
  return "combine_backward";
}

std::string moe_source(MoeKernel kernel, const MoeConfig& config) {
  return fmt::format(R"(#include "cleave/moe/{0}.h"

constexpr cleave::MoeConfig config = {{
{1}}};

extern "C" __global__ void __launch_bounds__({2})
    {3}(const __grid_constant__ cleave::MoeParams params) {{
  cleave::{0}<config>(params);
}}
)",
                     to_string(kernel), initialiser(config), launch_bounds(kernel), moe_entry);
}

}  // namespace cleave
