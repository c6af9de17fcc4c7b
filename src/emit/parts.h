// The parts of an operation, each with its words.
#pragma once

#include "cleave/epilogue.h"
#include "emit/operation.h"
#include "jit/spell.h"

namespace cleave {

/// Which of the user's matrices are row-major in a kernel's eyes.
struct Layouts {
  bool a_row, b_row, d_row;

  friend bool operator==(const Layouts&, const Layouts&) = default;
};

Layouts layouts_of(const Choice& choice);

/// The lines of an initialiser of a GemmProblem: as much of it as calls do not bring.
std::string print_operation(const GemmProblem& problem);

/// What elements the begins of groups have to be multiples of: for the widths of the kernels' loads,
/// and for scales of blocks of K.
int64_t spacing_step(const GemmProblem& problem, const std::vector<ArchChoice>& choices);

/// What becomes of float32 operands; nothing for others.
std::string multiplied_as(const GemmProblem& problem);

void describe_archs(const std::vector<ArchChoice>& choices, Vocabulary& v);
void describe_matrices(const GemmProblem& problem, const Layouts& layouts, Vocabulary& v);
void describe_scales(const GemmProblem& problem, Vocabulary& v);

/// How many of A and B have scales that are arguments of their own: a packed weight's belong to it.
inline int scaled_operands(const GemmProblem& p) {
  if (p.scale_a.kind == Scaling::none) return 0;
  return p.weights_b.format == WeightFormat::none ? 2 : 1;
}

/// What B is if it is a packed weight.
void describe_weight(const GemmProblem& problem, Vocabulary& v);

/// The epilogue function, if there is one. Throws Error(unsupported) for names that C++ has for something else.
void describe_function(const GemmProblem& problem, Vocabulary& v);

/// "function(sum, bias, residual)".
std::string function_formula(const EpilogueFunction& function, const std::string& sum);

/// What an argument of the operator is, with @words@; nothing of a number.
std::string about_input(const GemmProblem& problem, uint32_t input);

/// What there is of an output beside D: "one value for each row of D".
std::string meaning_of_output(const GemmProblem& problem, uint32_t output);

/// The function as one would write it, a value a line: "v2 = acc * scale".
std::string readable(const EpilogueFunction& function);

/// The operator's arguments, as PyTorch's schema and as Python have them.
void describe_signature(const GemmProblem& problem, Vocabulary& v);

/// A convolution's tensors and what is fixed of it.
void describe_convolution(const GemmProblem& problem, Vocabulary& v);

}  // namespace cleave
