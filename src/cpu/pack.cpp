#include "cpu/pack.h"

#include "cleave/core/element.h"
#include "cleave/core/math.h"
#include "cpu/micro_kernel.h"

namespace cleave::cpu {
namespace {

/// K elements taken from one row before the next row's: a cache line of the row is then used up
/// while it is near, also where rows lie a power of two apart and compete for the same few lines.
constexpr uint32_t kRunLength = 32;

/// Rows (columns) that are neighbours in memory: each step of K is one short copy.
template <DType type, uint32_t width>
void pack_across(const void* data, int64_t first, int64_t k_stride, uint32_t k, float* out) {
  for (uint32_t p = 0; p < k; ++p, first += k_stride, out += width) {
    for (uint32_t i = 0; i < width; ++i) out[i] = load_element(type, data, first + i);
  }
}

/// Anything else; meant for rows (columns) whose K elements are neighbours in memory.
template <DType type, uint32_t width>
void pack_along(const Block& block, int64_t first, uint32_t used, float* out) {
  for (uint32_t begin = 0; begin < block.k; begin += kRunLength, out += kRunLength * width) {
    const uint32_t run = min_of(kRunLength, block.k - begin);
    for (uint32_t i = 0; i < width; ++i) {
      const int64_t row = first + i * block.stride + begin * block.k_stride;
      for (uint32_t p = 0; p < run; ++p) {
        out[p * width + i] =
            i < used ? load_element(type, block.data, row + p * block.k_stride) : 0.0f;
      }
    }
  }
}

template <DType type, uint32_t width>
void pack_panels(const Block& block, float* out) {
  for (uint32_t begin = 0; begin < block.count; begin += width, out += width * block.k) {
    const uint32_t used = min_of(width, block.count - begin);
    const int64_t first = block.offset + begin * block.stride;
    if (block.stride == 1 && used == width) {
      pack_across<type, width>(block.data, first, block.k_stride, block.k, out);
    } else {
      pack_along<type, width>(block, first, used, out);
    }
  }
}

template <uint32_t width>
void pack(const Block& block, float* out) {
  switch (block.type) {
    case DType::f16:
      return pack_panels<DType::f16, width>(block, out);
    case DType::bf16:
      return pack_panels<DType::bf16, width>(block, out);
    case DType::f32:
      return pack_panels<DType::f32, width>(block, out);
  }
}

}  // namespace

void pack_a(const Block& block, float* out) {
  pack<kMicroRows>(block, out);
}
void pack_b(const Block& block, float* out) {
  pack<kMicroColumns>(block, out);
}

}  // namespace cleave::cpu
