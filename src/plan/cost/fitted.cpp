// What `python -m bench.fit` writes as text, below plan/cost/fitted, as arrays.
#include "plan/cost/product_constants.h"
#include "plan/cost/product_residual.h"

namespace cleave {
namespace {

constexpr ProductConstants kConstants[kMainloopKinds] = {
#include "plan/cost/fitted/constants.txt"
};

constexpr TreeNode kKMajor[] = {
#include "plan/cost/fitted/trees_k_major.txt"
};
constexpr TreeNode kStrips[] = {
#include "plan/cost/fitted/trees_strips.txt"
};
constexpr TreeNode kEight[] = {
#include "plan/cost/fitted/trees_eight.txt"
};
constexpr TreeNode kPromoted[] = {
#include "plan/cost/fitted/trees_promoted.txt"
};
constexpr TreeNode kConv[] = {
#include "plan/cost/fitted/trees_conv.txt"
};
constexpr TreeNode kGrouped[] = {
#include "plan/cost/fitted/trees_grouped.txt"
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
