#include "operands/moe_operands.h"

#include "base/refuse.h"
#include "cleave/core/saturate.h"
#include "cleave/names.h"
#include "operands/packed.h"

namespace cleave {
namespace {

class Builder {
 public:
  Builder(const MoeTensors& tensors, const MoeOptions& options, MoeCall& call)
      : t_(tensors), p_(call.problem), arguments_(call.arguments) {
    p_.operation = options.operation;
    if (options.experts) place_experts(*options.experts);
    const Operand& leader = t_.tokens ? *t_.tokens : t_.rows ? *t_.rows : *t_.ids;
    leader_ = t_.tokens ? "x" : t_.rows ? "y" : "expert_ids";
    p_.device = leader.device;
    if (t_.weights) place_weights();
    if (options.top_k) place_top_k(*options.top_k);
    if (options.out_dtype) place_out_dtype(*options.out_dtype);
  }

  /// The ids have any shape by themselves, and a row for each token beside tokens.
  void place_ids() {
    const Operand& ids = *t_.ids;
    check_rank(ids, "expert_ids", t_.tokens ? 1 : 0, t_.tokens ? 2 : Operand::kMaxRank);
    check_integers(ids, "expert_ids", p_.device, leader_);
    if (t_.tokens && ids.shape[0] != t_.tokens->rows()) {
      refuse_value("expert_ids is {} and x is {}; both must have a row for each token", shape_text(ids),
                   shape_text(*t_.tokens));
    }
    const int64_t slots = packed_count(ids, "expert_ids");
    p_.wide_ids = ids.int64;
    p_.top_k = ids.ndim == 2 ? ids.columns() : 1;
    p_.tokens = ids.ndim == 2 ? ids.rows() : slots;
    arguments_.ids = ids.data;
  }

  void place_tokens() {
    p_.token = rows_of(*t_.tokens, "x", kAnyType);
    p_.tokens = t_.tokens->rows();
    p_.columns = t_.tokens->columns();
    arguments_.tokens = t_.tokens->data;
  }

  void place_rows() {
    p_.row = rows_of(*t_.rows, "y", kFloatTypes);
    p_.columns = t_.rows->columns();
    arguments_.rows = t_.rows->data;
    if (t_.tokens && t_.tokens->columns() != p_.columns) {
      refuse_value("y is {} and x is {}; they must have as many columns", shape_text(*t_.rows), shape_text(*t_.tokens));
    }
  }

  void place_indices() {
    const Operand& indices = *t_.indices;
    check_form(indices, "indices", {1, 1, kInt32}, p_.device, leader_);
    packed_count(indices, "indices");
    if (t_.rows && indices.shape[0] != t_.rows->rows()) {
      refuse_value("indices is {} and y is {}; they must have as many rows", shape_text(indices), shape_text(*t_.rows));
    }
    arguments_.indices = static_cast<int32_t*>(indices.data);
  }

  /// Finds of tokens and top_k what only the number of slots says.
  void find_tokens() {
    const int64_t slots = t_.indices->shape[0];
    if (t_.tokens && !p_.has_weights) {
      p_.top_k = p_.tokens == 0 ? 1 : slots / p_.tokens;
    } else if (!p_.has_weights) {
      if (p_.top_k < 1) refuse_value("top_k is {}; it must be at least 1", p_.top_k);
      p_.tokens = slots / p_.top_k;
    }
    if (saturating_product(p_.tokens, p_.top_k) == slots) return;
    if (p_.has_weights) {
      refuse_value("weights is {} and indices is {}; there must be a weight for each index", shape_text(*t_.weights),
                   shape_text(*t_.indices));
    }
    if (t_.tokens) {
      refuse_value("indices is {} and x is {}; there must be as many indices for each token", shape_text(*t_.indices),
                   shape_text(*t_.tokens));
    }
    refuse_value("indices is {} and top_k is {}; the former must be a multiple of the latter", shape_text(*t_.indices),
                 p_.top_k);
  }

  void pack() {
    const MatrixLayout packed = packed_layout((t_.tokens ? p_.token : p_.row).dtype, 1, 0, p_.columns);
    if (!t_.tokens) p_.token = packed;
    if (!t_.rows) p_.row = p_.scaled ? packed_layout(out_dtype_, 1, 0, p_.columns) : packed;
    p_.row_grad = packed;
  }

 private:
  void place_weights() {
    const Operand& weights = *t_.weights;
    check_form(weights, "weights", {2, 2, kFloatTypes}, p_.device, leader_);
    packed_count(weights, "weights");
    p_.has_weights = true;
    p_.weights_dtype = weights.dtype;
    p_.tokens = weights.rows();
    p_.top_k = weights.columns();
    arguments_.weights = weights.data;
  }

  void place_out_dtype(DType dtype) {
    if (size_of(dtype) != 1)
      refuse_value("out_dtype is {}; it must be int8, float8_e4m3fn or float8_e5m2, or None for copies of x's rows",
                   to_string(dtype));
    p_.scaled = true;
    out_dtype_ = dtype;
  }

  void place_experts(int64_t experts) {
    if (experts < 1 || experts > kMostGroups) {
      refuse_value("num_experts is {}; it must be from 1 to {}, the most groups of a grouped product", experts,
                   kMostGroups);
    }
    p_.experts = experts;
  }

  void place_top_k(int64_t top_k) {
    if (p_.has_weights && p_.top_k != top_k) {
      refuse_value("top_k is {}, but weights is {}; leave top_k out, or let them agree", top_k,
                   shape_text(*t_.weights));
    }
    p_.top_k = top_k;
  }

  /// A matrix whose rows are contiguous.
  MatrixLayout rows_of(const Operand& x, const char* name, std::span<const DType> types) const {
    check_form(x, name, {2, 2, types}, p_.device, leader_);
    return row_major(x, name);
  }

  const MoeTensors& t_;
  MoeProblem& p_;
  MoeArguments& arguments_;
  const char* leader_;
  DType out_dtype_ = DType::i8;  // of scaled rows
};

}  // namespace

MoeCall make_call(const MoeTensors& tensors, const MoeOptions& options) {
  MoeCall call;
  Builder builder(tensors, options, call);
  if (tensors.tokens) builder.place_tokens();
  if (tensors.rows) builder.place_rows();
  if (tensors.ids) builder.place_ids();
  if (tensors.indices) {
    builder.place_indices();
    builder.find_tokens();
  }
  if (tensors.tokens || tensors.rows) builder.pack();
  return call;
}

}  // namespace cleave
