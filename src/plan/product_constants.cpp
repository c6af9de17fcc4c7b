// Written by python -m bench.fit.
#include "plan/product_constants.h"

namespace cleave {
namespace {

// clang-format off
constexpr ProductConstants kFitted[kMainloopKinds] = {
    // k_major
    {
    .launch = 3.899, .multiply = 1.24, .pingpong = 0.9911, .narrow = 0.1134, .shared_memory = 0.5161, .block =
    37.71, .row = 1.306, .row_outside = 2.791, .row_received = 2.292, .latency = 0.9742, .l2 = 22.02, .l2_apart =
    1.732, .misaligned = 0.651, .shared_line = 0.04, .memory = 0.9021, .read_again = 0.1391, .power = 0.7934,
    .power_l2 = 0.02755, .norm = 2.484, .tile = 121.6, .store_tma = 1.67, .store_row = 13.35, .store_column = 16.69,
    .later_tile = 6, .share = 33.36, .in_step = 0.1349, .cluster = 0.2512, .cluster_bytes = 20.51, .parallel =
    1.167, .partial_bytes = 68.99, .stream = 1.788, .stream_blocks = 1.096, .promote = 1, .promote_singly = 1.5
    },
    // strips
    {
    .launch = 3.874, .multiply = 1.108, .pingpong = 0.959, .narrow = 0.2618, .shared_memory = 0.7315, .block =
    9.429, .row = 1.627, .row_outside = 2.986, .row_received = 1.849, .latency = 0.9, .l2 = 26.1, .l2_apart = 1.034,
    .misaligned = 1.65, .shared_line = 0.0206, .memory = 0.837, .read_again = 0.1647, .power = 0.8072, .power_l2 =
    0.05325, .norm = 2.551, .tile = 85.79, .store_tma = 1.755, .store_row = 17.88, .store_column = 31.55,
    .later_tile = 4.131, .share = 33.33, .in_step = 0.05306, .cluster = 0.3527, .cluster_bytes = 32.08, .parallel =
    1.571, .partial_bytes = 55.18, .stream = 1.351, .stream_blocks = 1.33, .promote = 1, .promote_singly = 1.5
    },
    // eight
    {
    .launch = 3.454, .multiply = 1.226, .pingpong = 0.9212, .narrow = 0.1858, .shared_memory = 0.6239, .block =
    9.282, .row = 1.209, .row_outside = 3.483, .row_received = 1.78, .latency = 1.051, .l2 = 29.43, .l2_apart =
    1.179, .misaligned = 2.028, .shared_line = 0.04, .memory = 0.9236, .read_again = 0.1345, .power = 0.7706,
    .power_l2 = 0.03287, .norm = 2.057, .tile = 600, .store_tma = 14.11, .store_row = 51.65, .store_column = 72.6,
    .later_tile = 1.135, .share = 59.09, .in_step = 0.08231, .cluster = 0.312, .cluster_bytes = 70.16, .parallel =
    1.405, .partial_bytes = 44.93, .stream = 1.425, .stream_blocks = 1.192, .promote = 1, .promote_singly = 1.5
    },
    // promoted
    {
    .launch = 3.779, .multiply = 1.098, .pingpong = 1.217, .narrow = 0.04593, .shared_memory = 0.74, .block = 9.352,
    .row = 0.7952, .row_outside = 4.616, .row_received = 2.481, .latency = 0.9086, .l2 = 19.01, .l2_apart = 1.282,
    .misaligned = 0.4503, .shared_line = 0.04, .memory = 0.897, .read_again = 0.06915, .power = 0.6869, .power_l2 =
    0.09606, .norm = 2.414, .tile = 71.35, .store_tma = 4.374, .store_row = 29.87, .store_column = 47.32,
    .later_tile = 3.861, .share = 45.82, .in_step = 0.0777, .cluster = 0.2568, .cluster_bytes = 26.47, .parallel =
    1.435, .partial_bytes = 34.1, .stream = 1.295, .stream_blocks = 1.139, .promote = 2.596, .promote_singly = 3.222
    },
};
// clang-format on

}  // namespace

const ProductConstants& product_constants(MainloopKind kind) {
  return kFitted[size_t(kind)];
}

}  // namespace cleave
