// The epilogue functions that are ready-made.
#pragma once

#include <string_view>

#include "cleave/core/enums.h"

namespace cleave {

/// The activation that a function's text is, or none.
Activation activation_of(std::string_view text);

}  // namespace cleave
