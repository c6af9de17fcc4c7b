// Written by python -m bench.fit.
#include "plan/product_constants.h"

namespace cleave {
namespace {

// clang-format off
constexpr ProductConstants kFitted[kMainloopKinds] = {
    // k_major
    {
    .launch = 3.81, .multiply = 1.323, .pingpong = 1.011, .narrow = 0.1132, .shared_memory = 0.5141, .block = 36.66,
    .row = 1.304, .row_outside = 2.877, .row_received = 2.229, .latency = 0.9334, .l2 = 22.5, .l2_apart = 1.777,
    .misaligned = 0.6559, .shared_line = 0.04, .memory = 0.9102, .read_again = 0.1433, .power = 0.8371, .power_l2 =
    0.02757, .norm = 2.465, .tile = 122.3, .store_tma = 1.67, .store_row = 13.36, .store_column = 16.7, .later_tile
    = 6, .share = 33.36, .in_step = 0.1476, .cluster = 0.2466, .cluster_bytes = 20.22, .parallel = 1.209,
    .partial_bytes = 68.99, .stream = 1.871, .stream_blocks = 1.138, .promote = 1, .promote_singly = 1.5
    },
    // strips
    {
    .launch = 3.719, .multiply = 1.172, .pingpong = 0.9418, .narrow = 0.2214, .shared_memory = 0.6823, .block =
    6.86, .row = 1.556, .row_outside = 2.926, .row_received = 1.8, .latency = 0.9, .l2 = 29.1, .l2_apart = 0.952,
    .misaligned = 2.003, .shared_line = 0.02348, .memory = 0.8681, .read_again = 0.1671, .power = 0.7982, .power_l2
    = 0.08205, .norm = 2.333, .tile = 66.75, .store_tma = 1.669, .store_row = 16.79, .store_column = 31.08,
    .later_tile = 4.376, .share = 33.33, .in_step = 0.06368, .cluster = 0.3418, .cluster_bytes = 27.34, .parallel =
    1.563, .partial_bytes = 37.18, .stream = 1.295, .stream_blocks = 1.3, .promote = 1, .promote_singly = 1.5
    },
    // eight
    {
    .launch = 3.278, .multiply = 1.217, .pingpong = 0.9092, .narrow = 0.1741, .shared_memory = 0.6227, .block =
    7.606, .row = 1.193, .row_outside = 3.452, .row_received = 1.805, .latency = 1.038, .l2 = 27.38, .l2_apart =
    1.144, .misaligned = 2.1, .shared_line = 0.04, .memory = 0.9275, .read_again = 0.1245, .power = 0.747, .power_l2
    = 0.03447, .norm = 2.024, .tile = 599.9, .store_tma = 14.74, .store_row = 51.54, .store_column = 71.33,
    .later_tile = 1.081, .share = 62.54, .in_step = 0.08755, .cluster = 0.3039, .cluster_bytes = 59.8, .parallel =
    1.403, .partial_bytes = 39.98, .stream = 1.398, .stream_blocks = 1.221, .promote = 1, .promote_singly = 1.5
    },
    // promoted
    {
    .launch = 3.587, .multiply = 1.13, .pingpong = 1.285, .narrow = 0.04747, .shared_memory = 0.7631, .block =
    10.67, .row = 0.86, .row_outside = 4.398, .row_received = 2.443, .latency = 0.9356, .l2 = 20.38, .l2_apart =
    1.296, .misaligned = 0.4886, .shared_line = 0.04, .memory = 0.8994, .read_again = 0.07092, .power = 0.721,
    .power_l2 = 0.1101, .norm = 2.407, .tile = 70.64, .store_tma = 6.289, .store_row = 36.91, .store_column = 56.25,
    .later_tile = 3, .share = 53.74, .in_step = 0.08171, .cluster = 0.2608, .cluster_bytes = 31.8, .parallel =
    1.465, .partial_bytes = 36.01, .stream = 1.322, .stream_blocks = 1.171, .promote = 2.473, .promote_singly = 3.13
    },
};
// clang-format on

}  // namespace

const ProductConstants& product_constants(MainloopKind kind) {
  return kFitted[size_t(kind)];
}

}  // namespace cleave
