// Values as C++ spells them, for constants of translation units; cleave/names.h has them as users
// do.
#pragma once

#include "cleave/core/enums.h"

namespace cleave {

const char* spell(DType value);
const char* spell(Precision value);
const char* spell(SplitKMode value);
const char* spell(Activation value);
const char* spell(Grouping value);
const char* spell(Conv value);
const char* spell(Bias value);
const char* spell(Major value);
const char* spell(Order value);
const char* spell(KernelFamily value);
const char* spell(Scaling value);
const char* spell(bool value);
uint32_t spell(uint32_t value);

}  // namespace cleave
