// Epilogue functions on the host, a line of D at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "cleave/epilogue.h"

namespace cleave {

/// Values of one line that a function is evaluated for at a time. Every array that it reads or writes has room for
/// so many.
inline constexpr uint32_t kEvaluatedLanes = 128;

/// A function as a list of operations on lines, in memory that it brings: a few lines for many values.
class EpilogueEvaluator {
 public:
  explicit EpilogueEvaluator(const EpilogueFunction& function);

  /// A caller's memory. Threads that evaluate at the same time have one each.
  std::vector<float> scratch() const;

  /// For `count` values, or a few more. `outputs` may be `sums`. A gated function's `sums` are the gates', its
  /// `ups` those of the up projection.
  void operator()(uint32_t count, const float* sums, const float* ups, const float* const* inputs,
                  float* const* outputs, std::vector<float>& scratch) const;

 private:
  /// Where a value lies.
  struct Place {
    enum class Kind : uint8_t { sums, ups, input, scratch };
    Kind kind = Kind::sums;
    uint32_t number = 0;
  };
  /// An operation on lines: count, operands, result.
  using Apply = void(uint32_t, const float*, const float*, const float*, float*);
  struct Step {
    Apply* apply = nullptr;
    Place operands[3], result;
  };

  std::vector<Step> steps_;
  std::vector<std::pair<uint32_t, float>> constants_;  // lines of the scratch, which no step writes
  std::vector<Place> outputs_;
  uint32_t lines_ = 0;
};

}  // namespace cleave
