// An operation in the words that templates use.
#pragma once

#include <string>
#include <vector>

#include "emit/template.h"
#include "plan/choice/choice.h"

namespace cleave {

/// How an operation runs on one architecture.
struct ArchChoice {
  std::string arch;  ///< "sm_80", "sm_90a"
  Choice choice;
  bool of_rest = false;  ///< the second launch of a packed weight in two heights: the one before is the first

  std::string name() const { return of_rest ? arch + "_rest" : arch; }
};

/// Everything but the name and what belongs to a target. `problem` is what was planned. Throws
/// Error(unsupported) if the architectures' kernels want different layouts.
Vocabulary describe(const GemmProblem& problem, const std::vector<ArchChoice>& choices);

/// A backward of its own of the operation's epilogue function, as its text; none if that is empty.
void describe_backward(const std::string& text, Vocabulary& vocabulary);

}  // namespace cleave
