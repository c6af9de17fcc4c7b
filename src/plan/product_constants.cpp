// Written by python -m bench.fit.
#include "plan/product_constants.h"

namespace cleave {
namespace {

// clang-format off
constexpr ProductConstants kFitted[kMainloopKinds] = {
    // k_major
    {
    .launch = 3.888, .multiply = 1.222, .pingpong = 0.9913, .narrow = 0.1135, .shared_memory = 0.5215, .block =
    39.39, .row = 1.325, .row_outside = 2.763, .row_received = 2.323, .latency = 1.026, .l2 = 21.93, .l2_apart =
    1.736, .misaligned = 0.654, .shared_line = 0.04, .memory = 0.899, .read_again = 0.1342, .power = 0.7938,
    .power_l2 = 0.02748, .norm = 2.516, .tile = 120.5, .store_tma = 1.67, .store_row = 13.34, .store_column = 16.68,
    .later_tile = 6, .share = 33.36, .in_step = 0.1241, .cluster = 0.2602, .cluster_bytes = 20.7, .parallel = 1.174,
    .partial_bytes = 69, .stream = 1.773, .stream_blocks = 1.098, .promote = 1, .promote_singly = 1.5, .copy = 60
    },
    // strips
    {
    .launch = 3.86, .multiply = 1.109, .pingpong = 0.957, .narrow = 0.2721, .shared_memory = 0.7203, .block = 8.539,
    .row = 1.612, .row_outside = 3.159, .row_received = 1.897, .latency = 0.9, .l2 = 24.33, .l2_apart = 1.047,
    .misaligned = 1.577, .shared_line = 0.02072, .memory = 0.8314, .read_again = 0.1903, .power = 0.8261, .power_l2
    = 0.04649, .norm = 2.672, .tile = 68.87, .store_tma = 1.668, .store_row = 16.48, .store_column = 31.19,
    .later_tile = 4.45, .share = 33.33, .in_step = 0.06208, .cluster = 0.3543, .cluster_bytes = 29.47, .parallel =
    1.568, .partial_bytes = 49.43, .stream = 1.319, .stream_blocks = 1.296, .promote = 1, .promote_singly = 1.5,
    .copy = 70.25
    },
    // eight
    {
    .launch = 3.455, .multiply = 1.225, .pingpong = 0.9217, .narrow = 0.1858, .shared_memory = 0.6261, .block =
    9.282, .row = 1.21, .row_outside = 3.483, .row_received = 1.78, .latency = 1.045, .l2 = 29.43, .l2_apart =
    1.179, .misaligned = 2.028, .shared_line = 0.04, .memory = 0.9236, .read_again = 0.1345, .power = 0.77,
    .power_l2 = 0.03287, .norm = 2.058, .tile = 600, .store_tma = 14.1, .store_row = 51.65, .store_column = 72.6,
    .later_tile = 1.136, .share = 59.09, .in_step = 0.0823, .cluster = 0.312, .cluster_bytes = 70.16, .parallel =
    1.405, .partial_bytes = 44.93, .stream = 1.425, .stream_blocks = 1.192, .promote = 1, .promote_singly = 1.5,
    .copy = 60
    },
    // promoted
    {
    .launch = 3.778, .multiply = 1.093, .pingpong = 1.205, .narrow = 0.04593, .shared_memory = 0.739, .block =
    9.362, .row = 0.7948, .row_outside = 4.614, .row_received = 2.479, .latency = 0.9078, .l2 = 18.96, .l2_apart =
    1.281, .misaligned = 0.4503, .shared_line = 0.04, .memory = 0.8972, .read_again = 0.06915, .power = 0.6828,
    .power_l2 = 0.09606, .norm = 2.413, .tile = 71.34, .store_tma = 4.374, .store_row = 29.86, .store_column =
    47.33, .later_tile = 3.864, .share = 45.83, .in_step = 0.07771, .cluster = 0.2568, .cluster_bytes = 26.47,
    .parallel = 1.435, .partial_bytes = 34.11, .stream = 1.295, .stream_blocks = 1.139, .promote = 2.597,
    .promote_singly = 3.222, .copy = 60
    },
};
// clang-format on

}  // namespace

const ProductConstants& product_constants(MainloopKind kind) {
  return kFitted[size_t(kind)];
}

}  // namespace cleave
