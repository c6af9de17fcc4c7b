#include "cpu/scratch.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace cleave::cpu {
namespace {

using Borrowed = BorrowedScratch<float>;

TEST(Scratch, GoesFromProductToProduct) {
  const auto place = [] { return &*Borrowed(); };
  const Scratch<float>* const first = place();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(place(), first);
}

TEST(Scratch, IsTheirsWhoBorrowedIt) {
  for (int round = 0; round < 2; ++round) {
    const std::vector<Borrowed> all(2 * Borrowed::kMostKept);
    std::set<const Scratch<float>*> places;
    for (const Borrowed& each : all) places.insert(&*each);
    EXPECT_EQ(places.size(), all.size());
  }
}

}  // namespace
}  // namespace cleave::cpu
