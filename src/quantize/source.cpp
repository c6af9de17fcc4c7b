#include "quantize/source.h"

#include <fmt/format.h>

#include "jit/spell.h"

namespace cleave {
namespace {

std::string initialiser(const QuantizeConfig& config) {
  // Naming every member makes a member added to QuantizeConfig, and forgotten here, an error of the
  // compiler.
  const auto& [x, q, width, given_scale, symmetric, has_smooth, lanes, hold, batch, square, width_t,
               grouped] = config;
  std::string text;
#define CLEAVE_PRINT(member) text += fmt::format("    .{} = {},\n", #member, spell(member))
  CLEAVE_PRINT(x);
  CLEAVE_PRINT(q);
  CLEAVE_PRINT(width);
  CLEAVE_PRINT(given_scale);
  CLEAVE_PRINT(symmetric);
  CLEAVE_PRINT(has_smooth);
  CLEAVE_PRINT(lanes);
  CLEAVE_PRINT(hold);
  CLEAVE_PRINT(batch);
  CLEAVE_PRINT(square);
  CLEAVE_PRINT(width_t);
  CLEAVE_PRINT(grouped);
#undef CLEAVE_PRINT
  return text;
}

/// The most threads of a block, and how many blocks a multiprocessor must have room for: what
/// leaves each thread at most 64 registers.
const char* launch_bounds(QuantizeKernel kernel, const QuantizeConfig& config) {
  switch (kernel) {
    case QuantizeKernel::rows:
      return config.lanes == 0 ? "1024, 1" : "cleave::kLaneThreads, 8";
    case QuantizeKernel::measure:
      return "cleave::kMeasureThreads, 2";
    case QuantizeKernel::bands:
      return "cleave::kBandThreads, 1";
    case QuantizeKernel::tiles:
      break;
  }
  return "cleave::kTileThreads, 2";
}

}  // namespace

const char* to_string(QuantizeKernel kernel) {
  switch (kernel) {
    case QuantizeKernel::rows:
      return "quantize_rows";
    case QuantizeKernel::measure:
      return "measure";
    case QuantizeKernel::bands:
      return "find_bands";
    case QuantizeKernel::tiles:
      break;
  }
  return "quantize_tiles";
}

std::string quantize_source(QuantizeKernel kernel, const QuantizeConfig& config) {
  return fmt::format(R"(#include "cleave/quantize/{0}.h"

constexpr cleave::QuantizeConfig config = {{
{1}}};

extern "C" __global__ void __launch_bounds__({2})
    {3}(const __grid_constant__ cleave::QuantizeParams params) {{
  cleave::{0}<config>(params);
}}
)",
                     to_string(kernel), initialiser(config), launch_bounds(kernel, config),
                     quantize_entry);
}

}  // namespace cleave
