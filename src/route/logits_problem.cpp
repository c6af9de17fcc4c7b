#include "route/logits_problem.h"

#include <bit>

#include "cleave/core/saturate.h"
#include "cleave/names.h"
#include "problem/arguments.h"

namespace cleave {
namespace {

constexpr int64_t kMostTokensOfCta = 8, kMostExpertsOfCta = 4;

/// CTAs that keep a GPU busy: with fewer, each has fewer experts, and tokens are read more often.
constexpr int64_t kEnoughCtas = 128;

Placement x_of(const RouterLogitsProblem& p) {
  return {p.x, p.tokens, p.features, 1};
}

Placement weight_of(const RouterLogitsProblem& p) {
  return {p.weight, p.experts, p.features, 1};
}

/// Whether lines are whole lanes' elements, which lie at multiples of their size.
bool is_aligned(const MatrixLayout& layout, int64_t lines, int64_t features) {
  const uint32_t bytes = kLaneElements * uint32_t(size_of(layout.dtype));
  return features % kLaneElements == 0 && layout.alignment % bytes == 0 &&
         (lines < 2 || layout.stride_row % kLaneElements == 0);
}

}  // namespace

void check_types(const RouterLogitsProblem& p, Messages& out) {
  const auto check = [&](const char* name, DType type) {
    if (!is_wide_float(type))
      out.add("{} is {}; it must be float16, bfloat16 or float32, convert it", name, to_string(type));
  };
  check("x", p.x.dtype);
  check("weight", p.weight.dtype);
}

std::vector<std::string> validate(const RouterLogitsProblem& p) {
  Messages out;
  const bool tokens = check_size("tokens", p.tokens, out), experts = check_size("experts", p.experts, out);
  const bool features = check_size("features", p.features, out);
  if (tokens && experts && saturating_product(p.tokens, p.experts) > kMaxSize) {
    out.add("tokens and experts are {} and {}; that is 2^31 logits or more. Split the tokens", p.tokens, p.experts);
  }
  if (tokens && features) check_rows("x", x_of(p), false, out);
  if (experts && features) check_rows("weight", weight_of(p), false, out);
  check_types(p, out);
  check_device(p.device, out);
  return out;
}

LogitsConfig config_of(const RouterLogitsProblem& p) {
  LogitsConfig config{.x = p.x.dtype, .weight = p.weight.dtype, .static_weight = p.static_weight};
  config.tokens = uint32_t(std::bit_ceil(uint64_t(min_of(p.tokens, kMostTokensOfCta))));
  const int64_t groups = ceil_div(p.tokens, int64_t(config.tokens));
  config.experts = kMostExpertsOfCta;
  while (config.experts > 1 && groups * ceil_div(p.experts, int64_t(config.experts)) < kEnoughCtas) config.experts /= 2;
  config.vectors = is_aligned(p.x, p.tokens, p.features) && is_aligned(p.weight, p.experts, p.features);
  return config;
}

void check_arguments(const RouterLogitsProblem& p, const RouterLogitsArguments& arguments) {
  const NamedOperand operands[] = {
      {"logits", vector_of(DType::f32, p.tokens * p.experts), arguments.logits, true},
      {"x", x_of(p), arguments.x, false},
      {"weight", weight_of(p), arguments.weight, false},
  };
  check_operands(operands);
}

}  // namespace cleave
