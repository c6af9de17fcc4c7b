// What an operator takes, once: its schema, its Python signature and the words about each argument.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/refuse.h"
#include "cleave/core/reduction.h"
#include "cleave/names.h"
#include "cleave/schedule/groups.h"
#include "emit/parts.h"
#include "launch/function_operands.h"
#include "launch/product.h"

namespace cleave {
namespace {

struct Argument {
  std::string name;
  const char* type = "Tensor";  // in the schema
  std::string by_default = {};  // in the schema
  std::string about = {};       // with @words@; none for what needs no words
};

struct Signature {
  std::vector<Argument> positional, by_keyword;
};

void add_epilogue(const GemmProblem& p, const char* bias_of, const std::string& c, Signature& s) {
  if (p.bias != Bias::none)
    s.positional.push_back({.name = "bias", .about = fmt::format("@bias_dtype@, one value for each {}.", bias_of)});
  if (p.has_c) s.positional.push_back({.name = "c", .about = c});
  if (p.has_c) s.by_keyword.push_back({"beta", "float", "1.0"});
}

Signature signature_of_conv(const GemmProblem& p) {
  Signature s;
  const Conv kind = p.conv.kind;
  if (kind == Conv::dgrad)
    s.positional.push_back(
        {"input_size", "SymInt[]", "", "(images, @x_channels@, @pixels_of_x@), the shape of the result."});
  else
    s.positional.push_back({.name = "input", .about = "@x_dtype@ (images, @x_channels@, @pixels_of_x@)."});
  if (kind != Conv::wgrad)
    s.positional.push_back({.name = "weight", .about = "@w_dtype@ (@w_filters@, @w_channels@, @filter_size@)."});
  if (kind != Conv::fprop)
    s.positional.push_back({.name = "grad_output", .about = "@y_dtype@ (images, @y_channels@, @pixels_of_y@)."});
  if (p.scale_a.kind != Scaling::none) {
    s.positional.push_back({.name = "scale_a", .about = "float32, one value, by which input is multiplied."});
    s.positional.push_back({.name = "scale_b", .about = "float32, one value, or one for each filter."});
  }
  add_epilogue(p, "channel of the result", "@c_dtype@ of the result's shape; may be `out`, of the same type.", s);
  if (p.has_scale_d)
    s.positional.push_back({.name = "scale_d", .about = "float32, one value, by which the result is divided."});
  return s;
}

void add_bounds(const GroupLayout& groups, Signature& s) {
  const auto add = [&](const char* name, const char* shape, const char* about) {
    s.positional.push_back({.name = name, .about = fmt::format("@index_dtype@ [{}], on the GPU: {}.", shape, about)});
  };
  switch (groups.bounds) {
    case GroupBounds::ends:
      return add("offs", "groups", "where each group ends and the next one begins");
    case GroupBounds::aligned_ends:
      return add("offs", "groups", "where groups end; they begin at multiples of alignment");
    case GroupBounds::indptr:
      return add("indptr", "groups + 1", "where groups begin, and the last one ends");
    case GroupBounds::starts:
      add("starts", "groups", "where each group begins");
      return add("sizes", "groups", "the size of each group");
    case GroupBounds::counts:
      return add("counts", "groups", "the size of each group");
  }
}

/// A packed weight, and what lies beside its codes.
void add_weight(const GemmProblem& p, Signature& s) {
  const char* const lead = p.groups.dimension == Grouping::none ? "" : "groups, ";
  const auto add = [&](const char* name, const std::string& about) {
    s.positional.push_back({.name = name, .about = about});
  };
  add("packed",
      fmt::format("uint8 [{}ceil(@b_columns@ / 64), ceil(k / 64), 2048], @weights@ codes in Cleave's order{}.", lead,
                  is_gated(p) ? ", gated=True" : ""));
  add("scales", fmt::format("@weight_scale_dtype@ [{}@weight_groups@, @b_columns@].", lead));
  if (p.weights_b.has_zero) add("zeros", "uint8, 0 to 15, as scales.");
  if (p.weights_b.format == WeightFormat::nvfp4)
    add("global_scale", fmt::format("float32, one value{}, or [{}@b_columns@].", *lead ? " for each group" : "", lead));
}

/// Room for `rows` rows in each group, of which some are there.
bool is_masked(const GemmProblem& p) {
  return p.groups.dimension == Grouping::m && p.groups.bounds == GroupBounds::counts;
}

/// Scales of blocks.
std::string blocks_of(const GemmProblem& p, bool is_a) {
  const Grouping cut = p.groups.dimension;
  const bool masked = is_masked(p);
  const bool is_grouped = cut == (is_a ? Grouping::n : Grouping::m);
  const uint32_t rows = (is_a ? p.scale_a : p.scale_b).rows;
  const std::string size = !is_a ? "@b_columns@" : masked ? "groups * rows" : "m";
  const std::string lines = rows == 1 ? size : fmt::format("ceil({} / {})", size, rows), depth = "ceil(k / 128)";
  const std::string first = is_a ? lines : depth, second = is_a ? depth : lines;
  const std::string block = is_a ? fmt::format("{} x 128 of a", rows) : fmt::format("128 x {} of b", rows);
  return fmt::format("float32 [{}{}, {}], one value for each block of {}.", is_grouped ? "groups, " : "", first, second,
                     block);
}

Signature signature_of_product(const GemmProblem& p) {
  Signature s;
  const bool grouped = p.groups.dimension != Grouping::none;
  const bool masked = is_masked(p);
  const bool gated = is_gated(p);
  const auto matrix = [&](const char* name, const std::string& shape) {
    s.positional.push_back({.name = name, .about = fmt::format("@{0}_dtype@ {1}, @{0}_layout@-major.", name, shape)});
  };
  matrix("a", masked    ? "[groups, rows, k], room for `rows` rows in each group"
              : grouped ? "@a_shape@"
                        : "[m, k] or [batch, m, k]");
  if (p.weights_b.format != WeightFormat::none)
    add_weight(p, s);
  else
    matrix("b", gated ? "with 2n columns, the gates first" : grouped ? "@b_shape@" : "[k, n] or [batch, k, n]");
  const char* const values[] = {"one value for each row of a, or one", "one value for each column of b, or one"};
  for (int i = 0; i < scaled_operands(p); ++i) {
    s.positional.push_back(
        {.name = i == 0 ? "scale_a" : "scale_b",
         .about = p.scale_a.kind == Scaling::block ? blocks_of(p, i == 0) : fmt::format("float32, {}.", values[i])});
  }
  if (grouped) add_bounds(p.groups, s);
  add_epilogue(p, p.bias == Bias::row ? "column of b" : "row of a",
               "@c_dtype@ of D's shape, @d_layout@-major; may be `out`, of the same type.", s);
  if (p.has_scale_d) s.positional.push_back({.name = "scale_d", .about = "float32, one value, by which D is divided."});
  if (p.has_zero) {
    s.positional.push_back(
        {.name = "azp_adj", .about = "int32, the sums of b's columns; azp times them is taken off the sums."});
    s.positional.push_back({"azp", "Tensor?", "None", "int32, the zero points of a's rows. Default: 1."});
  }
  if (grouped && is_spaced(p.groups.bounds) && !masked) s.by_keyword.push_back({"alignment", "int", "@spacing@"});
  return s;
}

void add_function(const GemmProblem& p, Signature& s) {
  const auto& inputs = p.epilogue.function->inputs();
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    const bool number = is_number(p.epilogue.inputs[i]);
    s.positional.push_back({.name = inputs[i].name, .type = number ? "float" : "Tensor", .about = about_input(p, i)});
  }
}

/// An epilogue function's inputs are arguments by the names that it has for them.
void check_names(const GemmProblem& p, const Signature& s) {
  std::set<std::string> names = {"out", "amax"};
  const size_t outputs = p.epilogue.function == nullptr ? 1 : p.epilogue.function->outputs().size();
  for (size_t i = 1; i < outputs; ++i) names.insert("out_" + p.epilogue.function->outputs()[i].name);
  const auto add = [&](const Argument& x) {
    if (names.insert(x.name).second) return;
    refuse(ErrorCode::unsupported,
           "the epilogue function has an input \"{0}\", which is the name of another argument of the operator; rename "
           "it, \"my_{0}\"",
           x.name);
  };
  std::ranges::for_each(s.by_keyword, add);
  std::ranges::for_each(s.positional, add);
}

/// Lines of at most 120 columns; what goes on begins `indent` further in.
std::string wrapped(const std::string& text, size_t indent) {
  constexpr size_t kWidth = 120;
  std::string result, line;
  for (size_t begin = 0; begin <= text.size(); begin += line.size() + 1) {
    line = text.substr(begin, text.find('\n', begin) - begin);
    const std::string margin(line.find_first_not_of(' ') + indent, ' ');
    std::string rest = line;
    while (rest.size() > kWidth) {
      const size_t end = rest.rfind(' ', kWidth);
      if (end == rest.npos || end < margin.size()) break;  // a word that is too long
      result += rest.substr(0, end) + "\n";
      rest = margin + rest.substr(end + 1);
    }
    result += rest + (begin + line.size() < text.size() ? "\n" : "");
  }
  return result;
}

/// The shape of the result, or of what the epilogue function reduces it to; with @words@.
std::string shape_of_result(const GemmProblem& p, InputShape shape) {
  const Grouping cut = p.groups.dimension;
  if (p.conv.kind != Conv::none) {
    const bool filters = p.conv.kind == Conv::wgrad;
    switch (shape) {
      case InputShape::scalar:
        return "()";
      case InputShape::row:
        return filters ? "(1, @w_channels@, @filter_size@)" : "(@result_channels@,)";
      case InputShape::column:
        return filters ? "(@w_filters@,)" : "(images, 1, @result_pixels@)";
      case InputShape::matrix:
        return filters ? "(@w_filters@, @w_channels@, @filter_size@)" : "(images, @result_channels@, @result_pixels@)";
    }
  }
  const bool masked = is_masked(p);
  const bool rows = shape == InputShape::column || shape == InputShape::matrix;
  const bool columns = shape == InputShape::row || shape == InputShape::matrix;
  const std::string entry = fmt::format("{}, {}", rows ? masked ? "rows" : "m" : "1", columns ? "n" : "1");
  if (masked || cut == Grouping::k) return fmt::format("[groups, {}]", entry);
  const std::string own = rows && columns ? "m, n" : rows ? "m" : columns ? "n" : "";
  if (cut == Grouping::none) return fmt::format("[{}] or [batch, {}]", own, entry);
  if (shape == InputShape::matrix || !is_over_groups(cut, shape)) return fmt::format("[{}]", own);
  return own.empty() ? "[groups]" : fmt::format("[groups, {}]", own);
}

/// What the operator makes: D, the function's outputs beside it, the largest magnitude.
void describe_results(const GemmProblem& p, Vocabulary& v) {
  std::vector<std::string> names = {"out"}, variables = {"result"}, tensors = {"Tensor"};
  std::string about =
      fmt::format("        {}: @d_dtype@ {}", v.words["result"], shape_of_result(p, InputShape::matrix));
  const auto add = [&](const std::string& name, const std::string& argument, const std::string& text) {
    names.push_back(argument);
    about += fmt::format(".\n        {}: {}", name, text);
    variables.push_back(name);
    tensors.emplace_back("Tensor");
  };
  const size_t outputs = p.epilogue.function == nullptr ? 1 : p.epilogue.function->outputs().size();
  for (size_t i = 1; i < outputs; ++i) {
    const std::string& name = p.epilogue.function->outputs()[i].name;
    const EpilogueLayout& layout = p.epilogue.outputs[i - 1];
    std::string text = fmt::format("{} {}", to_string(layout.dtype), shape_of_result(p, layout.shape));
    if (layout.shape != InputShape::matrix) text += ", " + meaning_of_output(p, uint32_t(i - 1));
    add(name, "out_" + name, text);
  }
  const std::vector<std::string> outs = names;
  if (p.has_amax) add("amax", "amax", "float32 [1], the largest |@result@|");
  std::string schema;
  for (size_t i = 0; i < names.size(); ++i)
    schema += fmt::format("{}    \"Tensor({}!) {}", i == 0 ? "" : ", \"\n", char('a' + i), names[i]);
  v.flags["several_results"] = names.size() > 1;
  v.words["out_schema"] = schema + "\"";
  v.words["out_names"] = fmt::format("\"{}\"", fmt::join(outs, "\", \""));
  v.words["results_schema"] = names.size() > 1 ? fmt::format("({})", fmt::join(tensors, ", ")) : std::string("Tensor");
  v.words["results_about"] = wrapped(expand(about + ".", v), 4);
  v.words["result_names"] = fmt::format("{}", fmt::join(variables, ", "));
  if (p.has_amax) variables.pop_back();
  const char* const amax = p.has_amax ? ", amax=amax" : "";
  v.words["result_options"] = variables.size() > 1 ? fmt::format("out=({}){}", fmt::join(variables, ", "), amax)
                                                   : fmt::format("out=result{}", amax);
}

std::string in_python(const Argument& x) {
  const std::string_view type = x.type;
  std::string text = x.name + ": ";
  if (type == "Tensor") text += "Tensor";
  if (type == "Tensor?") text += "Tensor | None";
  if (type == "SymInt[]") text += "Sequence[int]";
  if (type == "float" || type == "int") text += type;
  return x.by_default.empty() ? text : text + " = " + x.by_default;
}

std::string in_schema(const Argument& x) {
  const std::string text = fmt::format("{} {}", x.type, x.name);
  return x.by_default.empty() ? text : text + "=" + x.by_default;
}

/// What `part` says of each, between `before` and `after`.
template <class Part>
std::string each(const std::vector<Argument>& arguments, const char* before, const char* after, const Part& part) {
  std::string text;
  for (const Argument& x : arguments) text += before + part(x) + after;
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

void describe_signature(const GemmProblem& p, Vocabulary& v) {
  Signature s = p.conv.kind != Conv::none ? signature_of_conv(p) : signature_of_product(p);
  if (p.epilogue.function != nullptr) add_function(p, s);
  s.by_keyword.push_back({"alpha", "float", "1.0"});
  check_names(p, s);
  const auto name = [](const Argument& x) { return x.name; };
  const auto set = [&](const char* word, const std::string& text) { v.words[word] = expand(text, v); };
  set("schema", each(s.positional, "    \"", ", \"\n", in_schema) + "\n    \"*, \"\n" +
                    each(s.by_keyword, "    \"", ", \"\n", in_schema));
  v.words["schema"].resize(v.words["schema"].size() - 3);  // no comma after the last one
  set("parameters",
      each(s.positional, "    ", ",\n", in_python) + "\n    *,\n" + each(s.by_keyword, "    ", ",\n", in_python));
  set("arguments", each(s.positional, "        ", ",\n", name));
  set("options",
      each(s.by_keyword, "        ", ",\n", [](const Argument& x) { return fmt::format("\"{0}\": {0}", x.name); }));
  set("about", each(s.positional, "        ", "\n", [](const Argument& x) { return x.name + ": " + x.about; }));
  v.words["about"] = wrapped(v.words["about"], 4);
  describe_results(p, v);
  set("argument_names", each(s.positional, "    \"", "\",\n", name));
}

}  // namespace cleave
