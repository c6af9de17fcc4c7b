// XLA's buffers as operands.
#pragma once

#include <xla/ffi/api/ffi.h>

#include "operands/operand.h"

namespace cleave::jax_ops {

/// Packed with its dimensions in order, as calls demand of XLA.
Operand read(const xla::ffi::AnyBuffer& buffer, int device);

}  // namespace cleave::jax_ops
