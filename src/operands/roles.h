// What the operands of a problem are called where it was made: problems know only a, b and d.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "cleave/error.h"
#include "cleave/problem.h"

namespace cleave {

struct Role {
  std::string_view operand;
  std::string_view name;
};

/// Those of a product, or of a convolution. A transposed one is a dgrad of an output, not of a gradient.
std::vector<Role> roles_of(Conv kind, bool transposed = false);

/// The error, with the roles of the operands of which it speaks behind it.
[[noreturn]] void refuse_with_roles(const Error& error, const std::vector<Role>& roles);

/// The result of body(), whose errors say which operand is which.
template <class Body>
decltype(auto) with_roles(std::initializer_list<Role> roles, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    refuse_with_roles(error, roles);
  }
}

template <class Body>
decltype(auto) with_roles(Conv kind, const Body& body, bool transposed = false) {
  try {
    return body();
  } catch (const Error& error) {
    refuse_with_roles(error, roles_of(kind, transposed));
  }
}

}  // namespace cleave
