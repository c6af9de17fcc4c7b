// Rows of what calls over ranks read and make, and addresses in their places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "operands/gemm_operands.h"

namespace cleave {

Operand rows_of(Operand x, int64_t first, int64_t count);
/// Those of scales of all `rows`; one for all of them is that for these, too.
std::optional<Operand> rows_of(const std::optional<Operand>& scales, int64_t rows, int64_t first, int64_t count);

/// An address in the first of the places to the same in another one, so many bytes on; nullptr stays.
template <class Address>
void move_on(Address*& address, size_t bytes) {
  if (address != nullptr) address = reinterpret_cast<Address*>(reinterpret_cast<uintptr_t>(address) + bytes);
}

}  // namespace cleave
