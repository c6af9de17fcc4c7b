// Written by python -m bench.fit.
#include "plan/product_constants.h"

namespace cleave {

const ProductConstants& product_constants(MainloopKind kind) {
  static constexpr ProductConstants table[kMainloopKinds] = {
      {
          // k_major
          .launch = 3.731,         .multiply = 1.559,      .pingpong = 0.9305,    .narrow = 0.1316,
          .shared_memory = 0.4637, .block = 26.47,         .row = 1.187,          .row_outside = 3.065,
          .row_received = 1.684,   .latency = 0.8394,      .l2 = 22.25,           .l2_apart = 1.432,
          .misaligned = 0.3642,    .shared_line = 0.05,    .memory = 0.9743,      .read_again = 0.1634,
          .power = 0.7528,         .power_l2 = 0.01407,    .norm = 1.929,         .tile = 13.64,
          .store_tma = 0.1401,     .store_row = 2.342,     .store_column = 4.701, .later_tile = 41.88,
          .share = 3.449,          .in_step = 0.2302,      .cluster = 0.2859,     .cluster_bytes = 17.59,
          .parallel = 1.289,       .partial_bytes = 572.7, .stream = 2.542,       .stream_blocks = 1.294,
          .promote = 0.7,          .promote_singly = 1,
      },
      {
          // strips
          .launch = 3.486,         .multiply = 1.044,      .pingpong = 0.9688,    .narrow = 0.1616,
          .shared_memory = 0.7759, .block = 7.558,         .row = 0.5875,         .row_outside = 5.61,
          .row_received = 3.465,   .latency = 0.9,         .l2 = 21.48,           .l2_apart = 1.07,
          .misaligned = 1.45,      .shared_line = 0.01181, .memory = 0.8521,      .read_again = 0.1666,
          .power = 0.6942,         .power_l2 = 0.009277,   .norm = 2.42,          .tile = 41.19,
          .store_tma = 2.009,      .store_row = 15.79,     .store_column = 26.43, .later_tile = 5.18,
          .share = 9.862,          .in_step = 0.07411,     .cluster = 0.3484,     .cluster_bytes = 26.79,
          .parallel = 1.481,       .partial_bytes = 27.73, .stream = 1.667,       .stream_blocks = 1.17,
          .promote = 0.7,          .promote_singly = 1,
      },
      {
          // eight
          .launch = 3.372,
          .multiply = 1.22,
          .pingpong = 0.9208,
          .narrow = 0.08004,
          .shared_memory = 0.5954,
          .block = 3.128,
          .row = 0.9388,
          .row_outside = 4.05,
          .row_received = 2.079,
          .latency = 1.002,
          .l2 = 24.9,
          .l2_apart = 1.201,
          .misaligned = 4.194,
          .shared_line = 0.05,
          .memory = 0.9741,
          .read_again = 0.204,
          .power = 0.7031,
          .power_l2 = 0.02188,
          .norm = 1.887,
          .tile = 717.4,
          .store_tma = 13.73,
          .store_row = 49.42,
          .store_column = 66.09,
          .later_tile = 1.005,
          .share = 100.6,
          .in_step = 0.09172,
          .cluster = 0.259,
          .cluster_bytes = 45.94,
          .parallel = 1.384,
          .partial_bytes = 31.04,
          .stream = 1.259,
          .stream_blocks = 1.192,
          .promote = 0.7,
          .promote_singly = 1,
      },
      {
          // promoted
          .launch = 3.924,         .multiply = 0.9718,      .pingpong = 1.235,     .narrow = 0.0397,
          .shared_memory = 0.8517, .block = 7.119,          .row = 0.7932,         .row_outside = 5.134,
          .row_received = 2.84,    .latency = 0.897,        .l2 = 25.72,           .l2_apart = 1.428,
          .misaligned = 0.9,       .shared_line = 0.05,     .memory = 0.9596,      .read_again = 0.03045,
          .power = 0.374,          .power_l2 = 0.7832,      .norm = 2.102,         .tile = 12.96,
          .store_tma = 5.611,      .store_row = 37.61,      .store_column = 59.61, .later_tile = 3.073,
          .share = 56.08,          .in_step = 0.08555,      .cluster = 0.2342,     .cluster_bytes = 211.1,
          .parallel = 1.251,       .partial_bytes = 28.35,  .stream = 1.056,       .stream_blocks = 1.186,
          .promote = 1.846,        .promote_singly = 2.919,
      },
  };
  return table[size_t(kind)];
}

}  // namespace cleave
