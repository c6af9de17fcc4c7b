// What an operation may be named.
#pragma once

#include <string>

namespace cleave {

/// Throws Error(invalid_argument), saying why, for what cannot name the namespace, the files and the
/// operator of an emitted project. What the C library declares can: all that is emitted is in
/// namespace `emitted` and folders of its own.
void check_name(const std::string& name);

/// The same, with Error(unsupported), for what an epilogue function calls an input or an output: `what` says which.
void check_operand_name(const std::string& name, const char* what);

}  // namespace cleave
