// What a large sum over ranks gives its two streams, and in which order that is done, on a driver that is not there.
#include "over_ranks/sum_in_parts.h"

#include <gtest/gtest.h>

#include <string>

#include "cleave/epilogue.h"
#include "one_of_ranks.h"

namespace cleave {
namespace {

constexpr int64_t kShare = 256, kPart = 128, kColumns = 512, kDepth = 64;
constexpr size_t kRow = kColumns * 2;  // bytes, of D and of partial results
constexpr int kParts = kShare / kPart;

/// acc is rounded, and the others' partial results are added in the order of the ranks.
const EpilogueFunction& adds(bool twice) {
  std::string text = "p0 matrix\np2 matrix\n%0 = to_bfloat16 acc\n%1 = add p0 %0\n%2 = add %1 p2\nd = %2\n";
  if (twice) text += "also0 = %2\n";
  return epilogue_function(text);
}

class SumInPartsTest : public OneOfRanks {
 protected:
  SumForm form(bool gathered, bool onto) const {
    return {.rows = kRanks * kShare,
            .columns = kColumns,
            .made = kColumns,
            .first = kRank * kShare,
            .own = kShare,
            .most = kShare,
            .unsplit = true,
            .split = SplitKMode::automatic,
            .partial = DType::bf16,
            .d = DType::bf16,
            .activation = Activation::none,
            .call = "a sum",
            .gathered = gathered,
            .part = kPart,
            .onto = onto ? &adds(gathered) : nullptr};
  }

  Given run(const SumForm& form) {
    const Operand b = packed_matrix(address<void>(2), DType::bf16, 0, kDepth, kColumns);
    const SumTensors tensors{.a = packed_matrix(address<void>(1), DType::bf16, 0, form.rows, kDepth), .b = b};
    const SumResults results{packed_matrix(d_, DType::bf16, 0, form.gathered ? form.rows : form.own, kColumns), {}};
    return given_by([&] {
      cleave::run(make_in_parts(form, tensors, results, leaving_, *places_, split_as(form, {})), form, *places_,
                  kStream);
    });
  }

  void* const d_ = address<void>(4);
  void* const leaving_ = address<void>(5);
};

TEST_P(SumInPartsTest, ProductsLeaveWhileMoreAreMade) {
  const bool onto = GetParam();
  const Given given = run(form(false, onto));
  // Products of the others' rows; then for each part one that adds up, or one of all own rows and what adds up.
  ASSERT_EQ(given.computed.size(), size_t(kParts * kOthers + kParts + (onto ? 0 : 1)));
  ASSERT_EQ(given.copied.size(), size_t(kParts * kOthers));
  ASSERT_EQ(given.met.size(), size_t(onto ? kParts : 0));  // else what adds up begins with a meeting
  for (int i = 0; i < kParts * kOthers; ++i) {
    const int product = given.computed[i], copy = given.copied[i];
    const int part = i / kOthers, owner = (kRank + 1 + i % kOthers) % kRanks;
    EXPECT_TRUE(behind(copy, product));
    EXPECT_FALSE(behind(given.computed[i + 1], copy)) << "the next one waits for it";
    EXPECT_EQ(work(copy).bytes, kPart * kRow);
    EXPECT_EQ(work(copy).from, static_cast<char*>(leaving_) + i * kPart * kRow);
    EXPECT_EQ(work(copy).to, places_->at(owner, 1) + (kRank * kShare + part * kPart) * kRow);
  }
  for (int part = 0; part < kParts; ++part) {
    const int adds_up = given.computed[given.computed.size() - kParts + part];
    for (int i = 0; i < kParts * kOthers; ++i)
      EXPECT_EQ(behind(adds_up, given.copied[i]), i / kOthers <= part) << "part " << part << ", copy " << i;
    if (onto) {
      EXPECT_TRUE(behind(given.met[part], given.copied[(part + 1) * kOthers - 1]));
      EXPECT_TRUE(behind(adds_up, given.met[part]));
    }
  }
}

TEST_P(SumInPartsTest, RowsAreFetchedWhileMoreAreMade) {
  const bool onto = GetParam();
  const Given given = run(form(true, onto));
  const int leaving = kParts * kOthers, fetched = onto ? kOthers : kRanks;  // an epilogue has stored this rank's
  ASSERT_EQ(given.copied.size(), size_t(leaving + kParts * fetched));
  ASSERT_EQ(given.met.size(), size_t(onto ? 2 * kParts : kParts));
  const int first_sum = int(given.computed.size()) - kParts;
  for (int part = 0; part < kParts; ++part) {
    const int adds_up = given.computed[first_sum + part], meeting = given.met[given.met.size() - kParts + part];
    EXPECT_TRUE(behind(meeting, adds_up));
    for (int i = 0; i < fetched; ++i) {
      const int copy = given.copied[leaving + part * fetched + i];
      const int peer = (kRank + (onto ? 1 : 0) + i) % kRanks;
      EXPECT_TRUE(behind(copy, meeting));
      if (part + 1 < kParts) {
        EXPECT_FALSE(behind(given.computed[first_sum + part + 1], copy));
      }
      EXPECT_EQ(work(copy).bytes, kPart * kRow);
      EXPECT_EQ(work(copy).to, static_cast<char*>(d_) + (peer * kShare + part * kPart) * kRow);
      EXPECT_EQ(work(copy).from, places_->at(peer, 1) + (kRanks * kShare + part * kPart) * kRow);
    }
  }
  for (const int copy : given.copied) EXPECT_TRUE(fake_driver_is_behind(kStream, copy)) << "what comes behind the call";
}

TEST_P(SumInPartsTest, WhatLeavesIsAwaitedThoughTheCallFails) {
  const SumForm form = this->form(false, GetParam());
  run(form);
  const int before = fake_driver_work_count();
  fake_driver_fail_after(GetParam() ? 3 : 2);  // the second part's first product: a meeting is a launch, too
  EXPECT_THROW(run(form), Error);
  int copy = -1;
  for (int i = before; i < fake_driver_work_count(); ++i)
    if (copies(i)) copy = i;
  ASSERT_NE(copy, -1);
  EXPECT_TRUE(fake_driver_is_behind(kStream, copy));
}

TEST_P(SumInPartsTest, APlaceThatIsTooSmallIsRefused) {
  SumForm form = this->form(GetParam(), false);
  EXPECT_EQ(place_bytes(form, kRanks), (kRanks + GetParam()) * kShare * kRow);
  form.columns = form.made = int64_t(kPlace);
  const int before = fake_driver_work_count();
  EXPECT_THROW(run(form), Error);
  EXPECT_EQ(fake_driver_work_count(), before);
}

INSTANTIATE_TEST_SUITE_P(Ways, SumInPartsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "ByTheProduct" : "ByAKernelBehindIt"; });

}  // namespace
}  // namespace cleave
