// Some neighbouring channels of a pixel, from a thread's sums: the whole epilogue, without a tile.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/epilogue/function.h"
#include "cleave/epilogue/store_pair.h"
#include "cleave/memory/channel_vector.h"

namespace cleave {

/// `kVector` channels of a thread, pixel by pixel.
template <GemmConfig C, uint32_t kVector = C.direct.vector>
class PixelStore {
  static constexpr uint32_t kRun = C.store.run_bytes / size_of(C.epilogue.d);
  static constexpr uint32_t kAtOnce = kRun > 0 ? min_of(kRun, kVector) : kVector;
  static constexpr FunctionConfig kFunction = C.epilogue.function;
  static_assert(kVector % kAtOnce == 0);

 public:
  CLEAVE_DEVICE PixelStore(const Params<C>& p, uint32_t channel) : p_(p), channel_(channel) {
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVector; ++v)
      of_channel_[v] = column_broadcast(C.epilogue, p_.epilogue, p_.scales_b, channel_ + v, 0, channel_ + v);
    if constexpr (kFunction.given) {
      load_line_inputs<C, InputShape::scalar>(p_, 0, 0, scalars_);
      CLEAVE_UNROLL
      for (uint32_t v = 0; v < kVector; ++v)
        load_line_inputs<C, InputShape::row>(p_, channel_ + v, 0, inputs_of_channel_[v]);
    }
  }

  /// Where D has the thread's channels of pixel `row`.
  CLEAVE_DEVICE char* place(uint32_t row) const {
    return static_cast<char*>(p_.epilogue.d) + (row * p_.epilogue.d_stride + channel_) * size_of(C.epilogue.d);
  }

  /// What D holds of pixel `row`, and what else there is of it. `place`: where a caller has it at hand; else it is
  /// found when all is made, since registers are few before.
  CLEAVE_DEVICE void operator()(uint32_t row, const float (&sums)[kVector]) const {
    float values[kVector];
    make(row, sums, values);
    store_vectors<C.epilogue.d, kAtOnce>(place(row), values);
  }
  CLEAVE_DEVICE void operator()(uint32_t row, const float (&sums)[kVector], char* place) const {
    float values[kVector];
    make(row, sums, values);
    store_vectors<C.epilogue.d, kAtOnce>(place, values);
  }

 private:
  CLEAVE_DEVICE void make(uint32_t row, const float (&sums)[kVector], float (&values)[kVector]) const {
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVector; ++v)
      values[v] = epilogue_value(C.epilogue, p_.epilogue, sums[v], BroadcastValues(), of_channel_[v], false,
                                 c_element(C.epilogue, p_.epilogue, {row, channel_ + v, 0}));
    if constexpr (kFunction.given) apply_function(row, values);
  }

  /// Turns the sums of pixel `row` into what D stores, and stores what else there is of it.
  CLEAVE_DEVICE void apply_function(uint32_t row, float (&values)[kVector]) const {
    FunctionValues<C> of_pixel;
    load_line_inputs<C, InputShape::column>(p_, row, 0, of_pixel);
    float outputs[1 + kFunction.outputs][kVector];
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVector; ++v) {
      FunctionValues<C> inputs;
      gather_inputs<0>(of_pixel, {row, channel_ + v, 0}, inputs_of_channel_[v], inputs);
      float made[1 + kFunction.outputs];
      FunctionBody<C>::run(values[v], inputs, made);
      CLEAVE_UNROLL
      for (uint32_t o = 0; o < 1 + kFunction.outputs; ++o) outputs[o][v] = made[o];
      values[v] = made[0];
    }
    store_outputs<0>(row, outputs);
  }

  /// What the function takes for one element: inputs I and following.
  template <uint32_t I>
  CLEAVE_DEVICE void gather_inputs(const FunctionValues<C>& of_pixel, const ElementCoord& at,
                                   const FunctionValues<C>& of_channel, FunctionValues<C>& inputs) const {
    if constexpr (I < kFunction.inputs) {
      constexpr FunctionOperandConfig kInput = kFunction.input(I);
      if constexpr (kInput.shape == InputShape::scalar) inputs[I] = scalars_[I];
      if constexpr (kInput.shape == InputShape::column) inputs[I] = of_pixel[I];
      if constexpr (kInput.shape == InputShape::row) inputs[I] = of_channel[I];
      if constexpr (kInput.shape == InputShape::matrix)
        inputs[I] = load_element(kInput.dtype, matrix_element(kInput, p_.epilogue.inputs[I], at), 0);
      gather_inputs<I + 1>(of_pixel, at, of_channel, inputs);
    }
  }

  /// What the function makes of a pixel beside D: outputs I and following; `values`: D's first.
  template <uint32_t I>
  CLEAVE_DEVICE void store_outputs(uint32_t row, const float (&values)[1 + kFunction.outputs][kVector]) const {
    if constexpr (I < kFunction.outputs) {
      constexpr FunctionOperandConfig kOutput = kFunction.output(I);
      constexpr uint32_t kTogether = kOutput.pairs && kVector % 2 == 0 ? 2 : 1;
      CLEAVE_UNROLL
      for (uint32_t v = 0; v < kVector; v += kTogether) {
        char* const to = matrix_element(kOutput, p_.epilogue.outputs[I], {row, channel_ + v, 0});
        if constexpr (kTogether == 2) {
          store_pair(kOutput.dtype, to, values[1 + I][v], values[1 + I][v + 1]);
        } else {
          store_element(kOutput.dtype, to, 0, values[1 + I][v]);
        }
      }
      store_outputs<I + 1>(row, values);
    }
  }

  const Params<C>& p_;
  const uint32_t channel_;
  BroadcastValues of_channel_[kVector];
  FunctionValues<C> scalars_, inputs_of_channel_[kVector];
};

}  // namespace cleave
