#include "plan/choice/likely_steps.h"

#include <algorithm>
#include <cmath>

#include "cleave/core/math.h"

namespace cleave {
namespace {

constexpr double kUneven = 0.3;     // of the mean
constexpr int64_t kMostParts = 16;  // of groups; a part's are of one length

/// Steps of a group of so many elements. Less than one of them is the chance that there is one.
double steps_of(double elements, double step) {
  return elements < 1 ? std::max(elements, 0.0) : std::ceil(elements / step - 1e-9);
}

/// Lengths at even distances, up to `width` from the mean.
double steps_around(double mean, double width, int64_t groups, double step) {
  const int64_t parts = std::min(groups, kMostParts);
  double sum = 0;
  for (int64_t i = 0; i < parts; ++i) sum += steps_of(mean + width * (double(2 * i + 1) / double(parts) - 1), step);
  return sum * double(groups) / double(parts);
}

double steps_by_rank(double total, int64_t groups, double step) {
  double sum = 0;
  if (groups <= kMostParts) {
    double shares = 0;
    for (int64_t rank = 1; rank <= groups; ++rank) shares += 1 / double(rank);
    for (int64_t rank = 1; rank <= groups; ++rank) sum += steps_of(total / shares / double(rank), step);
    return sum;
  }
  // Parts with the same share of the elements: ranks from 0.5 on, as many times as many in each part as in the last.
  const double ratio = std::pow(2 * double(groups) + 1, 1.0 / double(kMostParts));
  double begin = 0.5;
  for (int64_t i = 0; i < kMostParts; ++i, begin *= ratio) {
    const double ranks = begin * (ratio - 1);
    sum += ranks * steps_of(total / double(kMostParts) / ranks, step);
  }
  return sum;
}

}  // namespace

Likely likely_steps(int64_t total, int64_t groups, uint32_t step, int64_t spacing) {
  if (groups <= 1 || (spacing > 1 && spacing % step == 0)) return Likely(double(ceil_div<int64_t>(total, step)));
  const double between = double(groups) * double(spacing - 1) / 2;  // elements that no group has, if ends are anywhere
  const double elements = std::max(double(total) - between, double(total) / 2);
  const double mean = elements / double(groups);
  const double by_chance = std::min(std::sqrt(3 * mean), mean);  // a uniform distribution of Poisson's variance
  return Likely({steps_around(mean, by_chance, groups, step),
                 steps_around(mean, std::max(by_chance, kUneven * mean), groups, step),
                 steps_by_rank(elements, groups, step)});
}

}  // namespace cleave
