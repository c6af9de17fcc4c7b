// The names that users type and read.

#include "cleave/names.h"

#include <gtest/gtest.h>

#include <string>

#include "cleave/core/routing.h"
#include "cleave/error.h"

namespace cleave {
namespace {

template <class Enum>
void expect_round_trip(int count) {
  for (int i = 0; i < count; ++i) {
    const auto value = Enum(i);
    EXPECT_NE(to_string(value), "unknown");
    EXPECT_EQ(from_string<Enum>(to_string(value)), value);
  }
  EXPECT_EQ(to_string(Enum(count)), "unknown");
}

TEST(Names, RoundTrip) {
  expect_round_trip<DType>(7);
  expect_round_trip<Precision>(4);
  expect_round_trip<SplitKMode>(6);
  expect_round_trip<Activation>(8);
  expect_round_trip<Bias>(3);
  expect_round_trip<Scaling>(3);
  expect_round_trip<Grouping>(4);
  expect_round_trip<GroupBounds>(5);
  expect_round_trip<Conv>(4);
  expect_round_trip<Division>(5);
  expect_round_trip<Granularity>(4);
  expect_round_trip<Major>(2);
  expect_round_trip<Order>(2);
  expect_round_trip<KernelFamily>(5);
  expect_round_trip<ScoringFunc>(2);
  expect_round_trip<GroupScore>(2);
}

TEST(Names, AreWhatUsersType) {
  EXPECT_EQ(to_string(DType::bf16), "bfloat16");
  EXPECT_EQ(to_string(DType::i8), "int8");
  EXPECT_EQ(to_string(DType::e4m3), "float8_e4m3fn");
  EXPECT_EQ(to_string(DType::e5m2), "float8_e5m2");
  EXPECT_EQ(to_string(DType::i32), "int32");
  EXPECT_EQ(to_string(Precision::ieee), "ieee");
  EXPECT_EQ(to_string(SplitKMode::automatic), "auto");
  EXPECT_EQ(to_string(SplitKMode::stream_k), "stream_k");
  EXPECT_EQ(to_string(Activation::gelu_erf), "gelu");
  EXPECT_EQ(to_string(Activation::gelu_tanh), "gelu_tanh");
  EXPECT_EQ(to_string(Bias::column), "column");
  EXPECT_EQ(to_string(Scaling::vector), "vector");
  EXPECT_EQ(to_string(Grouping::k), "k");
  EXPECT_EQ(to_string(GroupBounds::aligned_ends), "aligned_ends");
  EXPECT_EQ(to_string(Conv::dgrad), "dgrad");
  EXPECT_EQ(to_string(Division::automatic), "auto");
  EXPECT_EQ(to_string(Division::fast_store), "fast_store");
  EXPECT_EQ(to_string(Granularity::block_1x128), "block_1x128");
  EXPECT_EQ(to_string(KernelFamily::sm90), "sm90");
}

/// Each of them, the last one of its table too.
template <class Enum>
void expect_guesses(int count, int first = 0) {
  for (int i = first; i < count; ++i) {
    const std::string name(to_string(Enum(i)));
    try {
      from_string<Enum>(name + "s");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).ends_with("Did you mean \"" + name + "\"?")) << error.what();
    }
  }
}

TEST(Names, AMistypedNameIsAnsweredWithTheNearest) {
  expect_guesses<DType>(7);
  expect_guesses<SplitKMode>(6);
  expect_guesses<Activation>(7);
  expect_guesses<Bias>(3);
  expect_guesses<GroupBounds>(5);
  expect_guesses<Conv>(4, 1);  // nobody means none
  expect_guesses<Division>(5);
  expect_guesses<Granularity>(4);
  expect_guesses<KernelFamily>(5);
}

TEST(Names, AnUnknownNameListsTheKnownOnes) {
  try {
    from_string<SplitKMode>("paralel");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "split_k_mode is \"paralel\"; it must be one of none, serial, parallel, cluster, "
                 "stream_k, auto. Did you mean \"parallel\"?");
  }
  try {
    from_string<SplitKMode>("never");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("Did you mean"), std::string::npos);
  }
  const auto guessed = [](const auto& parse) -> std::string {
    try {
      parse();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  // Not the name that is spelled most alike.
  EXPECT_TRUE(guessed([] { from_string<Precision>("FP32"); }).ends_with("Did you mean \"ieee\"?"));
  EXPECT_TRUE(guessed([] { from_string<KernelFamily>("sm80"); }).ends_with("Did you mean \"portable\"?"));
  EXPECT_TRUE(guessed([] { from_string<Activation>("swish"); }).ends_with("Did you mean \"silu\"?"));
  try {
    from_string<Granularity>("rows", "out_scale");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "out_scale is \"rows\"; it must be one of tensor, row, block_1x128, block_128x128. Did you mean "
                 "\"row\"?");
  }
  try {
    from_string<DType>("float8");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_type);
  }
}

}  // namespace
}  // namespace cleave
