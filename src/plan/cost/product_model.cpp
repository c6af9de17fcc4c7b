#include "plan/cost/product_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/refuse.h"
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

}  // namespace

ProductModel::ProductModel() : device_(device_info(kPlanOnlyH200)) {}

int ProductModel::add(const GemmPlan& plan, const std::string& kernel) {
  const auto spec = parse_spec(kernel);
  auto choice = spec ? make_choice(plan.problem(), device_, *spec) : std::nullopt;
  const auto kind = choice ? forest_kind(*choice) : std::nullopt;
  if (!kind) return -1;
  choices_.push_back(std::move(*choice));
  return int(*kind);
}

ProductTime ProductModel::time_of(const Choice& choice, const ProductConstants& constants) const {
  return is_predicted_product(choice) ? predict_product(choice, device_, constants) : predict_other(choice, device_);
}

std::vector<double> ProductModel::predict(const std::vector<double>& constants) const {
  const ProductConstants values = constants_of(constants);
  std::vector<double> us(choices_.size());
  std::ranges::transform(choices_, us.begin(), [&](const Choice& c) { return time_of(c, values).us; });
  return us;
}

std::vector<std::vector<float>> ProductModel::features(const std::vector<double>& constants) const {
  const ProductConstants values = constants_of(constants);
  std::vector<std::vector<float>> rows;
  for (const Choice& choice : choices_) {
    const auto features = product_features(choice, device_, time_of(choice, values));
    const auto row = std::bit_cast<std::array<float, kProductFeatures>>(features);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

std::vector<double> ProductModel::predict_shipped() const {
  std::vector<double> us(choices_.size());
  std::ranges::transform(choices_, us.begin(), [&](const Choice& c) { return predict_us(c, device_); });
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
