#include "plan/product_model.h"

#include <cstring>

#include "base/refuse.h"
#include "plan/cost.h"
#include "plan/model_device.h"
#include "plan/product_cost.h"

namespace cleave {
namespace {

constexpr size_t kConstants = sizeof(ProductConstants) / sizeof(double);

}  // namespace

ProductModel::ProductModel(double memory_gb_per_s) : device_(model_device("sm_90a")) {
  device_.memory_gb_per_s = memory_gb_per_s;
}

int ProductModel::add(const GemmPlan& plan, const std::string& kernel) {
  const auto spec = parse_spec(kernel);
  auto choice = spec ? make_choice(plan.problem(), device_, *spec) : std::nullopt;
  if (!choice || !is_predicted_product(*choice)) return -1;
  const int kind = int(mainloop_kind(choice->config));
  choices_.push_back(std::move(*choice));
  return kind;
}

std::vector<double> ProductModel::predict(const std::vector<double>& constants) const {
  if (constants.size() != kConstants) {
    refuse_value("constants has {} values; the model has {}", constants.size(), kConstants);
  }
  ProductConstants values;
  std::memcpy(&values, constants.data(), sizeof values);
  std::vector<double> us(choices_.size());
  for (size_t i = 0; i < us.size(); ++i) us[i] = predict_product_us(choices_[i], device_, values);
  return us;
}

std::vector<std::string> ProductModel::constant_names() {
#define CLEAVE_NAME(name) #name,
  return {CLEAVE_PRODUCT_CONSTANTS(CLEAVE_NAME)};
#undef CLEAVE_NAME
}

std::vector<double> ProductModel::constants(int kind) {
  const ProductConstants& values = product_constants(MainloopKind(kind));
  std::vector<double> list(kConstants);
  std::memcpy(list.data(), &values, sizeof values);
  return list;
}

}  // namespace cleave
