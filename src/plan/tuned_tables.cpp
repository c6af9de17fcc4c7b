#include "plan/tuned_tables.h"

namespace cleave {

std::string_view shipped_tuned_table() {
  return R"(
)";
}

}  // namespace cleave
