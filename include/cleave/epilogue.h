// Functions that a product applies to its sums before it stores them: D = f(sum, inputs), and further outputs of the
// same shape. One definition is written into the source of kernels and interpreted by the CPU backend.
//
//   const EpilogueFunction& f = epilogue_function(R"(
//     bias row
//     residual matrix
//     %0 = add acc bias
//     %1 = maximum %0 0
//     d = add %1 residual
//     pre = %0)");
//   GemmProblem problem{...};
//   problem.epilogue.function = &f;
//
// Activations are such functions, ready-made: problem.epilogue = epilogue_of(Activation::gelu_erf);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/core/api.h"
#include "cleave/core/enums.h"
#include "cleave/error.h"
#include "cleave/problem.h"

namespace cleave {

class EpilogueEvaluator;

/// One value of a function: an operation on values that come before it.
struct EpilogueNode {
  /// gate, up: the sums that take sum's place in a gated function
  enum class Kind : uint8_t { sum, gate, up, input, constant, operation };

  Kind kind = Kind::sum;
  Elementwise operation = Elementwise::add;
  uint32_t operands[3] = {};  ///< places among the nodes; of an input, the first is its number
  float constant = 0.0f;

  friend bool operator==(const EpilogueNode&, const EpilogueNode&) = default;
};

/// An elementwise function of a sum and named inputs, in float32. A process has one object per function, however often
/// it is made: equal functions have equal addresses, which is why a GemmProblem may hold one. It is never destroyed.
class EpilogueFunction {
 public:
  struct Input {
    std::string name;
    InputShape shape;
  };
  struct Output {
    std::string name;
    std::optional<DType> dtype;  ///< nullopt: D's, and for D that of the product without the function
    uint32_t node;
    Reduction reduction = Reduction::none;
    InputShape shape = InputShape::matrix;  ///< what it is reduced to, in float32
  };

  const std::vector<Input>& inputs() const { return inputs_; }
  /// Every value that an output needs, once each, operands before their users.
  const std::vector<EpilogueNode>& nodes() const { return nodes_; }
  /// D's first.
  const std::vector<Output>& outputs() const { return outputs_; }
  /// The ready-made function that it is; of others none.
  Activation activation() const { return activation_; }
  /// Whether it takes two sums for each element of D, and where in B the columns of the gate projection and of the up
  /// projection lie that these are of.
  Gates gates() const { return gates_; }
  /// Whether an output is reduced.
  bool reduces() const { return reduces_; }
  /// As `epilogue_function` reads it. Equal functions have equal texts.
  const std::string& text() const { return text_; }
  /// How the CPU backend runs it.
  const EpilogueEvaluator& evaluator() const { return *evaluator_; }

  EpilogueFunction(const EpilogueFunction&) = delete;
  EpilogueFunction& operator=(const EpilogueFunction&) = delete;

 private:
  friend class EpilogueReader;
  EpilogueFunction() = default;

  std::vector<Input> inputs_;
  std::vector<EpilogueNode> nodes_;
  std::vector<Output> outputs_;
  Activation activation_ = Activation::none;
  Gates gates_ = Gates::none;
  bool reduces_ = false;
  std::string text_;
  std::shared_ptr<const EpilogueEvaluator> evaluator_;
};

/// The function that a text describes, line by line:
///
///   bias row                 an input and its InputShape; in the order of GemmArguments::epilogue_inputs
///   %0 = add acc bias        a value: an Elementwise operation of `acc` (the sum: what D would be without the
///                            function, but for its conversion), inputs, values before it, or numbers
///   %1 = multiply acc.gate acc.up   the same of a gated function, whose sums are two: it has no acc. Where gates and
///                                   ups are interleaved they are acc.even and acc.odd
///   d = %0                   an output: the first one is D; the right side may be an operation, too
///   pre:float32 = %0         one of a type of its own
///   norm = sum column %0     a Reduction of a value to a scalar, row or column, in float32; not D
///
/// Throws Error(invalid_argument), which names the line, for what is no such text, and for more inputs or outputs
/// than kMostEpilogueInputs and 1 + kMostEpilogueOutputs.
CLEAVE_API const EpilogueFunction& epilogue_function(std::string_view text);

/// An activation, as GemmProblem::epilogue; of `none` there is no function.
CLEAVE_API EpilogueProblem epilogue_of(Activation activation);

}  // namespace cleave
