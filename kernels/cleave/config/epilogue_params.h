// What the epilogue (epilogue/epilogue.h) is specialised for, and the values of a launch.
#pragma once

#include "cleave/core/enums.h"

namespace cleave {

class EpilogueFunction;  // the host's

/// An input of an epilogue function, or an output beside D, as a kernel sees it.
struct FunctionOperandConfig {
  InputShape shape = InputShape::matrix;
  DType dtype = DType::f32;
  Order order = Order::row;  // of a matrix
  bool pairs = false;        // of a matrix: columns 2i and 2i + 1 of a row lie in one aligned word
  // Others than none: no matrix is stored, but partial results, [entry of the batch][unit][line] (config/reductions.h).
  Reduction reduction = Reduction::none;
};

/// The same as a number. A kernel's configuration is part of the names of all its functions, and a struct for each
/// operand would make these names a third of the kernel.
CLEAVE_HD constexpr uint32_t packed(const FunctionOperandConfig& operand) {
  return uint32_t(operand.shape) | uint32_t(operand.dtype) << 4 | uint32_t(operand.order) << 8 |
         uint32_t(operand.pairs) << 9 | uint32_t(operand.reduction) << 10;
}
CLEAVE_HD constexpr FunctionOperandConfig unpacked(uint32_t operand) {
  return {InputShape(operand & 15), DType(operand >> 4 & 15), Order(operand >> 8 & 1), (operand >> 9 & 1) != 0,
          Reduction(operand >> 10 & 3)};
}

/// A word for each operand. No array, since nvcc cannot spell one among a template's arguments.
struct PackedOperands {
  uint32_t p0 = 0, p1 = 0, p2 = 0, p3 = 0, p4 = 0, p5 = 0, p6 = 0, p7 = 0;

  CLEAVE_HD friend constexpr bool operator==(const PackedOperands&, const PackedOperands&) = default;

  /// By value: the address of one would keep all of them in a kernel's local memory until a loop is unrolled.
  CLEAVE_HD constexpr uint32_t operator[](uint32_t i) const {
    switch (i) {
      case 0:
        return p0;
      case 1:
        return p1;
      case 2:
        return p2;
      case 3:
        return p3;
      case 4:
        return p4;
      case 5:
        return p5;
      case 6:
        return p6;
      default:
        return p7;
    }
  }
  CLEAVE_HD constexpr uint32_t& at(uint32_t i) {
    uint32_t* const words[] = {&p0, &p1, &p2, &p3, &p4, &p5, &p6, &p7};
    return *words[i];
  }
};
static_assert(kMostEpilogueInputs <= 8 && kMostEpilogueOutputs <= 8);

/// What an epilogue function takes and makes; what it does is text beside the configuration (epilogue/function.h).
struct FunctionConfig {
  bool given = false;
  bool gated = false;                // it takes two sums for each element of D
  uint32_t inputs = 0, outputs = 0;  // those beside D
  PackedOperands packed_inputs = {}, packed_outputs = {};
  const EpilogueFunction* function = nullptr;  // of the host alone; last, since nvcc's stubs leave it out

  CLEAVE_HD friend constexpr bool operator==(const FunctionConfig&, const FunctionConfig&) = default;

  CLEAVE_HD constexpr FunctionOperandConfig input(uint32_t i) const { return unpacked(packed_inputs[i]); }
  CLEAVE_HD constexpr FunctionOperandConfig output(uint32_t i) const { return unpacked(packed_outputs[i]); }

  /// Whether an output is reduced.
  CLEAVE_HD constexpr bool reduces() const {
    bool found = false;
    for (uint32_t i = 0; i < outputs; ++i) found |= output(i).reduction != Reduction::none;
    return found;
  }

  /// Inputs of one shape among the first `among`.
  CLEAVE_HD constexpr uint32_t count(InputShape shape, uint32_t among) const {
    uint32_t found = 0;
    for (uint32_t i = 0; i < among; ++i) found += input(i).shape == shape;
    return found;
  }
  CLEAVE_HD constexpr uint32_t count(InputShape shape) const { return count(shape, inputs); }
};

/// What the epilogue is specialised for. A function that runs takes it by value, as it does every configuration: NVRTC
/// from 13.2 on reads what is behind a reference when the kernel runs, and each kind of bias becomes a branch of it. A
/// `constexpr` function that the compiler evaluates may take a reference.
struct EpilogueConfig {
  DType c = DType::bf16, d = DType::bf16, bias_dtype = DType::bf16;
  Order order = Order::row;  // of C and D
  Bias bias = Bias::none;
  bool has_c = false;
  bool c_pairs = false;                            // columns 2i and 2i + 1 of a row of C lie in one aligned word
  bool c_words = false;                            // C is staged: its rows are words of 16 bytes (staged_c.h)
  Scaling scaling = Scaling::none;                 // of vectors: here; of blocks: in the mainloop
  bool scaled_rows = true, scaled_columns = true;  // of vectors: which have one
  bool has_zero = false, has_scale_d = false, has_amax = false;
  bool has_scale_out = false, ue8m0 = false;  // D's scales are found (store_quantized.h), as powers of two
  FunctionConfig function = {};

  CLEAVE_HD friend constexpr bool operator==(const EpilogueConfig&, const EpilogueConfig&) = default;
};

/// An input of an epilogue function, or an output beside D.
struct FunctionOperand {
  void* data = nullptr;  // nullptr: of a scalar, `value`
  int64_t stride = 0;    // row, column: from one value to the next; matrix: from one line to the next
  int64_t batch_stride = 0;
  float value = 0.0f;
};

/// Run-time values. Strides count elements; D and C have one unit stride each, given by
/// EpilogueConfig::order.
struct EpilogueParams {
  float alpha = 1.0f;
  float beta = 0.0f;
  void* d = nullptr;
  const void* c = nullptr;
  const void* bias = nullptr;
  int64_t d_stride = 0, d_batch_stride = 0;  // d_stride: of the dimension that is not contiguous
  int64_t c_stride = 0, c_batch_stride = 0;
  int64_t bias_batch_stride = 0;
  const int32_t* zero_a = nullptr;  // nullptr: ones; so for zero_b
  const int32_t* zero_b = nullptr;
  const float* scale_d = nullptr;
  float* amax = nullptr;
  float* scale_out = nullptr;
  int64_t scale_out_row_stride = 0, scale_out_block_stride = 0, scale_out_batch_stride = 0;
  FunctionOperand inputs[kMostEpilogueInputs] = {};  // of an epilogue function
  FunctionOperand outputs[kMostEpilogueOutputs] = {};
};

/// Where the scale of D lies that a row's columns of block `block` share.
CLEAVE_HD int64_t scale_out_offset(const EpilogueParams& p, uint32_t row, uint32_t block, uint32_t batch) {
  return batch * p.scale_out_batch_stride + row * p.scale_out_row_stride + block * p.scale_out_block_stride;
}

/// Whether a launch adds to D what D is already, as gradients accumulate, and no more: where there is nothing to add, D
/// stays as it is.
CLEAVE_HD bool adds_to_d(EpilogueConfig config, const EpilogueParams& p) {
  const bool plain = !config.function.given && config.bias == Bias::none && !config.has_scale_d && !config.has_amax;
  return config.has_c && config.c == config.d && plain && !config.has_scale_out && p.c == p.d && p.beta == 1.0f;
}

}  // namespace cleave
