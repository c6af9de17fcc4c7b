#include "operands/roles.h"

#include <cctype>
#include <string>

#include "base/refuse.h"

namespace cleave {
namespace {

bool is_of_a_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

/// As a word: "d overlaps b", "d.stride_row", "b's strides".
bool speaks_of(std::string_view message, std::string_view operand) {
  for (size_t i = message.find(operand); i != message.npos; i = message.find(operand, i + 1)) {
    const bool begins = i == 0 || !is_of_a_name(message[i - 1]);
    const size_t end = i + operand.size();
    if (begins && (end == message.size() || !is_of_a_name(message[end]))) return true;
  }
  return false;
}

}  // namespace

std::vector<Role> roles_of(Conv kind, bool transposed) {
  const bool of_gradient = !transposed && (kind == Conv::dgrad || kind == Conv::wgrad);
  std::vector<Role> roles;
  if (kind != Conv::none) {
    roles.push_back({"a", of_gradient ? "grad_output" : "input"});
    roles.push_back({"b", kind == Conv::wgrad ? "input" : "weight"});
  }
  roles.push_back({"d", "out"});
  if (kind == Conv::none) {
    roles.push_back({"zero_a", "azp"});
    roles.push_back({"zero_b", "azp_adj"});
  }
  return roles;
}

void refuse_with_roles(const Error& error, const std::vector<Role>& roles) {
  std::string text = error.what();
  const char* before = " (";
  for (const Role& role : roles) {
    if (!speaks_of(error.what(), role.operand)) continue;
    text += fmt::format("{}{} is {}", before, role.operand, role.name);
    before = ", ";
  }
  if (text != error.what()) text += ')';
  refuse(error.code(), "{}", text);
}

}  // namespace cleave
