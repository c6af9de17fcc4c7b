#include "process/plan_map.h"

#include <gtest/gtest.h>

#include <thread>

namespace cleave {
namespace {

/// A plan that is nothing but large.
struct Block {
  size_t host_bytes() const { return bytes; }
  size_t bytes = 1000;
};

using Map = PlanMap<int, Block, std::hash<int>>;

std::shared_ptr<const Block> block(size_t bytes = 1000) {
  return std::make_shared<const Block>(Block{bytes});
}

TEST(PlanMap, FindsWhatWasInserted) {
  Map map(1 << 20);
  EXPECT_EQ(map.find(1), nullptr);
  const auto plan = map.insert(1, block());
  EXPECT_EQ(map.find(1), plan);
  EXPECT_EQ(map.insert(1, block()), plan) << "another thread was faster";
  EXPECT_GE(map.bytes(), 1000u);
  map.clear();
  EXPECT_EQ(map.find(1), nullptr);
  EXPECT_EQ(map.bytes(), 0u);
}

TEST(PlanMap, HoldsNoMoreThanItsBound) {
  constexpr size_t kBound = 100'000;
  Map map(kBound);
  for (int i = 0; i < 10'000; ++i) {
    map.insert(i, block(size_t(i) % 2000));
    ASSERT_LE(map.bytes(), kBound);
  }
  EXPECT_GE(map.bytes(), kBound / 2);
}

TEST(PlanMap, KeepsWhatIsUsed) {
  Map map(100'000);
  const auto used = map.insert(-1, block());
  for (int i = 0; i < 1000; ++i) {
    map.insert(i, block());
    ASSERT_EQ(map.find(-1), used) << i;
  }
  EXPECT_EQ(map.find(0), nullptr);
  EXPECT_NE(map.find(999), nullptr);
}

TEST(PlanMap, KeepsTheOlderOfTwoThatWasUsedLater) {
  Map map(64'000);
  for (int i = 0; i < 40; ++i) map.insert(i, block());
  for (int i = 0; i < 20; ++i) EXPECT_NE(map.find(i), nullptr);
  for (size_t i = 40, before = 0; before < map.bytes(); ++i) {  // until it evicts
    before = map.bytes();
    map.insert(int(i), block());
  }
  for (int i = 0; i < 20; ++i) EXPECT_NE(map.find(i), nullptr) << i;
  EXPECT_EQ(map.find(20), nullptr);
}

TEST(PlanMap, APlanInUseOutlivesItsPlace) {
  Map map(10'000);
  const auto plan = map.insert(0, block(1234));
  for (int i = 1; i < 100; ++i) map.insert(i, block());
  EXPECT_EQ(map.find(0), nullptr);
  EXPECT_EQ(plan->bytes, 1234u);
}

TEST(PlanMap, APlanLargerThanTheBoundIsKeptUntilTheNext) {
  Map map(10'000);
  map.insert(0, block(50'000));
  EXPECT_NE(map.find(0), nullptr);
  map.insert(1, block());
  EXPECT_EQ(map.find(0), nullptr);
  EXPECT_NE(map.find(1), nullptr);
}

TEST(PlanMap, ThreadsFindAndInsertAtOnce) {
  Map map(50'000);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20'000; ++i) {
          const int key = (i * 7 + t) % 200;
          auto plan = map.find(key);
          if (!plan) plan = map.insert(key, block(size_t(key) + 100));
          wrong += plan->bytes != size_t(key) + 100;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(map.bytes(), 50'000u);
}

}  // namespace
}  // namespace cleave
