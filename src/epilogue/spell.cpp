#include "epilogue/spell.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/enumerators.h"

namespace cleave {
namespace {

/// A float32 of this very value.
std::string literal(float value) {
  if (std::isnan(value)) return "cleave::bits_float(0x7fc00000u)";
  if (std::isinf(value)) return fmt::format("cleave::bits_float(0x{}f800000u)", value < 0 ? "f" : "7");
  const std::string digits = fmt::format("{}", value);  // as few as say this float
  return digits + (digits.find_first_of(".e") == digits.npos ? ".0f" : "f");
}

}  // namespace

std::string function_lines(const EpilogueFunction& function) {
  using Kind = EpilogueNode::Kind;
  std::string text = "    using cleave::apply;\n    using enum cleave::Elementwise;\n";
  std::vector<std::string> names;
  for (const EpilogueNode& node : function.nodes()) {
    if (node.kind == Kind::sum || node.kind == Kind::gate) {
      names.emplace_back("acc");
    } else if (node.kind == Kind::up) {
      names.emplace_back("up");
    } else if (node.kind == Kind::input) {
      names.push_back(fmt::format("in[{}]", node.operands[0]));
    } else if (node.kind == Kind::constant) {
      names.push_back(literal(node.constant));
    } else {
      std::string name = fmt::format("v{}", names.size());
      text += fmt::format("    const float {} = apply({}", name, enumerator_name(node.operation));
      for (uint32_t i = 0; i < arity(node.operation); ++i) text += ", " + names[node.operands[i]];
      text += ");\n";
      names.push_back(std::move(name));
    }
  }
  for (size_t i = 0; i < function.outputs().size(); ++i)
    text += fmt::format("    out[{}] = {};\n", i, names[function.outputs()[i].node]);
  return text;
}

std::string function_definition(const EpilogueFunction& function) {
  using Kind = EpilogueNode::Kind;
  const auto parameter = [&](Kind kind, const char* text) {
    const bool used =
        std::ranges::any_of(function.nodes(), [&](const EpilogueNode& node) { return node.kind == kind; });
    return fmt::format("{}{}, ", used ? "" : "[[maybe_unused]] ", text);
  };
  const bool is_gated = function.gates() != Gates::none;
  std::string text = "  static CLEAVE_HD void run(" + parameter(is_gated ? Kind::gate : Kind::sum, "float acc");
  if (is_gated) text += parameter(Kind::up, "float up");
  text += parameter(Kind::input, "const auto& in");
  return text + fmt::format("float (&out)[{}]) {{\n{}  }}", function.outputs().size(), function_lines(function));
}

std::string function_body(const EpilogueFunction& function) {
  return "\ntemplate <>\nstruct cleave::FunctionBody<config> {\n" + function_definition(function) + "\n};\n";
}

}  // namespace cleave
