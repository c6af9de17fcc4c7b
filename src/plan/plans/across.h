// The process's plans of products over ranks (include/cleave/across.h).
#pragma once

namespace cleave {

/// They are made anew from now on, as others after a measurement (forget_plans).
void forget_plans_across();

}  // namespace cleave
