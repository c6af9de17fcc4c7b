// The parts of an operation, each with its words.
#pragma once

#include "emit/operation.h"
#include "jit/spell.h"

namespace cleave {

/// The enumerator alone: spell() says "cleave::DType::bf16".
template <class Enum>
std::string enumerator(Enum value) {
  const std::string text = spell(value);
  return text.substr(text.rfind(':') + 1);
}

/// Which of the user's matrices are row-major in a kernel's eyes.
struct Layouts {
  bool a_row, b_row, d_row;

  friend bool operator==(const Layouts&, const Layouts&) = default;
};

Layouts layouts_of(const Choice& choice);

/// What elements the begins of groups have to be multiples of: for the widths of the kernels' loads,
/// and for scales of blocks of K.
int64_t spacing_step(const GemmProblem& problem, const std::vector<ArchChoice>& choices);

/// Of float32 operands, what becomes of them; else nothing.
std::string multiplied_as(const GemmProblem& problem);

void describe_arch(const ArchChoice& choice, Vocabulary& v);
void describe_matrices(const GemmProblem& problem, const Layouts& layouts, Vocabulary& v);
void describe_scales(const GemmProblem& problem, Vocabulary& v);

/// A convolution's tensors and what is fixed of it.
void describe_convolution(const GemmProblem& problem, Vocabulary& v);

}  // namespace cleave
