// What the epilogue reads for each element of D: C, and the matrices of a function. They are requested a few blocks
// ahead of their use, so that the trips to memory overlap.
#pragma once

#include "cleave/config/output.h"
#include "cleave/epilogue/function.h"
#include "cleave/ptx/load_global.h"
#include "cleave/ptx/shared.h"

namespace cleave {

/// The pointer and the strides of an input of the epilogue; C comes after the function's.
template <GemmConfig C, uint32_t I>
CLEAVE_DEVICE FunctionOperand epilogue_operand(const EpilogueParams& p) {
  if constexpr (I < C.epilogue.function.inputs) {
    return p.inputs[I];
  } else {
    return {const_cast<void*>(p.c), p.c_stride, p.c_batch_stride};
  }
}

/// A block's values of the inputs that are read by element, as they lie in memory: a pair in a word where they are
/// neighbours in one, else each in one of its own.
template <GemmConfig C>
class ElementInputs {
 public:
  /// Element `element` of the block, of input I, or it and the next one; zeros unless they exist.
  template <uint32_t I>
  CLEAVE_DEVICE void load(uint32_t element, const char* from, bool exists) {
    constexpr FunctionOperandConfig kInput = epilogue_input(C, I);
    ptx::load_global_if<size_of(kInput.dtype) * (kInput.pairs ? 2 : 1)>(words_.at + kAt<I> + element, from, exists);
  }

  /// The same of a pair of C in float32 that lies in shared memory.
  CLEAVE_DEVICE void load_shared_c(uint32_t element, uint32_t from, bool exists) {
    uint32_t* const words = words_.at + kAt<C.epilogue.function.inputs> + element;
    words[0] = words[1] = 0;
    if (exists) ptx::load_shared<8>(from, words);
  }

  /// Zeros for all of them.
  CLEAVE_DEVICE void clear() {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4 * inputs_by_element(C); ++i) words_.at[i] = 0;
  }

  template <uint32_t I>
  CLEAVE_DEVICE float value(uint32_t element) const {
    return element_from_bits(epilogue_input(C, I).dtype, bits<I>(element));
  }

  /// C's element, as epilogue_value or epilogue_integer takes it.
  CLEAVE_DEVICE auto c(uint32_t element) const {
    constexpr uint32_t kC = C.epilogue.function.inputs;
    if constexpr (!C.epilogue.has_c) {
      return 0;
    } else if constexpr (C.epilogue.c == DType::i32) {
      return int32_t(bits<kC>(element));
    } else {
      return value<kC>(element);
    }
  }

 private:
  template <uint32_t I>
  static constexpr uint32_t kAt = 4 * inputs_by_element(C, I);

  template <uint32_t I>
  CLEAVE_DEVICE uint32_t bits(uint32_t element) const {
    constexpr FunctionOperandConfig kInput = epilogue_input(C, I);
    constexpr bool kShared = kInput.pairs && size_of(kInput.dtype) < 4;  // a word for two
    const uint32_t word = words_[kAt<I> + (kShared ? element / 2 * 2 : element)];
    return kShared && element % 2 == 1 ? word >> 8 * size_of(kInput.dtype) : word;
  }

  detail::ArrayOf<uint32_t, 4 * inputs_by_element(C)> words_;
};

}  // namespace cleave
