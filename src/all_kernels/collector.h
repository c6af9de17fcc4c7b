// Configurations of kernels, each once, by the problems that need them.
#pragma once

#include <utility>
#include <vector>

#include "cleave/config/gemm_config.h"
#include "cleave/core/enums.h"
#include "cleave/device.h"
#include "cleave/gemm.h"
#include "plan/choice/spec.h"

namespace cleave {

class Collector {
 public:
  explicit Collector(const DeviceInfo& device) : device_(device) {}

  /// What each tile runs. Multicast and the order of D's stores do not depend on the rest: where `all_sharings` is
  /// false, there is none of either.
  void visit(const GemmProblem& problem, SplitKMode split = SplitKMode::none, bool all_sharings = false,
             bool in_turn = false);

  /// What each method runs that convolves directly.
  void visit_direct(const GemmProblem& problem);

  std::vector<GemmConfig> take() { return std::move(configs_); }

 private:
  void add(const GemmProblem& problem, const Spec& spec);

  const DeviceInfo& device_;
  std::vector<GemmConfig> configs_;
};

}  // namespace cleave
