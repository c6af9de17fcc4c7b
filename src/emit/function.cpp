// What an operation's epilogue function takes and makes, in the words that templates use.
#include <fmt/format.h>

#include "base/enumerators.h"
#include "cleave/core/reduction.h"
#include "cleave/names.h"
#include "emit/name.h"
#include "emit/parts.h"
#include "epilogue/spell.h"
#include "launch/function_operands.h"
#include "problem/problem.h"

namespace cleave {
namespace {

using Input = EpilogueFunction::Input;

/// What there is of an input.
const char* meaning(Conv kind, InputShape shape) {
  const bool images = kind == Conv::fprop || kind == Conv::dgrad;
  switch (shape) {
    case InputShape::scalar:
      return "one value";
    case InputShape::row:
      return images                ? "one value for each channel of the result"
             : kind == Conv::wgrad ? "one value for each tap and channel"
                                   : "one value for each column of D";
    case InputShape::column:
      return images                ? "one value for each pixel of the result"
             : kind == Conv::wgrad ? "one value for each filter"
                                   : "one value for each row of D";
    case InputShape::matrix:
      break;
  }
  return kind == Conv::none ? "one value for each element of D" : "one value for each element of the result";
}

/// The same as tensors have it; with @words@.
std::string tensor(const GemmProblem& p, uint32_t input) {
  const EpilogueLayout& layout = p.epilogue.inputs[input];
  const Conv kind = p.conv.kind;
  switch (layout.shape) {
    case InputShape::scalar:
      return "one value";
    case InputShape::row:
      return kind == Conv::wgrad  ? "(1, @w_channels@, @filter_size@), one value for each tap and channel"
             : kind != Conv::none ? "one value for each channel of the result"
                                  : "one value for each column of D";
    case InputShape::column:
      return kind == Conv::wgrad  ? "one value for each filter"
             : kind != Conv::none ? "(images, 1, @result_pixels@), one value for each pixel of the result"
                                  : "one value for each row of D";
    case InputShape::matrix:
      break;
  }
  if (kind != Conv::none) return "of the result's shape and order";
  return layout.order == Order::row ? "of D's shape, row-major" : "of D's shape, column-major";
}

std::string type_of(const GemmProblem& p, const EpilogueLayout& layout) {
  std::string text(to_string(layout.dtype));
  if (layout.shape == InputShape::matrix && p.conv.kind == Conv::none)
    text += layout.order == Order::row ? ", row-major" : ", column-major";
  return text;
}

/// Lines without the end of the last one.
std::string lines(std::string text) {
  if (!text.empty()) text.pop_back();
  return text;
}

std::string with_margin(std::string_view margin, std::string_view text) {
  std::string result(margin);
  for (const char c : text) {
    result += c;
    if (c == '\n') result += margin;
  }
  return result;
}

void describe_inputs(const GemmProblem& p, Vocabulary& v) {
  std::string names, members, table, types, visits;
  for (uint32_t i = 0; i < p.epilogue.function->inputs().size(); ++i) {
    const auto& [name, shape] = p.epilogue.function->inputs()[i];
    check_operand_name(name, "input");
    std::string kind(enumerator_name(shape));
    v.flags["function_" + kind] = true;
    kind[0] = char(std::toupper(kind[0]));
    const std::string type = type_of(p, p.epilogue.inputs[i]);
    names += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", name);
    members += fmt::format("    /// {}: {}.\n    {}Input {};\n", type, meaning(p.conv.kind, shape), kind, name);
    table += fmt::format("| {} | {} | {} |\n", name, meaning(p.conv.kind, shape), type);
    const bool number = is_number(p.epilogue.inputs[i]);
    const std::string torch_type = fmt::format("torch.{}", to_string(p.epilogue.inputs[i].dtype));
    types += fmt::format("    \"{}\": {},\n", name, number ? "None" : torch_type);
    visits += fmt::format("  visit({}, x.inputs.{});\n", i, name);
  }
  v.words["function_input_types"] = types.empty() ? "{}" : "{\n" + types + "}";
  v.words["function_visit_inputs"] = lines(visits);
  v.words["function_input_names"] = names;
  v.words["function_inputs"] = lines(members);
  v.words["function_table"] = table;
}

void describe_outputs(const GemmProblem& p, Vocabulary& v) {
  const auto& outputs = p.epilogue.function->outputs();
  const bool is_conv = p.conv.kind != Conv::none;
  std::string names, members, table, types, results, visits;
  for (size_t i = 1; i < outputs.size(); ++i) {
    const EpilogueLayout& layout = p.epilogue.outputs[i - 1];
    const std::string& name = outputs[i].name;
    check_operand_name(name, "output");
    names += fmt::format("{}\"{}\"", i == 1 ? "" : ", ", name);
    const std::string what = meaning_of_output(p, uint32_t(i - 1));
    std::string kind;
    if (outputs[i].reduction != Reduction::none) kind = enumerator_name(layout.shape);
    v.flags["function_" + (kind.empty() ? "matrix" : kind) + "_output"] = true;
    if (!kind.empty()) kind[0] = char(std::toupper(kind[0]));
    members += fmt::format("    /// {}: {}.\n    {}Output {};\n", type_of(p, layout), what, kind, name);
    table += fmt::format("| {}, made | {} | {} |\n", name, what, type_of(p, layout));
    const bool has_order = !is_conv && layout.shape == InputShape::matrix;
    const std::string order = has_order ? fmt::format(", \"{}\"", enumerator_name(layout.order)) : "";
    types += fmt::format("    \"{}\": (torch.{}, \"{}\"{}),\n", name, to_string(layout.dtype),
                         enumerator_name(layout.shape), order);
    results += fmt::format(", {}", name);
    visits += fmt::format("  visit({}, x.outputs.{});\n", i - 1, name);
  }
  v.words["function_visit_outputs"] = lines(visits);
  v.words["function_output_names"] = names;
  v.words["function_outputs"] = lines(members);
  v.words["function_output_types"] = lines(types);
  v.words["function_results"] = results;
  v.words["function_table"] = lines(v.words["function_table"] + table);
}

}  // namespace

std::string about_input(const GemmProblem& p, uint32_t input) {
  const EpilogueLayout& layout = p.epilogue.inputs[input];
  if (is_number(layout)) return "a number.";
  return fmt::format("{}, {}.", to_string(layout.dtype), tensor(p, input));
}

std::string meaning_of_output(const GemmProblem& p, uint32_t output) {
  const InputShape shape = p.epilogue.outputs[output].shape;
  const std::string text = meaning(p.conv.kind, shape);
  return is_over_groups(p.groups.dimension, shape) ? text + ", of each group" : text;
}

std::string function_formula(const EpilogueFunction& function, const std::string& sum) {
  const Activation activation = function.activation();
  std::string text(activation == Activation::none ? "function" : to_string(activation));
  text += "(" + sum;
  for (const Input& input : function.inputs()) text += ", " + input.name;
  return text + ")";
}

void describe_function(const GemmProblem& p, Vocabulary& v) {
  const EpilogueFunction* const function = p.epilogue.function;
  const bool is_conv = p.conv.kind != Conv::none;
  v.flags["epilogue"] = function != nullptr;
  v.flags["function"] = function != nullptr && function->activation() == Activation::none;  // one of the user's
  v.flags["function_has_inputs"] = function != nullptr && !function->inputs().empty();
  v.flags["function_has_outputs"] = function != nullptr && function->outputs().size() > 1;
  v.flags["function_has_operands"] = v.flags["function_has_inputs"] || v.flags["function_has_outputs"];
  v.flags["reduces"] = reduces(p);
  for (const InputShape shape : values_of<InputShape>) {
    const std::string kind = "function_" + std::string(enumerator_name(shape));
    v.flags[kind] = v.flags[kind + "_output"] = false;
  }
  v.flags["function_rows_vary"] = !is_conv && p.groups.dimension != Grouping::n;
  v.flags["function_columns_vary"] = !is_conv && p.groups.dimension != Grouping::m;
  v.words["function_row_of"] = p.conv.kind == Conv::wgrad ? "tap and channel" : "channel of the result";
  v.words["function_column_of"] = p.conv.kind == Conv::wgrad ? "filter" : "pixel of the result";
  v.words["function_results"] = v.words["function_gradients"] = "";
  if (function == nullptr) return;
  if (v.flags["function"]) v.words["function_gradients"] = ", and the values of the function's derivative";
  describe_inputs(p, v);
  describe_outputs(p, v);
  v.words["function_text"] = lines(function->text());
  const std::string text = readable(*function);
  v.words["function_readable"] = with_margin("    ", text);
  v.words["function_comment"] = with_margin("//   ", text);
  v.words["function_doc"] = with_margin("///   ", text);
  v.words["function_definition"] = function_definition(*function);
}

void describe_backward(const std::string& text, Vocabulary& v) {
  v.flags["function_has_backward"] = !text.empty();
  if (text.empty()) return;
  v.words["function_backward"] = lines(epilogue_function(text).text());
  v.words["function_gradients"] = ", and the values of the backward that the function was given";
}

}  // namespace cleave
