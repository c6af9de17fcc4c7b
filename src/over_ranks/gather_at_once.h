// A product of gathered rows that begins when all of them are there.
#pragma once

#include <array>

#include "over_ranks/gather_form.h"
#include "over_ranks/product.h"

namespace cleave {

/// Launches with all that they are given, in the first of the places.
struct GatherAtOnce {
  Product product;
  std::array<Group::Rows, 2> parts;
  size_t count = 0;  // of them
};

/// Where what a call reads is.
struct GatherAddresses {
  const void *a, *b, *scale_a, *scale_b, *bias;
};

/// Plans it. Throws Error for operands that do not fit together.
GatherAtOnce make_at_once(const GatherForm& form, const GatherTensors& tensors, const Places& places,
                          const PlanOptions& options);

/// Points a call that was made for other tensors, which lie alike, at these.
void point(GatherAtOnce& made, const GatherAddresses& to);

/// In the next place. d: [rows, columns]; all: nullptr, or a new [ranks * share, K] of everybody's a.
void run(GatherAtOnce made, const GatherForm& form, Places& places, void* d, void* all, void* stream);

}  // namespace cleave
