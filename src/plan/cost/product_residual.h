// What the models of product_cost.h and cost.h err by, learnt from the pairs that were measured: boosted regression
// trees, a forest for each kind of mainloop and one for convolutions (J. Friedman, Greedy function approximation,
// 2001). `python -m bench.fit` grows them, on what the models leave, and writes them into plan/cost/fitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "plan/choice/choice.h"
#include "plan/cost/product_cost.h"

namespace cleave {

// What a tree may ask, in the order of the array. Sizes are logarithms to the base of 2.
#define CLEAVE_PRODUCT_FEATURES(X)                                                                 \
  X(m) /* as the kernel sees the problem, */                                                       \
  X(n) /* transposed where it is so */                                                             \
  X(k)                                                                                             \
  X(bytes_a)                                                                                       \
  X(bytes_b)                                                                                       \
  X(outputs)                                                                                       \
  X(transposed)                                                                                    \
  X(tile_m) /* rows and columns, no logarithms */                                                  \
  X(tile_n)                                                                                        \
  X(tile_area)                                                                                     \
  X(tile_aspect)                                                                                   \
  X(pingpong)                                                                                      \
  X(multicast_m)                                                                                   \
  X(multicast_n)                                                                                   \
  X(mode) /* none, cluster, parallel, stream_k */                                                  \
  X(slices)                                                                                        \
  X(cluster_k)                                                                                     \
  X(stages)                                                                                        \
  X(tiles_m)                                                                                       \
  X(tiles_n)                                                                                       \
  X(tiles)                                                                                         \
  X(filled_m) /* share of the tiles' rows that are the matrix's */                                 \
  X(filled_n)                                                                                      \
  X(waves)                                                                                         \
  X(whole_waves)   /* with the last one, which may not be full: */                                 \
  X(filled_waves)  /* the share of them all that is */                                             \
  X(idle)          /* and what it lacks */                                                         \
  X(slice_blocks)  /* k blocks of a slice */                                                       \
  X(filled_slices) /* share of the slices' k blocks, the longest one's for each, that there are */ \
  X(aligned_a)     /* bytes that rows begin at multiples of, at most a line */                     \
  X(aligned_b)                                                                                     \
  X(major_a) /* whether contiguous along M */                                                      \
  X(major_b)                                                                                       \
  X(element) /* bytes */                                                                           \
  X(integers)                                                                                      \
  X(scaling)                                                                                       \
  X(on_chip) /* shares of the predicted time */                                                    \
  X(l2)                                                                                            \
  X(memory)                                                                                        \
  X(power)                                                                                         \
  X(epilogues)                                                                                     \
  X(reduction)                                                                                     \
  X(us)                                                                                            \
  X(narrow)   /* whether threads copy an operand */                                                \
  X(taps)     /* of convolutions, else 0 */                                                        \
  X(channels) /* of a tap, in what is gathered */                                                  \
  X(stride)                                                                                        \
  X(line)    /* outputs along an image's line */                                                   \
  X(groups)  /* of channels, or of a grouped dimension */                                          \
  X(gather)  /* whether threads copy what is gathered */                                           \
  X(classes) /* side by side 1, else 0 */                                                          \
  X(direction)                                                                                     \
  X(grouping)      /* the dimension that groups share, else 0 */                                   \
  X(extent)        /* a group's in it, on average, */                                              \
  X(extent_tiles)  /* and in tiles, */                                                             \
  X(filled_extent) /* of which a group of the average fills this share */                          \
  X(added)         /* sums that TMA adds: 1, and where columns' scales are held 2 */
struct ProductFeatures {
#define CLEAVE_MEMBER(name) float name;
  CLEAVE_PRODUCT_FEATURES(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
};
enum class ProductFeature : uint8_t {
#define CLEAVE_ENUMERATOR(name) name,
  CLEAVE_PRODUCT_FEATURES(CLEAVE_ENUMERATOR)
#undef CLEAVE_ENUMERATOR
};
inline constexpr size_t kProductFeatures = sizeof(ProductFeatures) / sizeof(float);

/// What has a forest: the kinds of mainloop, as MainloopKind has them, convolutions, and groups.
enum class ForestKind : uint8_t { k_major, strips, eight, promoted, conv, grouped };

/// Nothing where no pairs were measured: 4-bit weights, and kernels without TMA.
std::optional<ForestKind> forest_kind(const Choice& choice);

/// `time`: of so many tiles.
ProductFeatures product_features(const Choice& choice, const DeviceInfo& device, double tiles, const ProductTime& time);

/// A node of a tree, whose nodes stand in preorder, tree after tree: a test, `feature <= value`, before what follows
/// where it holds and what follows where it does not; or a leaf, which adds `value`. Packed: forests are most of what
/// the planner's tables take.
struct [[gnu::packed]] TreeNode {
  static constexpr uint8_t kLeaf = 255;
  uint8_t feature;
  uint8_t next = 0;  ///< how much further on is the node where the test does not hold; from a leaf, the next tree
  float value;
};
static_assert(sizeof(TreeNode) == 6);

/// A forest, tree after tree.
std::span<const TreeNode> trees_of(ForestKind kind);

/// Whether the forests know the GPU: they were grown on an H200, and have its bandwidths in them.
bool forests_know(const DeviceInfo& device);

/// The factor between the model's time and what it should have been.
double product_residual(ForestKind kind, const ProductFeatures& features);

}  // namespace cleave
