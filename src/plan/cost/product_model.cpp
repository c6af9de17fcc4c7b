#include "plan/cost/product_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/refuse.h"
#include "cleave/config/clusters.h"
#include "cleave/schedule/groups.h"
#include "plan/cost/cost.h"
#include "plan/cost/product_cost.h"
#include "plan/cost/product_residual.h"

namespace cleave {
namespace {

constexpr size_t kConstants = sizeof(ProductConstants) / sizeof(double);

ProductConstants constants_of(const std::vector<double>& list) {
  if (list.size() != kConstants) refuse_value("constants has {} values; the model has {}", list.size(), kConstants);
  ProductConstants values;
  std::memcpy(&values, list.data(), sizeof values);
  return values;
}

/// Tiles of groups of M or N with these sizes; without them, as many as the planner expects.
double known_tiles(const Choice& choice, const std::vector<int64_t>& sizes) {
  const Grouping grouping = choice.schedule.grouping;
  const bool m = grouping == Grouping::m, n = grouping == Grouping::n;
  if (sizes.empty() || !(m || n)) return choice.tiles;
  uint32_t steps = 0;
  for (const int64_t size : sizes) steps += group_steps(grouping, {0, uint32_t(size)}, group_step(choice.config));
  return double(steps) * (m ? choice.schedule.tiles_n : choice.schedule.tiles_m);
}

}  // namespace

ProductModel::ProductModel() : device_(device_info(kPlanOnlyH200)) {}

int ProductModel::add(const GemmPlan& plan, const std::string& kernel, const std::vector<int64_t>& sizes) {
  const auto spec = parse_spec(kernel);
  auto choice = spec ? make_choice(plan.problem(), device_, *spec) : std::nullopt;
  const auto kind = choice ? forest_kind(*choice) : std::nullopt;
  if (!kind) return -1;
  const double tiles = known_tiles(*choice, sizes);
  added_.push_back({std::move(*choice), tiles});
  return int(*kind);
}

double ProductModel::Added::tiles(std::optional<size_t> likely) const {
  if (!likely) return known_tiles;
  const auto values = choice.likely_tiles.values();
  return values[std::min(*likely, values.size() - 1)];
}

ProductTime ProductModel::time_of(const Added& added, const ProductConstants& constants,
                                  std::optional<size_t> likely) const {
  return is_predicted_product(added.choice) ? predict_product(added.choice, device_, constants)
                                            : predict_other(added.choice, device_, added.tiles(likely));
}

std::vector<double> ProductModel::predict(const std::vector<double>& constants, std::optional<size_t> likely) const {
  const ProductConstants values = constants_of(constants);
  std::vector<double> us(added_.size());
  std::ranges::transform(added_, us.begin(), [&](const Added& each) { return time_of(each, values, likely).us; });
  return us;
}

std::vector<std::vector<float>> ProductModel::features(const std::vector<double>& constants,
                                                       std::optional<size_t> likely) const {
  const ProductConstants values = constants_of(constants);
  std::vector<std::vector<float>> rows;
  for (const Added& each : added_) {
    const ProductTime time = time_of(each, values, likely);
    const auto features = product_features(each.choice, device_, each.tiles(likely), time);
    const auto row = std::bit_cast<std::array<float, kProductFeatures>>(features);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

std::vector<double> ProductModel::predict_shipped() const {
  std::vector<double> us(added_.size());
  std::ranges::transform(added_, us.begin(), [&](const Added& each) { return predict_us(each.choice, device_); });
  return us;
}

std::vector<std::string> ProductModel::constant_names() {
#define CLEAVE_NAME(name) #name,
  return {CLEAVE_PRODUCT_CONSTANTS(CLEAVE_NAME)};
#undef CLEAVE_NAME
}

std::vector<std::string> ProductModel::feature_names() {
#define CLEAVE_NAME(name) #name,
  return {CLEAVE_PRODUCT_FEATURES(CLEAVE_NAME)};
#undef CLEAVE_NAME
}

std::vector<double> ProductModel::constants(int kind) {
  if (kind < 0 || size_t(kind) >= kMainloopKinds)
    refuse_value("kind is {}, but {} kinds of mainloop have constants", kind, kMainloopKinds);
  const ProductConstants& values = product_constants(MainloopKind(kind));
  std::vector<double> list(kConstants);
  std::memcpy(list.data(), &values, sizeof values);
  return list;
}

}  // namespace cleave
