// The parts of an operation, each with its words.
#pragma once

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

/// The operator's arguments, as PyTorch's schema and as Python have them.
void describe_signature(const GemmProblem& problem, Vocabulary& v);

/// A convolution's tensors and what is fixed of it.
void describe_convolution(const GemmProblem& problem, Vocabulary& v);

}  // namespace cleave
