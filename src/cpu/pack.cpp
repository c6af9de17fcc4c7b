#include "cpu/pack.h"

#include <array>

#include "base/enumerators.h"
#include "cleave/config/list_params.h"
#include "cleave/core/element.h"
#include "cleave/core/math.h"
#include "cpu/micro_kernel.h"
#include "process/fork.h"

namespace cleave::cpu {
namespace {

/// K elements taken from one row before the next row's: a cache line of the row is then used up
/// while it is near, also where rows lie a power of two apart and compete for the same few lines.
constexpr uint32_t kRunLength = 32;

/// An operand's elements as floats.
template <DType type>
struct Elements {
  const void* data;

  explicit Elements(const void* from) : data(from) {}
  float operator[](int64_t index) const { return load_element(type, data, index); }
};

/// Decoding an 8-bit float takes several instructions; looking it up, one.
template <DType type>
  requires(is_fp8(type))
struct Elements<type> {
  const uint8_t* data;
  const float* values;

  explicit Elements(const void* from) : data(static_cast<const uint8_t*>(from)) {
    static constinit Lazy<const std::array<float, 256>> table;
    values = table
                 .get([] {
                   std::array<float, 256> decoded;
                   for (uint32_t code = 0; code < decoded.size(); ++code) {
                     const auto byte = uint8_t(code);
                     decoded[code] = load_element(type, &byte, 0);
                   }
                   return decoded;
                 })
                 .data();
  }
  float operator[](int64_t index) const { return values[data[index]]; }
};

/// Rows (columns) that are neighbours in memory: each step of K is one short copy.
template <uint32_t width, class In>
void pack_across(In in, int64_t first, int64_t k_stride, uint32_t k, float* out) {
  for (uint32_t p = 0; p < k; ++p, first += k_stride, out += width) {
    for (uint32_t i = 0; i < width; ++i) out[i] = in[first + i];
  }
}

/// Anything else; meant for rows (columns) whose K elements are neighbours in memory.
template <uint32_t width, class In>
void pack_along(In in, const Block& block, int64_t first, uint32_t used, float* out) {
  for (uint32_t begin = 0; begin < block.k; begin += kRunLength, out += kRunLength * width) {
    const uint32_t run = min_of(kRunLength, block.k - begin);
    for (uint32_t i = 0; i < used; ++i) {
      int64_t at = first + i * block.stride + begin * block.k_stride;
#pragma GCC unroll 4  // or counting costs as much as copying
      for (uint32_t p = 0; p < run; ++p, at += block.k_stride) out[p * width + i] = in[at];
    }
    for (uint32_t i = used; i < width; ++i) {
      for (uint32_t p = 0; p < run; ++p) out[p * width + i] = 0.0f;
    }
  }
}

/// Rows that a list names.
template <uint32_t width, class In>
void pack_listed(In in, const Block& block, uint32_t first, uint32_t used, float* out) {
  for (uint32_t i = 0; i < width; ++i) {
    const uint32_t row = i < used ? block.rows[first + i] : kNoRow;
    int64_t at = block.offset + row * block.stride;
    for (uint32_t p = 0; p < block.k; ++p, at += block.k_stride) out[p * width + i] = row == kNoRow ? 0.0f : in[at];
  }
}

// A function for each type: inlined into one, their loops would run out of registers.
template <DType type, uint32_t width>
[[gnu::noinline]] void pack_panels(const Block& block, uint32_t depth, float* out) {
  const Elements<type> in(block.data);
  for (uint32_t begin = 0; begin < block.count; begin += width, out += width * depth) {
    const uint32_t used = min_of(width, block.count - begin);
    const int64_t first = block.offset + begin * block.stride;
    if (block.rows != nullptr) {
      pack_listed<width>(in, block, begin, used, out);
    } else if (block.stride == 1 && used == width) {
      pack_across<width>(in, first, block.k_stride, block.k, out);
    } else {
      pack_along<width>(in, block, first, used, out);
    }
  }
}

template <uint32_t width>
void pack(const Block& block, uint32_t depth, float* out) {
  dispatch(block.type, [&]<DType type>() { pack_panels<type, width>(block, depth, out); });
}

}  // namespace

void pack_a(const Block& block, uint32_t depth, float* out) {
  pack<kMicroRows>(block, depth, out);
}
void pack_b(const Block& block, uint32_t depth, float* out) {
  pack<kMicroColumns>(block, depth, out);
}

}  // namespace cleave::cpu
