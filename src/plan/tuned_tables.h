// The measured winners that ship with the library, src/plan/tuned, as text inside it.
// embed_files.cmake generates the definition.
#pragma once

#include <span>

namespace cleave {

struct ShippedTable {
  const char* name;  ///< "h100.txt"
  const char* text;  ///< see tuned.h for the form
};

std::span<const ShippedTable> shipped_tuned_tables();

}  // namespace cleave
