// An epilogue function as one would write it.
#include <fmt/format.h>

#include <set>

#include "base/enumerators.h"
#include "emit/parts.h"
#include "epilogue/sums.h"

namespace cleave {
namespace {

using Kind = EpilogueNode::Kind;

/// The operators that Python and C++ have for an operation.
std::string_view operator_of(Elementwise operation) {
  switch (operation) {
    case Elementwise::add:
      return "+";
    case Elementwise::subtract:
      return "-";
    case Elementwise::multiply:
      return "*";
    case Elementwise::divide:
      return "/";
    case Elementwise::less:
      return "<";
    case Elementwise::less_equal:
      return "<=";
    case Elementwise::equal:
      return "==";
    case Elementwise::not_equal:
      return "!=";
    case Elementwise::logical_and:
      return "and";
    case Elementwise::logical_or:
      return "or";
    default:
      return {};
  }
}

/// What Python calls the lines that are reduced to a shape.
const char* reduced_over(InputShape shape) {
  return shape == InputShape::column ? "columns" : shape == InputShape::row ? "rows" : "all";
}

}  // namespace

std::string readable(const EpilogueFunction& function) {
  const auto& nodes = function.nodes();
  std::string text;
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (const auto& input : function.inputs()) taken.insert(input.name);
  // A value is called as the output that it is, or else has its number in function.h.
  const auto name_of = [&](size_t node) {
    for (const auto& output : function.outputs())
      if (output.node == node && output.reduction == Reduction::none && taken.insert(output.name).second)
        return output.name;
    std::string name = fmt::format("v{}", node);
    while (!taken.insert(name).second) name += "_";
    return name;
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    const EpilogueNode& node = nodes[i];
    switch (node.kind) {
      case Kind::sum:
      case Kind::gate:
      case Kind::up:
        names.emplace_back(name_of_sum(node.kind, function.gates()));
        break;
      case Kind::input:
        names.push_back(function.inputs()[node.operands[0]].name);
        break;
      case Kind::constant:
        names.push_back(fmt::format("{}", node.constant));
        break;
      case Kind::operation: {
        const auto operand = [&](int at) { return names[node.operands[at]]; };
        const std::string_view infix = operator_of(node.operation);
        std::string value = fmt::format("{} {} {}", operand(0), infix, operand(1));
        if (infix.empty()) {
          value = fmt::format("{}({}", enumerator_name(node.operation), operand(0));
          for (uint32_t k = 1; k < arity(node.operation); ++k) value += ", " + operand(int(k));
          value += ")";
        }
        names.push_back(name_of(i));
        text += fmt::format("{} = {}\n", names.back(), value);
        break;
      }
    }
  }
  for (const auto& output : function.outputs()) {
    if (output.reduction != Reduction::none)
      text += fmt::format("{} = {}({}, over=\"{}\")\n", output.name, enumerator_name(output.reduction),
                          names[output.node], reduced_over(output.shape));
    else if (names[output.node] != output.name)
      text += fmt::format("{} = {}\n", output.name, names[output.node]);
  }
  text.pop_back();
  return text;
}

}  // namespace cleave
