// What a product's matrices and their scales are, and where they lie.
#include <fmt/format.h>

#include "cleave/names.h"
#include "emit/parts.h"
#include "launch/product.h"

namespace cleave {

void describe_matrices(const GemmProblem& p, const Layouts& layouts, Vocabulary& v) {
  GemmProblem several = p;
  several.batch = 2;
  const char* const batch = p.groups.dimension == Grouping::none ? "batch" : "groups";
  const auto matrix = [&](const std::string& name, DType type, bool by_row, int64_t entries, const char* rows,
                          const char* columns) {
    v.words[name + "_dtype"] = to_string(type);
    v.words[name + "_layout"] = by_row ? "row" : "column";
    v.flags[name + "_batched"] = entries > 1;
    v.words[name + "_shape"] =
        entries > 1 ? fmt::format("[{}, {}, {}]", batch, rows, columns) : fmt::format("[{}, {}]", rows, columns);
  };
  const char* const columns = is_gated(p) ? "2n" : "n";
  matrix("a", p.a.dtype, layouts.a_row, entries_of_a(several), "m", "k");
  matrix("b", p.b.dtype, layouts.b_row, entries_of_b(several), "k", columns);
  matrix("c", p.has_c ? p.c.dtype : p.d.dtype, layouts.d_row, entries_of_d(several), "m", "n");
  matrix("d", p.d.dtype, layouts.d_row, entries_of_d(several), "m", "n");
}

void describe_weight(const GemmProblem& p, Vocabulary& v) {
  const WeightLayout& weights = p.weights_b;
  const bool packed = weights.format != WeightFormat::none, whole_rows = weights.group == p.k;
  v.flags["packed"] = packed;
  v.flags["packed_zeros"] = weights.has_zero;
  v.flags["packed_global"] = weights.format == WeightFormat::nvfp4;
  v.words["weights"] = to_string(weights.format);
  v.words["b_columns"] = is_gated(p) ? "2n" : "n";
  v.words["group_size"] = whole_rows ? "0" : std::to_string(weights.group);
  v.words["weight_groups"] = whole_rows ? "1" : fmt::format("k / {}", weights.group);
  v.words["weight_text"] =
      fmt::format("{} codes, a scale for {}", v.words["weights"],
                  whole_rows ? std::string("each column") : fmt::format("{} neighbours of a column", weights.group));
  const DType scale = weight_scale_type(weights.format, p.b.dtype);
  v.words["weight_scale_dtype"] = scale == DType::i8 ? "uint8" : to_string(scale);
}

void describe_scales(const GemmProblem& p, Vocabulary& v) {
  const Scaling kind = p.scale_a.kind;
  const auto scales = [&](const std::string& name, const ScaleLayout& layout, bool several) {
    // Where both are 1, or unused, either reading will do.
    const bool by_k = layout.stride_k == 1 && layout.stride_row != 1;
    v.words["scale_rows_" + name.substr(6)] = std::to_string(layout.rows);
    v.words[name + "_stride"] = layout.stride_row == 0 ? "0" : "1";
    v.words[name + "_major"] = by_k ? "k" : name == "scale_a" ? "rows" : "columns";
    v.flags[name + "_batched"] = several;
  };
  // Groups that share their scales have one entry, whatever their number.
  GemmProblem two = p;
  two.batch = 2;
  scales("scale_a", p.scale_a, entries_of_scale_a(two, kind) > 1);
  v.flags["scaled_b"] = scaled_operands(p) > 1;
  scales("scale_b", p.scale_b, v.flags["scaled_b"] && entries_of_scale_b(two, kind) > 1);
  v.words["scaling"] = to_string(kind);
  v.flags["scaled_vector"] = kind == Scaling::vector;
  v.flags["scaled_block"] = kind == Scaling::block;
}

}  // namespace cleave
