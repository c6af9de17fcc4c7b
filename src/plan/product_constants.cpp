// Written by python -m bench.fit.
#include "plan/product_constants.h"

namespace cleave {
namespace {

// clang-format off
constexpr ProductConstants kFitted[kMainloopKinds] = {
    // k_major
    {
    .launch = 3.578, .multiply = 1.452, .pingpong = 0.9967, .narrow = 0.1024, .shared_memory = 0.5281, .block =
    27.03, .row = 1.288, .row_outside = 2.973, .row_received = 1.704, .latency = 0.8804, .l2 = 21.91, .l2_apart =
    1.478, .misaligned = 0.4158, .shared_line = 0.04, .memory = 0.9755, .read_again = 0.1791, .power = 0.7236,
    .power_l2 = 0.02992, .norm = 1.989, .tile = 114.9, .store_tma = 1.714, .store_row = 13.37, .store_column =
    16.69, .later_tile = 5.988, .share = 33.34, .in_step = 0.2027, .cluster = 0.3637, .cluster_bytes = 21.45,
    .parallel = 1.263, .partial_bytes = 68.99, .stream = 1.984, .stream_blocks = 1.185, .promote = 1,
    .promote_singly = 1.5
    },
    // strips
    {
    .launch = 3.474, .multiply = 0.9973, .pingpong = 0.9696, .narrow = 0.1756, .shared_memory = 0.5981, .block =
    21.09, .row = 1.334, .row_outside = 3.405, .row_received = 2.37, .latency = 0.9, .l2 = 20.55, .l2_apart = 1.063,
    .misaligned = 1.269, .shared_line = 0.01346, .memory = 0.8584, .read_again = 0.1786, .power = 0.5931, .power_l2
    = 0.05229, .norm = 2.379, .tile = 88.48, .store_tma = 1.807, .store_row = 17.31, .store_column = 29.21,
    .later_tile = 4.591, .share = 33.36, .in_step = 0.05938, .cluster = 0.309, .cluster_bytes = 27.86, .parallel =
    1.532, .partial_bytes = 35.6, .stream = 1.405, .stream_blocks = 1.209, .promote = 1, .promote_singly = 1.5
    },
    // eight
    {
    .launch = 3.632, .multiply = 1.179, .pingpong = 0.9283, .narrow = 0.09377, .shared_memory = 0.5816, .block =
    9.419, .row = 1.069, .row_outside = 3.996, .row_received = 1.986, .latency = 0.9791, .l2 = 21.36, .l2_apart =
    1.189, .misaligned = 2.1, .shared_line = 0.04, .memory = 0.9665, .read_again = 0.2001, .power = 0.6691,
    .power_l2 = 0.03599, .norm = 1.939, .tile = 287.8, .store_tma = 9.999, .store_row = 48.16, .store_column =
    66.02, .later_tile = 1.494, .share = 56.11, .in_step = 0.1059, .cluster = 0.2652, .cluster_bytes = 44.53,
    .parallel = 1.451, .partial_bytes = 34.92, .stream = 1.155, .stream_blocks = 1.201, .promote = 1,
    .promote_singly = 1.5
    },
    // promoted
    {
    .launch = 3.871, .multiply = 1.217, .pingpong = 0.7149, .narrow = 0.1049, .shared_memory = 0.8279, .block = 8.7,
    .row = 0.6896, .row_outside = 5.003, .row_received = 2.808, .latency = 0.8733, .l2 = 24.35, .l2_apart = 1.363,
    .misaligned = 0.7, .shared_line = 0.04, .memory = 0.9697, .read_again = 0.06667, .power = 0.6064, .power_l2 =
    0.05242, .norm = 2.023, .tile = 66.67, .store_tma = 4.628, .store_row = 32.69, .store_column = 53.03,
    .later_tile = 3.034, .share = 47.43, .in_step = 0.07229, .cluster = 0.2313, .cluster_bytes = 49.48, .parallel =
    1.361, .partial_bytes = 31.2, .stream = 0.9637, .stream_blocks = 1.183, .promote = 2.198, .promote_singly =
    2.938
    },
};
// clang-format on

}  // namespace

const ProductConstants& product_constants(MainloopKind kind) {
  return kFitted[size_t(kind)];
}

}  // namespace cleave
