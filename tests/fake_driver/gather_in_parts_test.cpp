// What a product of many gathered rows gives its two streams, and in which order that is done, on a driver that is not
// there.
#include "over_ranks/gather_in_parts.h"

#include <gtest/gtest.h>

#include "one_of_ranks.h"

namespace cleave {
namespace {

constexpr int64_t kShare = 256, kPart = 128, kColumns = 512, kDepth = 64;
constexpr size_t kRow = kDepth * 2;  // bytes, of a
constexpr int kParts = kShare / kPart;

class GatherInPartsTest : public OneOfRanks {
 protected:
  static GatherForm form(bool by_rank, bool awaits_all) {
    return {.rows = kRanks * kShare,
            .share = kShare,
            .d = DType::bf16,
            .activation = Activation::none,
            .call = "a gather",
            .part = kPart,
            .awaits_all = awaits_all,
            .by_rank = by_rank};
  }

  Given run(const GatherForm& form, void* all) {
    const GatherTensors tensors{.a = packed_matrix(a_, DType::bf16, 0, kShare, kDepth),
                                .b = packed_matrix(address<void>(2), DType::bf16, 0, kDepth, kColumns)};
    const Operand d = packed_matrix(address<void>(4), DType::bf16, 0, form.rows, kColumns);
    return given_by([&] { cleave::run(make_in_parts(form, tensors, d, *places_, {}), form, *places_, all, kStream); });
  }

  /// Where rows of a rank lie in the second place of one.
  char* at(int in, int rank, int64_t first) const { return places_->at(in, 1) + (rank * kShare + first) * kRow; }

  char* const a_ = address<char>(1);
};

TEST_P(GatherInPartsTest, RowsLeaveWhileThisRanksAreMultiplied) {
  const bool awaits_all = GetParam();
  const Given given = run(form(true, awaits_all), nullptr);
  const int parts = awaits_all ? 1 : kParts;
  ASSERT_EQ(given.computed.size(), size_t(1 + parts * kOthers));
  ASSERT_EQ(given.copied.size(), size_t(parts * kOthers));
  ASSERT_EQ(given.met.size(), size_t(kParts)) << "ranks meet as often, whatever they wait for";
  for (int i = 0; i < parts * kOthers; ++i) {
    const int copy = given.copied[i], peer = (kRank + 1 + i % kOthers) % kRanks;
    const int64_t first = i / kOthers * kPart, rows = awaits_all ? kShare : kPart;
    EXPECT_FALSE(behind(given.computed[0], copy)) << "of this rank's rows";
    EXPECT_EQ(work(copy).from, a_ + first * kRow);
    EXPECT_EQ(work(copy).to, at(peer, kRank, first));
    EXPECT_EQ(work(copy).bytes, rows * kRow);
  }
  for (int part = 0; part < parts; ++part) {
    const int meeting = given.met[awaits_all ? kParts - 1 : part];
    EXPECT_TRUE(behind(meeting, given.copied[(part + 1) * kOthers - 1]));
    for (int i = 0; i < kOthers; ++i) {
      const int product = given.computed[1 + part * kOthers + i];
      EXPECT_TRUE(behind(product, meeting));
      if (part + 1 < parts) {
        EXPECT_FALSE(behind(product, given.met[part + 1])) << "it waits for more than its part";
      }
    }
  }
}

TEST_P(GatherInPartsTest, AllRowsAreMultipliedWhereTheyLie) {
  const Given given = run(form(false, GetParam()), nullptr);
  ASSERT_EQ(given.computed.size(), 2u);
  const int own = given.computed[0], product = given.computed[1];
  EXPECT_EQ(work(own).from, a_);
  EXPECT_EQ(work(own).to, at(kRank, kRank, 0));
  EXPECT_EQ(work(own).bytes, kShare * kRow);
  EXPECT_TRUE(behind(product, given.met.back()));
  EXPECT_FALSE(copies(product));
}

TEST_P(GatherInPartsTest, RowsThatAreKeptAreThereBehindTheCall) {
  char* const all = address<char>(5);
  const bool by_rank = GetParam();
  const Given given = run(form(by_rank, false), all);
  ASSERT_EQ(given.copied.size(), size_t(kParts * kOthers + kRanks));
  for (int rank = 0; rank < kRanks; ++rank) {
    const int copy = given.copied[kParts * kOthers + rank];
    EXPECT_EQ(work(copy).to, all + rank * kShare * kRow);
    EXPECT_EQ(work(copy).from, rank == kRank ? a_ : at(kRank, rank, 0));
    EXPECT_EQ(work(copy).bytes, kShare * kRow);
    EXPECT_TRUE(behind(copy, given.met.back()));
    EXPECT_FALSE(behind(given.computed.back(), copy)) << "the product waits for it";
    EXPECT_TRUE(fake_driver_is_behind(kStream, copy));
  }
}

TEST_P(GatherInPartsTest, APlaceThatIsTooSmallIsRefused) {
  GatherForm form = this->form(GetParam(), false);
  form.share = int64_t(kPlace), form.rows = kRanks * form.share;
  const int before = fake_driver_work_count();
  EXPECT_THROW(run(form, nullptr), Error);
  EXPECT_EQ(fake_driver_work_count(), before);
}

INSTANTIATE_TEST_SUITE_P(Ways, GatherInPartsTest, testing::Bool());

}  // namespace
}  // namespace cleave
