#include "lora/problem.h"

#include <bit>

#include "cleave/config/arch_traits.h"
#include "cleave/names.h"
#include "cleave/schedule/groups.h"
#include "problem/arguments.h"

namespace cleave {
namespace {

Placement x_of(const LoraProblem& p) {
  return {p.x, p.rows, p.features, 1};
}
Placement a_of(const LoraProblem& p) {
  return {p.a, p.rank, p.features, p.adapters};
}
Placement b_of(const LoraProblem& p) {
  return {p.b, p.outputs, p.rank, p.adapters};
}
Placement out_of(const LoraProblem& p) {
  return {p.out, p.rows, p.outputs, 1};
}

/// A tile's rows, a CTA's warps and a tile's CTAs, as an H200 took least for ranks of 16 and 64, 1 to 256 adapters and
/// 64 to 4096 rows. Tiles of more rows read a and b less often, and are emptier.
void set_tile(const LoraProblem& p, LoraConfig& config) {
  const int64_t mean = p.rows / p.adapters;
  if (config.rank <= 16) {
    const uint32_t tiles = most_group_steps(Grouping::m, uint32_t(p.rows), uint32_t(p.adapters), config.rows);
    if (p.rows >= 2048 && mean >= 64) {
      config.rows = 32;
    } else if (tiles > 64) {  // 8 CTAs each would wait for a second wave
      config.cluster = 4;
    }
  } else if (config.rank <= 32) {
    config.rows = mean < 16 || p.rows <= 64 ? 16 : 32;
    if (config.rank * config.rows >= 1024) config.warps = 8;
  } else if (p.rows >= 2048 && mean >= 32) {
    config.rows = 32;
    config.warps = 8;
    config.cluster = 4;
  } else {
    config.rows = 16;
    config.warps = p.rows <= 64 && p.adapters <= 8 ? 8 : 4;
  }
}

}  // namespace

void check_types(const LoraProblem& p, Messages& out) {
  if (size_of(p.x.dtype) != 2) out.add("x is {}; it must be float16 or bfloat16, convert it", to_string(p.x.dtype));
  for (const auto& [name, layout] : {std::pair{"a", p.a}, {"b", p.b}, {"out", p.out}}) {
    if (layout.dtype != p.x.dtype)
      out.add("{} is {} and x is {}; convert one of them", name, to_string(layout.dtype), to_string(p.x.dtype));
  }
}

std::vector<std::string> validate(const LoraProblem& p) {
  Messages out;
  const bool rows = check_size("rows", p.rows, out), features = check_size("features", p.features, out);
  const bool outputs = check_size("outputs", p.outputs, out), adapters = check_size("adapters", p.adapters, out);
  if (adapters && p.adapters == 0) out.add("adapters is 0; there must be one");
  if (p.rank < 1 || p.rank > kMostLoraRank) {
    out.add("rank is {}; it must be from 1 to {}; other ranks take two grouped products", p.rank, kMostLoraRank);
  } else {
    if (rows && features) check_rows("x", x_of(p), false, out);
    if (adapters && features) check_rows("a", a_of(p), false, out);
    if (adapters && outputs) check_rows("b", b_of(p), false, out);
    if (rows && outputs) check_rows("out", out_of(p), true, out);
  }
  check_types(p, out);
  check_device(p.device, out);
  return out;
}

LoraConfig config_of(const LoraProblem& p, int compute_capability) {
  LoraConfig config{.type = p.x.dtype, .rank = uint32_t(std::bit_ceil(uint64_t(max_of<int64_t>(p.rank, 8))))};
  set_tile(p, config);
  if (!arch_traits(compute_capability).has_clusters) config.cluster = 1;
  config.vectors = p.features % kLoraPiece == 0 && p.outputs % kLoraPiece == 0 && p.rank % kLoraPiece == 0;
  for (const Placement& matrix : {x_of(p), a_of(p), b_of(p), out_of(p)})
    config.vectors = config.vectors && (matrix.empty() || widest_access(matrix) == 16);
  return config;
}

void check_arguments(const LoraProblem& p, const LoraArguments& arguments) {
  const NamedOperand operands[] = {
      {"out", out_of(p), arguments.out, true},
      {"x", x_of(p), arguments.x, false},
      {"a", a_of(p), arguments.a, false},
      {"b", b_of(p), arguments.b, false},
      {"offs", integers_of(p.adapters, p.wide_offs), arguments.offs, false, p.wide_offs},
  };
  check_operands(operands);
}

}  // namespace cleave
