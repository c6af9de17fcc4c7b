// What an operation's matrices and their scales are, and where they lie.
#include <fmt/format.h>

#include "cleave/names.h"
#include "emit/parts.h"
#include "problem/placement.h"

namespace cleave {
void describe_matrices(const GemmProblem& p, const Layouts& layouts, Vocabulary& v) {
  const bool swiglu = p.activation == Activation::swiglu;
  const Grouping grouped = p.groups.dimension;
  const std::string batch = grouped == Grouping::none ? "batch" : "groups";
  const std::string columns = swiglu ? "2 * x.n" : "x.n";
  const auto matrix = [&](const std::string& name, DType type, bool by_row, bool batched,
                          const std::string& rows, const std::string& cols) {
    const std::string across = by_row ? cols : rows;
    v.words[name + "_dtype"] = to_string(type);
    v.words[name + "_enum"] = enumerator(type);
    v.words[name + "_layout"] = by_row ? "row" : "column";
    v.words[name + "_across"] = across;
    v.words[name + "_across_name"] = across.substr(across.find('.') + 1);
    v.words[name + "_lines"] = by_row ? rows : cols;
    v.words[name + "_entries"] = batched ? "x." + batch : "1";
    v.words[name + "_batch_stride"] = batched ? "x.batch_stride_" + name : "0";
    v.flags[name + "_row"] = by_row;
    v.flags[name + "_batched"] = batched;
    const auto plain = [](std::string text) {
      if (const size_t at = text.find(" * x."); at != text.npos) return "2" + text.substr(at + 5);
      return text.substr(2);
    };
    v.words[name + "_shape"] =
        fmt::format("[{}{}, {}]", batched ? batch + ", " : "", plain(rows), plain(cols));
  };
  const bool free = grouped == Grouping::none;
  const bool d_batched = free || grouped == Grouping::k;
  matrix("a", p.a.dtype, layouts.a_row, free || grouped == Grouping::n, "x.m", "x.k");
  matrix("b", p.b.dtype, layouts.b_row, free || grouped == Grouping::m, "x.k", columns);
  matrix("c", p.has_c ? p.c.dtype : p.d.dtype, layouts.d_row, d_batched, "x.m", "x.n");
  matrix("d", p.d.dtype, layouts.d_row, d_batched, "x.m", "x.n");
  v.words["batch"] = batch;
}

void describe_scales(const GemmProblem& p, Vocabulary& v) {
  const Scaling kind = p.scale_a.kind;
  const auto scales = [&](const std::string& name, const ScaleLayout& layout, bool several) {
    // Where both are 1, or unused, either reading will do.
    const bool by_k = layout.stride_k == 1 && layout.stride_row != 1;
    v.words["scale_rows_" + name.substr(6)] = std::to_string(layout.rows);
    v.words[name + "_stride"] = layout.stride_row == 0 ? "0" : "1";
    v.words[name + "_major"] = by_k ? "k" : name == "scale_a" ? "rows" : "columns";
    v.flags[name + "_by_k"] = by_k;
    v.flags[name + "_batched"] = several;
  };
  // Groups that share their scales have one entry, whatever their number.
  GemmProblem two = p;
  two.batch = 2;
  scales("scale_a", p.scale_a, entries_of_scale_a(two, kind) > 1);
  scales("scale_b", p.scale_b, entries_of_scale_b(two, kind) > 1);
  v.words["scaling"] = to_string(kind);
  v.flags["scaled"] = kind != Scaling::none;
  v.flags["scaled_vector"] = kind == Scaling::vector;
  v.flags["scaled_block"] = kind == Scaling::block;
  v.flags["batched_scales"] = v.flags["scale_a_batched"] || v.flags["scale_b_batched"];
}

}  // namespace cleave
