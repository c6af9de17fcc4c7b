// The vocabulary of a problem: shared by the public API, the planner and the kernels.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// Element types. `f32` operands are multiplied as Precision says. Accumulation is in float32, for `i8` operands in
/// int32. `e4m3` and `e5m2` are OCP's 8-bit floats (torch's float8_e4m3fn and float8_e5m2). Only C and D may be `i32`.
enum class DType : uint8_t { f16, bf16, f32, i8, e4m3, e5m2, i32 };

/// The properties of an element type.
struct DTypeInfo {
  const char* name;  ///< torch's, which users type and read
  uint8_t bytes;
  bool is_float;
  uint8_t mantissa;  ///< of a float: bits of it that are stored
  float largest;     ///< finite value
  uint8_t dlpack;    ///< its code in DLPack's DLDataType
  uint8_t xla;       ///< its number in XLA_FFI_DataType
};

/// One row per type. A switch instead of an array, because kernels cannot read a host array and would copy a local one
/// at every call; and the compiler asks for the row of each enumerator.
CLEAVE_HD constexpr DTypeInfo info_of(DType type) {
  // clang-format off
  switch (type) {  //        name             bytes  is_float  mantissa  largest          dlpack  xla
    case DType::f16:  return {"float16",       2,     true,     10,       65504.0f,        2,      10};
    case DType::bf16: return {"bfloat16",      2,     true,     7,        0x1.fep127f,     4,      16};
    case DType::f32:  return {"float32",       4,     true,     23,       0x1.fffffep127f, 2,      11};
    case DType::i8:   return {"int8",          1,     false,    0,        127.0f,          0,      2};
    case DType::e4m3: return {"float8_e4m3fn", 1,     true,     3,        448.0f,          10,     20};
    case DType::e5m2: return {"float8_e5m2",   1,     true,     2,        57344.0f,        12,     19};
    case DType::i32:  return {"int32",         4,     false,    0,        0x1p31f,         0,      4};
  }
  // clang-format on
  return {"unknown", 1, false, 0, 0.0f, 0, 0};  // no enumerator
}

CLEAVE_HD constexpr uint32_t size_of(DType type) {
  return info_of(type).bytes;
}

CLEAVE_HD constexpr bool is_fp8(DType type) {
  return info_of(type).is_float && size_of(type) == 1;
}

/// Whether it is a float of 16 bits or more.
CLEAVE_HD constexpr bool is_wide_float(DType type) {
  return info_of(type).is_float && size_of(type) > 1;
}

/// How float32 operands are multiplied; sums are always float32. tf32 and ieee mean what they do in torch's
/// fp32_precision, and apply to GPUs: the CPU multiplies operands as they are under either.
///
/// | precision | an operand is                            | multiplied by                         |
/// |-----------|------------------------------------------|---------------------------------------|
/// | tf32      | rounded to TF32, 10 bits of its mantissa | tensor cores                          |
/// | ieee      | float32 as it is                         | multiply-adds (kernel: portable)      |
/// | tf32x3    | a sum of two TF32 numbers                | tensor cores, thrice (kernel: portable) |
/// | bf16x3    | a sum of two bfloat16 numbers            | tensor cores, thrice (kernel: portable) |
enum class Precision : uint8_t { tf32, ieee, tf32x3, bf16x3 };

/// Whether operands are multiplied as sums of two parts (kernels/cleave/core/float_parts.h), on the CPU as well.
CLEAVE_HD constexpr bool in_parts(Precision p) {
  return p == Precision::tf32x3 || p == Precision::bf16x3;
}

/// How the K dimension of one output tile is split, and how the parts are added up.
///
/// | mode      | how the slices of a tile are added up         | workspace          | repeatable     |
/// |-----------|----------------------------------------------|--------------------|----------------|
/// | none      | one slice                                    | none               | bitwise        |
/// | serial    | in slice order, behind a turnstile           | one tile per tile  | bitwise        |
/// | parallel  | float32 partials, summed in slice order      | one tile per slice | bitwise        |
/// | cluster   | distributed shared memory of a CTA cluster   | none               | bitwise        |
/// | stream_k  | fractional tiles, added in order of K        | two tiles per CTA  | on one GPU     |
/// | automatic | the planner chooses among the above, but     |                    |                |
/// |           | for serial                                   |                    |                |
///
/// CTAs of serial wait for others of the launch, so it is launched cooperatively and refused where not
/// all of them fit (green contexts, MPS). In the other modes whoever finishes a tile's last part adds
/// its parts up: those launches end however few of their CTAs run at a time.
enum class SplitKMode : uint8_t { none, serial, parallel, cluster, stream_k, automatic };

/// Whether every tile has the same number of slices, which run side by side. stream_k cuts tiles where the stretches of
/// its clusters end instead.
CLEAVE_HD constexpr bool is_sliced(SplitKMode mode) {
  return mode == SplitKMode::serial || mode == SplitKMode::parallel || mode == SplitKMode::cluster;
}

