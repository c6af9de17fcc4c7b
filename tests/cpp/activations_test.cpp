// The ready-made epilogue functions, on the host.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "activations.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "epilogue/evaluate.h"

namespace cleave {
namespace {

/// What it makes of a sum, or of a gate's and an up's.
float applied(Activation activation, float sum, float up = 0.0f) {
  if (activation == Activation::none) return sum;
  const EpilogueEvaluator& evaluate = epilogue_of(activation).function->evaluator();
  std::vector<float> scratch = evaluate.scratch();
  float sums[kEvaluatedLanes] = {sum}, ups[kEvaluatedLanes] = {up};
  float* const outputs[] = {sums};
  evaluate(1, sums, ups, nullptr, outputs, scratch);
  return sums[0];
}

TEST(Activations, AreFunctionsByTheirTexts) {
  EXPECT_EQ(epilogue_of(Activation::none), EpilogueProblem());
  for (const Activation activation : values_of<Activation>) {
    if (activation == Activation::none) continue;
    const EpilogueProblem made = epilogue_of(activation);
    EXPECT_EQ(made.function->activation(), activation) << to_string(activation);
    EXPECT_EQ(made.gates, made.function->gates());
    EXPECT_EQ(&epilogue_function(made.function->text()), made.function);
  }
  EXPECT_EQ(epilogue_function("%positive = relu acc\nd = %positive").activation(), Activation::relu);
  EXPECT_EQ(epilogue_function("d = acc").activation(), Activation::none);
}

TEST(Activations, MatchTheirDefinition) {
  for (const Activation kind : kElementwise) {
    for (float x = -12; x <= 12; x += 0.0078125f) {
      ASSERT_NEAR(applied(kind, x), activated(kind, x), 2e-6 * std::max(1.0f, std::abs(x)))
          << to_string(kind) << " at " << x;
    }
  }
}

TEST(Activations, AtTheEdges) {
  for (const Activation kind : kElementwise) {
    EXPECT_TRUE(std::isnan(applied(kind, NAN))) << to_string(kind);
    EXPECT_EQ(applied(kind, 0.0f), 0.0f) << to_string(kind);
    EXPECT_EQ(applied(kind, 1e4f), kind == Activation::relu2 ? 1e8f : 1e4f) << to_string(kind);
    if (kind != Activation::none) {
      EXPECT_EQ(applied(kind, -1e4f), 0.0f) << to_string(kind);
    }
  }
}

TEST(Activations, SwigluIsSiluOfTheGateTimesTheUp) {
  for (float gate = -12; gate <= 12; gate += 0.125f) {
    for (const float up : {-3.0f, 0.0f, 0.5f, 100.0f}) {
      const double expected = activated(Activation::silu, gate) * up;
      ASSERT_NEAR(applied(Activation::swiglu, gate, up), expected, 1e-6 * std::max(1.0, std::abs(expected)));
    }
  }
  EXPECT_TRUE(std::isnan(applied(Activation::swiglu, NAN, 1.0f)));
  EXPECT_TRUE(std::isnan(applied(Activation::swiglu, 0.0f, NAN)));
}

}  // namespace
}  // namespace cleave
