// Which headers a source needs.
#pragma once

#include <string>

#include "cleave/emit.h"

namespace cleave {

/// Adds to `files` every kernel header that those in it include, directly or not, as
/// "kernels/cleave/...", and every header of the host as "src/launch/...", "src/cleave/...".
void add_included_headers(EmittedFiles& files);

}  // namespace cleave
