#pragma once

#include <string_view>

namespace cleave {

/// The tables of measured winners that ship with the library (see tuned.h for the form).
std::string_view shipped_tuned_table();

}  // namespace cleave