/// Whether CTAs wait for others of the same launch that may not be resident. `automatic` never chooses such a mode.
CLEAVE_HD constexpr bool ctas_wait(SplitKMode mode) {
  return mode == SplitKMode::serial;
}

/// Names of epilogue functions that are ready-made (`epilogue_of`, cleave/epilogue.h): D = activation(alpha * A @ B +
/// beta * C + bias). `swiglu` takes two columns of the product for each of D's n: silu(gate) * up, so B has 2n columns,
/// the gates first; under `swiglu_interleaved` they alternate (Gates). `relu2` is the square of relu.
enum class Activation : uint8_t { none, relu, relu2, gelu_tanh, gelu_erf, silu, swiglu, swiglu_interleaved };

/// Which two of B's 2n columns an epilogue function joins to column j of D, if it joins any: j, the gate's, and n + j,
/// the up's; or 2j and 2j + 1.
enum class Gates : uint8_t { none, halves, interleaved };

/// The shape of an epilogue function's input, broadcast over D: one value (scalar), a row vector of N values (row), a
/// column vector of M values (column), or a value per element (matrix).
enum class InputShape : uint8_t { scalar, row, column, matrix };

/// How an output of an epilogue function is reduced: to its sum or its largest magnitude, over all columns of D (giving
/// a column, one value per row), over all rows (giving a row), or over both (giving a scalar).
enum class Reduction : uint8_t { none, sum, absmax };

/// The operations of epilogue functions, on float32 values; kernels/cleave/core/elementwise.h defines them.
/// Conditions are 1 and 0. `to_` rounds to a type and back.
enum class Elementwise : uint8_t {
  // of one value
  negative,
  absolute,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  erf,
  sigmoid,
  silu,
  relu,
  logical_not,
  to_float16,
  to_bfloat16,
  to_int8,
  to_float8_e4m3fn,
  to_float8_e5m2,
  // of two
  add,
  subtract,
  multiply,
  divide,
  minimum,
  maximum,
  less,
  less_equal,
  equal,
  not_equal,
  logical_and,
  logical_or,
  // where(condition, then, else)
  where,
};

/// Inputs that an epilogue function may have, and outputs beside D.
inline constexpr uint32_t kMostEpilogueInputs = 8;
inline constexpr uint32_t kMostEpilogueOutputs = 2;

/// The number of values that an operation takes.
CLEAVE_HD constexpr uint32_t arity(Elementwise operation) {
  return operation == Elementwise::where ? 3 : operation >= Elementwise::add ? 2 : 1;
}

/// Shape of the bias: `row` is a row vector of N values (one per column of D, torch's Linear bias);
/// `column` is a column vector of M values (one per row of D).
enum class Bias : uint8_t { none, row, column };

/// What the scales of the operands cover: real value = scale * element. Vector scales are applied to the sum, block
/// scales after every 128 elements of K.
///
/// | kind   | scales of A                      | scales of B                         |
/// |--------|----------------------------------|-------------------------------------|
/// | none   |                                  |                                     |
/// | vector | one per row, or one for all      | one per column, or one for all      |
/// | block  | one per 1 or 128 rows x 128 of K | one per 128 of K x 1 or 128 columns |
enum class Scaling : uint8_t { none, vector, block };

/// How the weight of a mixed product is stored: as packed 4-bit codes (kernels/cleave/memory/weight_layout.h), which
/// are converted to the other operand's type just before they are multiplied.
///
/// | format | an element is          | a code is                   | a scale is                   |
/// |--------|------------------------|-----------------------------|------------------------------|
/// | none   | stored as it is        |                             |                              |
/// | int4   | (code - zero) * scale  | 0 to 15; zero is 8, or each | of elements' type; float16   |
/// |        |                        | group's own                 | beside elements of 8 bits    |
/// | mxfp4  | code * scale           | an e2m1 float: 0, 0.5, 1,   | of 32 elements, a byte: E8M0 |
/// |        |                        | 1.5, 2, 3, 4, 6, and less   | of OCP, 2^(byte - 127)       |
/// | nvfp4  | code * scale; sums are | the same                    | of 16 elements, e4m3; and of |
/// |        | multiplied by float32  |                             | rows or the whole, float32   |
enum class WeightFormat : uint8_t { none, int4, mxfp4, nvfp4 };

/// Elements of K that share a scale: the default for int4, fixed for the other formats.
CLEAVE_HD constexpr uint32_t usual_group(WeightFormat format) {
  switch (format) {
    case WeightFormat::int4:
      return 128;
    case WeightFormat::mxfp4:
      return 32;
    case WeightFormat::nvfp4:
      return 16;
    default:
      return 0;
  }
}

