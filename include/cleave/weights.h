// Packing of 4-bit weights, on the host: once, when a model is loaded.
//
//   std::vector<uint8_t> packed(cleave::packed_weight_bytes(n, k));
//   cleave::pack_weights(codes, n, k, 8, packed.data());
//
// Where each code goes is described in kernels/cleave/memory/weight_layout.h.
#pragma once

#include <cstdint>

#include "cleave/core/api.h"

namespace cleave {

/// Bytes of a packed weight of `rows` (N, outputs) and `columns` (K, inputs), in whole blocks of 64 x 64.
CLEAVE_API int64_t packed_weight_bytes(int64_t rows, int64_t columns);

/// Packs codes of 4 bits.
///
/// codes: rows x columns bytes, row by row; the upper halves of the bytes are ignored. padding: the code that fills the
/// last blocks beyond the weight. packed: packed_weight_bytes bytes, which must not overlap the codes.
///
/// Throws Error for a negative size, or a padding that is no code.
CLEAVE_API void pack_weights(const uint8_t* codes, int64_t rows, int64_t columns, uint8_t padding, uint8_t* packed);

/// Writes the exact codes of a packed weight to `codes`, laid out as above.
CLEAVE_API void unpack_weights(const uint8_t* packed, int64_t rows, int64_t columns, uint8_t* codes);

}  // namespace cleave
