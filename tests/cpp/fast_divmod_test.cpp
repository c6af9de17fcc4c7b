// FastDivmod is exact for every divisor and dividend below 2^31.

#include "cleave/core/fast_divmod.h"

#include <gtest/gtest.h>

#include <random>

namespace cleave {
namespace {

constexpr uint32_t kLimit = 0x80000000u;

void expect_exact(const FastDivmod& fast, uint32_t dividend) {
  uint32_t quotient = 0, remainder = 0;
  fast.divmod(dividend, quotient, remainder);
  ASSERT_EQ(quotient, dividend / fast.divisor) << dividend << " / " << fast.divisor;
  ASSERT_EQ(remainder, dividend % fast.divisor) << dividend << " % " << fast.divisor;
  ASSERT_EQ(fast.quotient(dividend), quotient);
}

/// The dividends where a magic number that is slightly off shows: around multiples, the largest
/// above all.
void expect_exact_around_multiples(uint32_t divisor, std::mt19937& random) {
  const FastDivmod fast(divisor);
  const uint32_t most = (kLimit - 1) / divisor;
  for (const uint32_t multiple : {0u, 1u, 2u, most / 2, most - 1, most, uint32_t(random()) % (most + 1)}) {
    const uint64_t near = uint64_t(multiple) * divisor;
    for (const uint64_t dividend : {near - 1, near, near + 1, near + divisor - 1}) {
      if (dividend < kLimit) expect_exact(fast, uint32_t(dividend));
    }
  }
  expect_exact(fast, kLimit - 1);
  for (int i = 0; i < 50; ++i) expect_exact(fast, uint32_t(random()) % kLimit);
}

TEST(FastDivmod, SmallDivisors) {
  std::mt19937 random(1);
  for (uint32_t divisor = 1; divisor <= 5000; ++divisor) {
    expect_exact_around_multiples(divisor, random);
    if (HasFatalFailure()) return;
  }
}

TEST(FastDivmod, PowersOfTwoAndTheirNeighbours) {
  std::mt19937 random(2);
  for (uint32_t bit = 1; bit <= 31; ++bit) {
    for (const uint64_t divisor : {(1ull << bit) - 1, 1ull << bit, (1ull << bit) + 1}) {
      if (divisor < kLimit) expect_exact_around_multiples(uint32_t(divisor), random);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FastDivmod, RandomDivisors) {
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    expect_exact_around_multiples(1 + uint32_t(random()) % (kLimit - 1), random);
    if (HasFatalFailure()) return;
  }
}

TEST(FastDivmod, DefaultIsDivisionByOne) {
  expect_exact(FastDivmod(), kLimit - 1);
}

static_assert(FastDivmod(7).quotient(48) == 6);

}  // namespace
}  // namespace cleave
