// The gradients of a weighted `combine`, from those of its sums: of a row, the token's times the
// slot's weight; of a weight, the product of the token's gradient and the row. Dropped slots get
// zeros.
//
// Roles      a warp has a slot; lanes take turns along its row
// Timeline   the rows stream through; the warp adds its lanes' products, always in the same order
#pragma once

#include "cleave/core/element.h"
#include "cleave/core/multiply_add.h"
#include "cleave/memory/packed.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <MoeConfig C>
CLEAVE_DEVICE void combine_backward(const MoeParams& p) {
  constexpr uint32_t kValues = C.width / size_of(C.type);
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  const uint32_t slot = (blockIdx.x * kRowThreads + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (slot >= p.slots) return;
  const Signed row(p.positions[slot]);
  if (row.index >= p.slots) return;
  const float weight = load_element(C.weights, p.weights, slot);
  const auto grad = static_cast<const char*>(p.tokens) + slot / p.top_k * p.token_stride;
  const auto value = static_cast<const char*>(p.rows) + row.index * p.row_stride;
  const auto result = static_cast<char*>(p.rows_grad) + row.index * p.row_grad_stride;

  float sum = 0.0f;
  for (uint32_t byte = lane * C.width; byte < p.row_bytes; byte += 32 * C.width) {
    Packed<C.width> product = {};
    if (!row.dropped) {
      const auto of_token = load_packed<C.width>(grad + byte);
      const auto of_row = load_packed<C.width>(value + byte);
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < kValues; ++j) {
        const float x = load_element(C.type, of_token.bytes(), j);
        sum = multiply_add(x, load_element(C.type, of_row.bytes(), j), sum);
        store_element(C.type, product.bytes(), j, weight * x);
      }
    }
    store_packed(result + byte, product);
  }
  CLEAVE_UNROLL
  for (uint32_t distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane == 0) store_element(C.weights, p.weights_grad, slot, sum);
}

}  // namespace cleave
