#include "all_kernels/all_configs.h"

#include "all_kernels/collector.h"
#include "all_kernels/subjects.h"

namespace cleave {

std::vector<GemmConfig> all_configs(const DeviceInfo& device) {
  Collector all(device);
  visit_products(all);
  visit_functions(all);
  visit_scales(all);
  visit_groups(all);
  visit_quantised(all);
  visit_packed_weights(all);
  visit_convolutions(all);
  visit_direct_convolutions(all);
  visit_other_float32(all);
  visit_transposed_convolutions(all);
  return all.take();
}

}  // namespace cleave
