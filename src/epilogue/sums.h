// What the texts of epilogue functions call the sums that these take.
#pragma once

#include <string_view>

#include "cleave/epilogue.h"

namespace cleave {

/// `kind`: sum, gate or up.
constexpr std::string_view name_of_sum(EpilogueNode::Kind kind, Gates gates) {
  if (kind == EpilogueNode::Kind::sum) return "acc";
  const bool is_up = kind == EpilogueNode::Kind::up;
  if (gates == Gates::interleaved) return is_up ? "acc.odd" : "acc.even";
  return is_up ? "acc.up" : "acc.gate";
}

}  // namespace cleave
