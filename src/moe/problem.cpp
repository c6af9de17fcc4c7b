#include "moe/problem.h"

#include "cleave/core/saturate.h"
#include "cleave/moe/moe_config.h"
#include "cleave/names.h"
#include "problem/arguments.h"

namespace cleave {
bool reads_ids(MoeOperation operation) {
  return operation == MoeOperation::offsets || operation == MoeOperation::sort || operation == MoeOperation::permute;
}
bool has_indices(MoeOperation operation) {
  return operation != MoeOperation::offsets;
}
bool has_rows(MoeOperation operation) {
  return operation != MoeOperation::offsets && operation != MoeOperation::sort;
}

int64_t slots_of(const MoeProblem& p) {
  return saturating_product(p.tokens, p.top_k);
}

int64_t scales_of(const MoeProblem& p) {
  return ceil_div(p.columns, int64_t(kScaleBlock));
}

Placement tokens_of(const MoeProblem& p) {
  return {p.token, p.tokens, p.columns, has_rows(p.operation) ? 1 : 0};
}
Placement rows_of(const MoeProblem& p) {
  return {p.row, slots_of(p), p.columns, has_rows(p.operation) ? 1 : 0};
}
Placement rows_grad_of(const MoeProblem& p) {
  return {p.row_grad, slots_of(p), p.columns, p.operation == MoeOperation::combine_backward ? 1 : 0};
}

// The rules. Each broken one is reported with the argument, the value seen and the remedy.

namespace {

void check_scaled_types(const MoeProblem& p, Messages& out) {
  if (size_of(p.row.dtype) != 1) {
    out.add("scaled is true and row is {}; it must be int8, float8_e4m3fn or float8_e5m2", to_string(p.row.dtype));
  }
  if (!is_wide_float(p.token.dtype)) {
    out.add("scaled is true and token is {}; it must be float16, bfloat16 or float32", to_string(p.token.dtype));
  }
}

}  // namespace

void check_types(const MoeProblem& p, Messages& out) {
  if (p.scaled) check_scaled_types(p, out);
  const bool adds = p.operation == MoeOperation::combine || p.operation == MoeOperation::combine_backward;
  if (adds && !is_wide_float(p.row.dtype)) {
    out.add("row is {}; rows that are added up must be float16, bfloat16 or float32, convert them",
            to_string(p.row.dtype));
  }
  if (has_rows(p.operation) && !p.scaled && p.token.dtype != p.row.dtype) {
    out.add("token is {} and row is {}; they must be equal", to_string(p.token.dtype), to_string(p.row.dtype));
  }
  if (p.operation == MoeOperation::combine_backward && p.row_grad.dtype != p.row.dtype) {
    out.add("row_grad is {} and row is {}; they must be equal", to_string(p.row_grad.dtype), to_string(p.row.dtype));
  }
  if (p.has_weights && !is_wide_float(p.weights_dtype)) {
    out.add("weights_dtype is {}; it must be float16, bfloat16 or float32, convert them", to_string(p.weights_dtype));
  }
}

namespace {

/// A grid has at most 65535 CTAs for the pieces of a row, which have 2 bytes per thread where rows
/// are aligned the least.
constexpr int64_t kMostRowBytes = 65535 * int64_t(kRowThreads) * 2;

/// Threads of quantise are counted in 31 bits.
constexpr int64_t kMostScaledGroups = (int64_t(1) << 31) / kScaleLanes - 1;

void check_counts(const MoeProblem& p, Messages& out) {
  if (p.top_k < 1) {
    out.add("top_k is {}; it must be at least 1: the slots of a token", p.top_k);
  } else if (p.top_k > kMaxSize || slots_of(p) > kMaxSize) {
    out.add("tokens and top_k are {} and {}; that is 2^31 slots or more. Split the tokens", p.tokens, p.top_k);
  }
  if (has_rows(p.operation) && p.columns * size_of(p.row.dtype) > kMostRowBytes) {
    out.add("columns is {}; rows may have up to {} bytes. Split them", p.columns, kMostRowBytes);
  }
  if (reads_ids(p.operation) && (p.experts < 1 || p.experts > kMostGroups)) {
    out.add("experts is {}; it must be from 1 to {}, the most groups of a grouped product", p.experts, kMostGroups);
  }
  if (p.operation == MoeOperation::combine_backward && !p.has_weights) {
    out.add("has_weights is false; without weights, the gradient of the rows is gather's result");
  }
  if (p.scaled && p.operation != MoeOperation::permute && p.operation != MoeOperation::gather)
    out.add("scaled is true; scaled rows are for permute and gather");
  if (p.scaled && saturating_product(p.tokens, scales_of(p)) > kMostScaledGroups) {
    out.add("tokens and columns are {} and {}; that is more than {} groups of 128. Split the tokens", p.tokens,
            p.columns, kMostScaledGroups);
  }
  if (p.has_weights && p.operation < MoeOperation::combine)
    out.add("has_weights is true; weights are for combine and combine_backward");
}

}  // namespace

std::vector<std::string> validate(const MoeProblem& p) {
  Messages out;
  const bool tokens = check_size("tokens", p.tokens, out);
  const bool columns = check_size("columns", p.columns, out);
  if (tokens && columns) check_counts(p, out);
  if (tokens && columns && out.empty()) {
    const bool combines = p.operation == MoeOperation::combine;
    const bool scatters = p.operation == MoeOperation::permute || p.operation == MoeOperation::gather;
    check_rows("token", tokens_of(p), combines, out);
    check_rows("row", rows_of(p), scatters, out);
    check_rows("row_grad", rows_grad_of(p), true, out);
  }
  check_types(p, out);
  check_device(p.device, out);
  return out;
}

void check_arguments(const MoeProblem& p, const MoeArguments& arguments) {
  const bool combines = p.operation == MoeOperation::combine;
  const bool backward = p.operation == MoeOperation::combine_backward;
  const bool reads = reads_ids(p.operation);
  const int64_t slots = slots_of(p);
  const NamedOperand operands[] = {
      {"offsets", integers_of(reads ? p.experts : 0, false), arguments.offsets, true},
      {"indices", integers_of(has_indices(p.operation) ? slots : 0, false), arguments.indices, reads},
      {"tokens", tokens_of(p), arguments.tokens, combines},
      {"rows", rows_of(p), arguments.rows, !combines && !backward},
      {"rows_grad", rows_grad_of(p), arguments.rows_grad, true},
      {"row_scales", vector_of(DType::f32, p.scaled ? slots * scales_of(p) : 0), arguments.row_scales, true},
      {"weights_grad", vector_of(p.weights_dtype, backward ? slots : 0), arguments.weights_grad, true},
      {"ids", integers_of(reads ? slots : 0, p.wide_ids), arguments.ids, false, p.wide_ids},
      {"weights", vector_of(p.weights_dtype, p.has_weights ? slots : 0), arguments.weights, false},
  };
  check_operands(operands);
}

}  // namespace cleave
