// The vocabulary of a problem: shared by the public API, the planner and the kernels.
#pragma once

#include "cleave/core/config.h"

namespace cleave {

/// Element types. `f32` operands are rounded to tf32 by the tensor cores; accumulation is float32.
enum class DType : uint8_t { f16, bf16, f32 };

/// How the K dimension of one output tile is shared, and how the shares are joined.
///
/// | mode      | how the slices of a tile are joined            | workspace            | repeatable
/// |
/// |-----------|------------------------------------------------|----------------------|------------|
/// | none      | one slice                                      | none                 | bitwise |
/// | serial    | in slice order, behind a turnstile             | one tile per tile    | bitwise |
/// | parallel  | float32 partials, summed in slice order        | one tile per slice   | bitwise |
/// | cluster   | distributed shared memory of a block cluster   | none                 | bitwise |
/// | stream_k  | fractional tiles; the tile's owner collects    | one tile per block   | bitwise on
/// one GPU model | | automatic | the planner chooses among the above            | |            |
enum class SplitKMode : uint8_t { none, serial, parallel, cluster, stream_k, automatic };

/// Applied last: D = activation(alpha * A @ B + beta * C + bias).
enum class Activation : uint8_t { none, relu, gelu_tanh, gelu_erf, silu };

/// Shape of the bias: `row` is a row vector of N values (one per column of D, torch's Linear bias);
/// `column` is a column vector of M values (one per row of D).
enum class Bias : uint8_t { none, row, column };

/// Which dimension of a stored operand is contiguous: the reduction (K) or the other one (M or N).
enum class Major : uint8_t { k, mn };

/// Which dimension of D (and C) is contiguous.
enum class Order : uint8_t { row, column };

/// `sm90`: TMA + WGMMA. `portable`: cp.async + mma.sync, for sm_80 and later and for operands TMA
/// cannot address.
enum class KernelFamily : uint8_t { automatic, sm90, portable };

CLEAVE_HD constexpr uint32_t size_of(DType t) {
  return t == DType::f32 ? 4 : 2;
}

}  // namespace cleave
