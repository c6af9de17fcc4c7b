// The names of the vocabulary, as users type and read them, in Python, on the command line and in
// messages.
#pragma once

#include <string_view>
#include <type_traits>

#include "cleave/core/api.h"
#include "cleave/core/enums.h"
#include "cleave/error.h"

namespace cleave {

/// The enumerator's own name, but for
///
/// | DType      | torch's: float16 for f16, float8_e4m3fn for e4m3, int8 for i8 |
/// | Activation | gelu, for gelu_erf                                            |
/// | all        | auto, for automatic                                           |
///
/// For DType, Precision, SplitKMode, Activation, Gates, Bias, Scaling, Grouping (without classes),
/// GroupBounds, Conv, Division, Granularity, Norm, WeightFormat, Major, Order, KernelFamily,
/// ScoringFunc and GroupScore.
template <class Enum>
  requires std::is_enum_v<Enum>
CLEAVE_API std::string_view to_string(Enum value);

/// The inverse of to_string. Throws Error(invalid_argument), or Error(invalid_type) for a DType,
/// listing every accepted name and saying which one may have been meant. `given_as` is the
/// argument that the message names; by default what one of this type is mostly called.
template <class Enum>
CLEAVE_API Enum from_string(std::string_view name, std::string_view given_as = {});

}  // namespace cleave
