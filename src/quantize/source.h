// The translation unit of a quantising kernel: its configuration as a constant, and its entry
// point.
#pragma once

#include <string>

#include "cleave/quantize/quantize_config.h"

namespace cleave {

/// The kernels; each has a header of its name in kernels/cleave/quantize.
enum class QuantizeKernel { rows, measure, tiles, bands };

/// "quantize_rows" and so on.
const char* to_string(QuantizeKernel kernel);

/// The name of every kernel's entry point.
inline constexpr const char* quantize_entry = "cleave_quantize";

/// What NVRTC compiles. Equal configurations give equal text, since the text is part of the cache
/// key.
std::string quantize_source(QuantizeKernel kernel, const QuantizeConfig& config);

}  // namespace cleave
