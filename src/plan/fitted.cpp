// What `python -m bench.fit` writes as text, below plan/fitted, as arrays.
#include "plan/product_constants.h"
#include "plan/product_residual.h"

namespace cleave {
namespace {

constexpr ProductConstants kConstants[kMainloopKinds] = {
#include "plan/fitted/constants.txt"
};

constexpr TreeNode kKMajor[] = {
#include "plan/fitted/trees_k_major.txt"
};
constexpr TreeNode kStrips[] = {
#include "plan/fitted/trees_strips.txt"
};
constexpr TreeNode kEight[] = {
#include "plan/fitted/trees_eight.txt"
};
constexpr TreeNode kPromoted[] = {
#include "plan/fitted/trees_promoted.txt"
};
constexpr TreeNode kConv[] = {
#include "plan/fitted/trees_conv.txt"
};
constexpr TreeNode kGrouped[] = {
#include "plan/fitted/trees_grouped.txt"
};

}  // namespace

const ProductConstants& product_constants(MainloopKind kind) {
  return kConstants[size_t(kind)];
}

std::span<const TreeNode> trees_of(ForestKind kind) {
  switch (kind) {
    case ForestKind::k_major:
      return kKMajor;
    case ForestKind::strips:
      return kStrips;
    case ForestKind::eight:
      return kEight;
    case ForestKind::promoted:
      return kPromoted;
    case ForestKind::conv:
      return kConv;
    case ForestKind::grouped:
      return kGrouped;
  }
  return {};
}

}  // namespace cleave
