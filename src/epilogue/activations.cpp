#include "epilogue/activations.h"

#include <array>

#include "base/enumerators.h"
#include "cleave/epilogue.h"
#include "process/fork.h"

namespace cleave {
namespace {

/// As `EpilogueFunction::text` has it, and Python's functions of the same names make it.
constexpr std::string_view text_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      return {};
    case Activation::relu:
      return "%0 = relu acc\n"
             "d = %0\n";
    case Activation::relu2:
      return "%0 = relu acc\n"
             "%1 = multiply %0 %0\n"
             "d = %1\n";
    case Activation::gelu_tanh:  // the root is of 2 / pi
      return "%0 = multiply 0.5 acc\n"
             "%1 = multiply 0.044715 acc\n"
             "%2 = multiply %1 acc\n"
             "%3 = multiply %2 acc\n"
             "%4 = add acc %3\n"
             "%5 = multiply 0.7978846 %4\n"
             "%6 = tanh %5\n"
             "%7 = add 1 %6\n"
             "%8 = multiply %0 %7\n"
             "d = %8\n";
    case Activation::gelu_erf:
      return "%0 = multiply 0.5 acc\n"
             "%1 = multiply acc 0.70710677\n"
             "%2 = erf %1\n"
             "%3 = add 1 %2\n"
             "%4 = multiply %0 %3\n"
             "d = %4\n";
    case Activation::silu:
      return "%0 = silu acc\n"
             "d = %0\n";
    case Activation::swiglu:
      return "%0 = silu acc.gate\n"
             "%1 = multiply %0 acc.up\n"
             "d = %1\n";
    case Activation::swiglu_interleaved:
      return "%0 = silu acc.even\n"
             "%1 = multiply %0 acc.odd\n"
             "d = %1\n";
  }
  return {};
}

struct ReadyMade {
  std::array<const EpilogueFunction*, values_of<Activation>.size()> of = {};

  ReadyMade() {
    for (const Activation activation : values_of<Activation>) {
      if (activation != Activation::none) of[size_t(activation)] = &epilogue_function(text_of(activation));
    }
  }
};

}  // namespace

Activation activation_of(std::string_view text) {
  for (const Activation activation : values_of<Activation>) {
    if (text_of(activation) == text) return activation;
  }
  return Activation::none;
}

EpilogueProblem epilogue_of(Activation activation) {
  static constinit Lazy<ReadyMade> ready_made;
  EpilogueProblem problem;
  problem.function = ready_made.get().of[size_t(activation)];
  if (problem.function != nullptr) problem.gates = problem.function->gates();
  return problem;
}

}  // namespace cleave
