// XLA's buffers as operands.
#pragma once

#include <xla/ffi/api/ffi.h>

#include "operands/operand.h"

namespace cleave::jax_ops {

/// `by_column`: the last dimension but one is the contiguous one; else all are in order, as XLA packs them.
Operand read(const xla::ffi::AnyBuffer& buffer, int device, bool by_column);

}  // namespace cleave::jax_ops
