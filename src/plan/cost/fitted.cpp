// What `python -m bench.fit` writes as text, below plan/cost/fitted, as arrays.
#include <array>

#include "plan/cost/product_constants.h"
#include "plan/cost/product_residual.h"

namespace cleave {
namespace {

constexpr ProductConstants kConstants[kMainloopKinds] = {
#include "plan/cost/fitted/constants.txt"
};

using enum ProductFeature;

/// A node as a forest's text has it.
struct Written : TreeNode {
  constexpr Written(double leaf) : TreeNode{.feature = kLeaf, .value = float(leaf)} {}
  constexpr Written(ProductFeature asked, double most) : TreeNode{.feature = uint8_t(asked), .value = float(most)} {}
};

constexpr Written operator<=(ProductFeature asked, double most) {
  return {asked, most};
}

/// The nodes, which know where to go on: at the end of a test's first branch, or of a tree.
template <size_t N>
constexpr std::array<TreeNode, N> joined(const Written (&written)[N]) {
  std::array<TreeNode, N> nodes{};
  std::array<size_t, TreeNode::kLeaf> tests{};  // whose second branches are still to come
  size_t open = 0, tree = 0;                    // how many they are; the first node of this tree
  for (size_t i = 0; i < N; ++i) {
    nodes[i] = written[i];
    if (nodes[i].feature != TreeNode::kLeaf) {
      tests[open++] = i;
    } else if (open > 0) {
      const size_t test = tests[--open];
      nodes[test].next = uint8_t(i + 1 - test);
    } else {
      for (; tree <= i; ++tree)
        if (nodes[tree].feature == TreeNode::kLeaf) nodes[tree].next = uint8_t(i + 1 - tree);
    }
  }
  return nodes;
}

constexpr auto kKMajor = joined({
#include "plan/cost/fitted/trees_k_major.txt"
});
constexpr auto kStrips = joined({
#include "plan/cost/fitted/trees_strips.txt"
});
constexpr auto kEight = joined({
#include "plan/cost/fitted/trees_eight.txt"
});
constexpr auto kPromoted = joined({
#include "plan/cost/fitted/trees_promoted.txt"
});
constexpr auto kConv = joined({
#include "plan/cost/fitted/trees_conv.txt"
});
constexpr auto kGrouped = joined({
#include "plan/cost/fitted/trees_grouped.txt"
});

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
