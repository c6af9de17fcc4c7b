// The model of a product's time with constants that are yet to be found, and that of convolutions, which has none of
// these: what fitting needs of the planner.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cleave/core/api.h"
#include "cleave/device.h"
#include "cleave/gemm.h"
#include "plan/choice/choice.h"
#include "plan/cost/product_cost.h"

namespace cleave {

class CLEAVE_TOOLS ProductModel {
 public:
  /// On an H200, where the pairs were measured.
  ProductModel();

  /// Adds the problem of `plan` as `kernel` (see Spec) runs it. Returns its ForestKind, or -1 where it has
  /// none. `sizes`: of groups, if they are known.
  int add(const GemmPlan& plan, const std::string& kernel, const std::vector<int64_t>& sizes = {});

  /// Microseconds of what was added, in order, by the constants alone. `likely`: with which of its likely numbers of
  /// tiles (likely_steps.h); without it, for the sizes that are known.
  std::vector<double> predict(const std::vector<double>& constants, std::optional<size_t> likely = {}) const;

  /// What the trees of product_residual.h may ask, the same.
  std::vector<std::vector<float>> features(const std::vector<double>& constants,
                                           std::optional<size_t> likely = {}) const;

  /// The microseconds that the planner takes: what ships of constants and trees.
  std::vector<double> predict_shipped() const;

  static std::vector<std::string> constant_names();
  static std::vector<std::string> feature_names();
  static std::vector<double> constants(int kind);

 private:
  struct Added {
    Choice choice;
    double known_tiles;

    double tiles(std::optional<size_t> likely) const;
  };

  ProductTime time_of(const Added& added, const ProductConstants& constants, std::optional<size_t> likely) const;

  std::vector<Added> added_;
  DeviceInfo device_;
};

}  // namespace cleave
