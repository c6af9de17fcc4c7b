// What the planner considers for convolutions.
#include <gtest/gtest.h>

#include <algorithm>

#include "cleave/names.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "plan/catalogue/candidates.h"

namespace cleave {
namespace {

bool any(const std::vector<Choice>& choices, bool (*of)(const Spec&)) {
  return std::any_of(choices.begin(), choices.end(), [&](const Choice& choice) { return of(choice.spec); });
}

bool gathers(const Spec& spec) {
  return spec.gather;
}

bool is_portable(const Spec& spec) {
  return spec.family == KernelFamily::portable;
}

TEST(ConvCandidates, FewChannelsHaveMore) {
  for (const Conv kind : kConvs) {
    EXPECT_TRUE(any(candidates(problem(layer(kind, 32, 64)), h100()), gathers));
    EXPECT_FALSE(any(candidates(problem(layer(kind, 40, 64)), h100()), gathers));
  }
}

TEST(ConvCandidates, ArePortableWhereHopperServesNone) {
  EXPECT_FALSE(any(candidates(problem(layer(Conv::dgrad)), h100()), is_portable));
  for (const Choice& choice : candidates(problem(layer(Conv::dgrad, 3, 60)), h100()))
    EXPECT_TRUE(is_portable(choice.spec));
  const DeviceInfo a100 = model_device("sm_80");
  for (const Conv kind : kConvs) {
    const auto all = candidates(problem(layer(kind)), a100);
    EXPECT_FALSE(all.empty());
    for (const Choice& choice : all) EXPECT_TRUE(is_portable(choice.spec));
  }
}

TEST(ConvCandidates, AreNoneWhereHopperIsAskedForInVain) {
  GemmProblem p = problem(layer(Conv::dgrad, 3, 64));
  p.kernel = KernelFamily::sm90;
  EXPECT_TRUE(candidates(p, h100()).empty());
}

// Every convolution has a kernel, and a name brings back the candidate that has it.
TEST(ConvCandidates, ServeEveryGeometry) {
  Random random(2);
  for (int round = 0; round < 150; ++round) {
    ConvLayout conv = draw_geometry(random);
    conv.kind = random.pick(kConvs);
    conv.channels = random.coin() ? random.number(1, 40) : 8 * random.number(1, 20);
    conv.filters = 8 * random.number(1, 20);
    if (output_pixels(conv) == 0) continue;
    constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};
    const GemmProblem p = problem(conv, random.number(1, 3), random.pick(kTypes));
    SCOPED_TRACE(text(conv));
    const auto all = candidates(p, h100());
    ASSERT_FALSE(all.empty());
    for (const Choice& choice : all) {
      const std::string name = to_string(choice.spec);
      ASSERT_EQ(parse_spec(name), choice.spec) << name;
      const auto again = make_choice(p, h100(), choice.spec);
      ASSERT_TRUE(again.has_value()) << name;
      ASSERT_EQ(again->config, choice.config) << name;
      ASSERT_GT(choice.blocks, 0u) << name;
      ASSERT_GT(choice.predicted_us, 0) << name;
    }
  }
}

}  // namespace
}  // namespace cleave