/// The type of a format's scales; `element` is the type that codes are converted to. mxfp4's bytes count as i8.
CLEAVE_HD constexpr DType weight_scale_type(WeightFormat format, DType element) {
  switch (format) {
    case WeightFormat::mxfp4:
      return DType::i8;
    case WeightFormat::nvfp4:
      return DType::e4m3;
    default:
      return size_of(element) == 1 ? DType::f16 : element;
  }
}

/// The elements of K (and, for blocks of more than one, the rows or columns) that a block's scale covers; also the
/// number of elements of K after which the tensor cores' narrower sums are added to float32 ones.
inline constexpr uint32_t kScaleBlock = 128;

/// The dimension of a product that is cut into groups, each a product of its own. Only the GPU knows where the cuts
/// are.
///
/// | dimension | A            | B            | D            | in a mixture of experts, group g is  |
/// |-----------|--------------|--------------|--------------|--------------------------------------|
/// | none      | [batch,m,k]  | [batch,k,n]  | [batch,m,n]  |                                      |
/// | m         | [m,k]        | [groups,k,n] | [m,n]        | expert g's tokens: forward, data     |
/// |           |              |              |              | gradient                             |
/// | n         | [groups,m,k] | [k,n]        | [m,n]        | the same, transposed                 |
/// | k         | [m,k]        | [k,n]        | [groups,m,n] | expert g's weight gradient           |
///
/// `classes` is set by the planner: m falls into the residue classes of a strided convolution, which the host knows
/// (conv/conv_classes.h).
enum class Grouping : uint8_t { none, m, n, k, classes };

/// How the device arrays `offsets` and `sizes` describe group g's part [begin, end) of the grouped dimension.
///
/// | bounds       | begin                                  | end                | known as           |
/// |--------------|----------------------------------------|--------------------|--------------------|
/// | ends         | offsets[g - 1], or 0                   | offsets[g]         | torch's offs       |
/// | indptr       | offsets[g]                             | offsets[g + 1]     | FlashInfer, CSR    |
/// | starts       | offsets[g]                             | begin + sizes[g]   | cu_seqlens + sizes |
/// | aligned_ends | offsets[g - 1], or 0, rounded up to a  | offsets[g]         | DeepEP's psum      |
/// |              | multiple of spacing                    |                    |                    |
/// | counts       | g * spacing                            | begin + sizes[g]   | masked             |
enum class GroupBounds : uint8_t { ends, indptr, starts, aligned_ends, counts };

/// The three products of a convolution of images x [n, spatial, c] with filters w [k, taps, c] to outputs y [n,
/// spatial, k]. A `gathered` operand is not a matrix in memory: its rows are pixels of a tensor, each repeated for
/// every tap that lands on it.
///
/// | kind  | computes            | m               | n        | k            | A             | B             |
/// |-------|---------------------|-----------------|----------|--------------|---------------|---------------|
/// | fprop | y                   | pixels of y     | filters  | taps x c     | x, gathered   | w             |
/// | dgrad | x's gradient        | pixels of x     | channels | taps x k     | dy, gathered  | w             |
/// | wgrad | w's gradient        | filters         | taps x c | pixels of y  | dy            | x, gathered   |
enum class Conv : uint8_t { none, fprop, dgrad, wgrad };

/// Whether A is gathered; for wgrad, B is.
CLEAVE_HD constexpr bool gathers_a(Conv kind) {
  return kind == Conv::fprop || kind == Conv::dgrad;
}

/// How a kernel divides to turn the number of a pixel into its coordinates, in loads and in stores: by multiplication
/// with constants of the launch (fast), or by the GPU's own division sequence (plain).
///
/// | division   | in loads | in stores |
/// |------------|----------|-----------|
/// | fast       | fast     | fast      |
/// | plain      | plain    | plain     |
/// | fast_load  | fast     | plain     |
/// | fast_store | plain    | fast      |
/// | automatic  | as measurements on the architecture advise |
enum class Division : uint8_t { automatic, fast, plain, fast_load, fast_store };

/// Which elements of a matrix share a scale when it is quantised: all of them, a row, 128 neighbours in a row, or a
/// square of 128 by 128.
enum class Granularity : uint8_t { tensor, row, block_1x128, block_128x128 };

/// How each row is normalised before it is quantised: divided by its root mean square, or shifted to mean 0 and divided
/// by its standard deviation.
enum class Norm : uint8_t { none, rms_norm, layer_norm };

/// Which dimension of a stored operand is contiguous: the reduction (K) or the other one (M or N).
enum class Major : uint8_t { k, mn };

/// Which dimension of D (and C) is contiguous.
enum class Order : uint8_t { row, column };

/// The kernels that compute a product. All but `sm90` run on sm_80 and later.
///
/// - sm90: TMA and WGMMA.
/// - portable: cp.async and mma.sync, also for operands that TMA cannot address.
/// - direct: convolutions of narrow groups, by multiply-adds, and of few channels.
/// - streamed: mma.sync with packed weights that are loaded from memory straight into registers.
enum class KernelFamily : uint8_t { automatic, sm90, portable, direct, streamed };

}  // namespace cleave
