// Which specs a table of measurements, or a name, may have.
#pragma once

#include "plan/choice/spec.h"

namespace cleave {

/// Whether `spec` is of the catalogue's tiles, multicasts and slices: a measurement may have had it, though
/// candidates() leaves out what never paid (shared loads of small tiles).
bool is_listed(const Spec& spec);

}  // namespace cleave
