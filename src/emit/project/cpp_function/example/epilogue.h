// What becomes of the example's sums: the operation's epilogue function, with inputs of the example's.
#pragma once

#include <array>
#include <cmath>
#include <deque>

#include "call.h"
#include "tensor.h"

namespace emitted::operation::example {

class Epilogue {
  static constexpr const cleave::FunctionConfig& kConfig = kKernels[0].config.epilogue.function;

 public:
  /// `problem`: with the strides of a call.
  explicit Epilogue(const cleave::GemmProblem& problem) : problem_(problem) {
    for (uint32_t i = 0; i < kConfig.inputs; ++i) {
      inputs_.emplace_back(problem.epilogue.inputs[i].dtype, elements(problem.epilogue.inputs[i]));
      inputs_.back().fill(0.5f, 1.5f);
    }
    for (uint32_t i = 0; i < kConfig.outputs; ++i)
      outputs_.emplace_back(problem.epilogue.outputs[i].dtype, elements(problem.epilogue.outputs[i]));
  }

  /// Arguments of its own. A scalar may be on the device, as here, or in the arguments themselves.
  template <class Arguments>
  void fill(Arguments& x) const {
    visit_inputs(x, [&](uint32_t i, auto& input) { input.data = inputs_[i].device(); });
    visit_outputs(x, [&](uint32_t i, auto& output) { output.data = outputs_[i].device(); });
  }

  /// Makes an element of D, and of the other outputs, of its sum; `up`: the other one of a gated function.
  void operator()(const Coord& at, const Sum& sum, const Sum& up, Sample& sample) const {
    std::array<float, 8> in{};
    for (uint32_t i = 0; i < kConfig.inputs; ++i) in[i] = float(inputs_[i][offset(problem_.epilogue.inputs[i], at)]);
    float made[1 + kConfig.outputs], other[1 + kConfig.outputs];
    double moved[1 + kConfig.outputs] = {};  // by what rounding may do to the sums
    const auto near = [](const Sum& x, double side) { return float(x.value + side * x.magnitude * kProductError); };
    run(float(sum.value), float(up.value), in, made);
    for (const double side : {-1.0, 1.0}) {
      for (const double side_of_up : {-1.0, 1.0}) {
        run(near(sum, side), near(up, side_of_up), in, other);
        for (uint32_t o = 0; o <= kConfig.outputs; ++o)
          moved[o] = std::max(moved[o], std::abs(double(other[o]) - double(made[o])));
      }
    }
    const auto sum_of = [&](uint32_t o) {
      return Sum{made[o], std::max(std::abs(double(made[o])), moved[o] / kProductError)};
    };
    sample.d = sum_of(0);
    for (uint32_t i = 0; i < kConfig.outputs; ++i) {
      if (kConfig.output(i).reduction != cleave::Reduction::none) continue;  // of more elements than are made here
      sample.others.push_back({sum_of(1 + i), &outputs_[i], offset(problem_.epilogue.outputs[i], at)});
    }
  }
  void download() {
    for (Tensor& output : outputs_) output.download();
  }

 private:
  template <class Inputs, class Outputs>
  static void run(float sum, [[maybe_unused]] float up, const Inputs& in, Outputs& out) {
    if constexpr (kConfig.gated)
      Function::run(sum, up, in, out);
    else
      Function::run(sum, in, out);
  }

  /// Where what `at` has of an operand lies.
  static int64_t offset(const cleave::EpilogueLayout& x, const Coord& at) {
    const int64_t entry = at.batch * x.stride_batch;
    switch (x.shape) {
      case cleave::InputShape::scalar:
        break;
      case cleave::InputShape::row:
        return entry + at.column * x.stride;
      case cleave::InputShape::column:
        return entry + at.row * x.stride;
      case cleave::InputShape::matrix:
        return entry + (x.order == cleave::Order::row ? at.row * x.stride + at.column : at.row + at.column * x.stride);
    }
    return entry;
  }
  int64_t elements(const cleave::EpilogueLayout& x) const {
    return offset(x, {problem_.batch - 1, problem_.m - 1, problem_.n - 1}) + 1;
  }

  const cleave::GemmProblem problem_;
  std::deque<Tensor> inputs_, outputs_;
};

}  // namespace emitted::operation::example
